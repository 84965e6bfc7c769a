#!/usr/bin/env python3
"""How fast a plug-in's bf16 attention forward is on this GPU, beside PyTorch's FlashAttention 2 and cuDNN.

    python3 fuzz/python/attention_speed.py PLUGIN --flashproof PROGRAM --tiles all --out speed.jsonl > table.md

A cell is a head dim d, a mask and a length S, with 16384 / S entries of 2048 / d heads. All kernels run in this
process and read the same tensors, normal random numbers; a cell's, 268 MB with O, are several times the cache. A
sample is the time between two CUDA events around as many launches as fill 50 ms. A round takes two samples of each
kernel, in an order and then in its reverse, so that a drift of the clock falls on all alike; the first two rounds are
dropped. What is told is the median over rounds, with the quartiles, of TFLOP/s and of the ratio of rates within a
round. The GPU runs back to back: rates are sustained ones. FLOP are 4 B H S^2 d, half of that if causal. Of several
tiles, the fastest by five samples of its own, of half the length, is timed. By default the rounds of three kernels take
3 s a cell, each tile another 0.13 s, and in the first cell of a dim, where it is compiled at run time, about 1 s.

The plug-in's output is that of the last timed launch; attention_check.py says what is asked of it and of the peers'.
"""

import argparse
import contextlib
import hashlib
import json
import math
import shlex
import statistics
import subprocess
import sys
import time
import typing
import warnings

import flashproof_kernel as fk
from command_line import FINDING, INTERNAL, UNAVAILABLE, Parser
from speed_table import DROPPED_ROUNDS, heading, is_right, table, tiles_table, verdict_of

try:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from attention_check import BitCheck, largest_error
except ImportError:
    torch = None

TOKENS, HIDDEN = 16384, 2048
DEVICE = "cuda"


class Cell(typing.NamedTuple):
    d: int
    mask: str
    length: int

    @property
    def batch(self):
        return TOKENS // self.length

    @property
    def heads(self):
        return HIDDEN // self.d

    @property
    def causal(self):
        return self.mask == "causal"

    @property
    def flops(self):
        return 4 * self.batch * self.heads * self.length**2 * self.d // (2 if self.causal else 1)

    @property
    def problem(self):
        return fk.plain_problem(fk.BF16, self.batch, self.heads, self.length, self.d, self.causal)


class Contestant(typing.NamedTuple):
    launch: typing.Callable  # returns O as [B, S, H, d]
    setting: typing.Callable = contextlib.nullcontext  # what its launches run in


# Kernels


def empty(cell, layout):
    """[B, S, H, d], in memory as the layout's letters say."""
    if layout == "bshd":
        return torch.empty((cell.batch, cell.length, cell.heads, cell.d), dtype=torch.bfloat16, device=DEVICE)
    shape = (cell.batch, cell.heads, cell.length, cell.d)
    return torch.empty(shape, dtype=torch.bfloat16, device=DEVICE).transpose(1, 2)


def config_of(tile):
    return "" if tile == "auto" else "tile=" + tile


def plugin_contestants(plugin, cell, tiles, q, k, v, o, lse):
    """One for each tile that the plug-in takes, launched once, and why not for the others."""
    memory, stream = plugin.kernel.memory, torch.cuda.current_stream().cuda_stream
    views = [fk.tensor(t.data_ptr(), fk.BF16, memory, t.shape, t.stride()) for t in (q, k, v, o)]
    views.append(fk.tensor(lse.data_ptr(), fk.FP32, memory, lse.shape, lse.stride()))

    def contestant(tile):
        enqueue = plugin.forward(cell.problem, *views, config_of(tile))

        def launch():
            enqueue(stream)
            return o

        return Contestant(launch)

    taken, refused = {}, {}
    for tile in tiles:
        try:
            each = contestant(tile)
            each.launch()
            taken[tile] = each
        except (fk.Refused, RuntimeError) as reason:
            refused[tile] = str(reason)
    return taken, refused


def peer_contestants(cell, q, k, v):
    """PyTorch's, launched once, and why one does not take the cell."""
    heads_first = [t.transpose(1, 2) for t in (q, k, v)]

    def launch():
        return torch.nn.functional.scaled_dot_product_attention(*heads_first, is_causal=cell.causal).transpose(1, 2)

    taken, refused = {}, {}
    for name, backend in (("FlashAttention 2", SDPBackend.FLASH_ATTENTION), ("cuDNN", SDPBackend.CUDNN_ATTENTION)):
        with warnings.catch_warnings(record=True) as reasons, sdpa_kernel(backend):
            warnings.simplefilter("always")
            try:
                launch()
                taken[name] = Contestant(launch, lambda backend=backend: sdpa_kernel(backend))
            except RuntimeError as error:
                refused[name] = "; ".join([str(error), *(str(each.message) for each in reasons)])
    return taken, refused


# Time


def sm_clock():
    """MHz while the GPU works, or None where NVIDIA's management library (the package nvidia-ml-py) does not tell."""
    try:
        return torch.cuda.clock_rate()
    except Exception:  # a missing package, and whatever the library refuses with
        return None


def sample(contestant, launches):
    """[ms a launch, ms that the host took to enqueue one, SM clock in MHz or None]"""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with contestant.setting():
        start = time.perf_counter()
        begin.record()
        for _ in range(launches):
            contestant.launch()
        end.record()
        host = time.perf_counter() - start
    clock = sm_clock()
    end.synchronize()
    return [begin.elapsed_time(end) / launches, 1e3 * host / launches, clock]


def launches_in(milliseconds, contestant):
    sample(contestant, 1)  # warms up
    return max(1, math.ceil(milliseconds / sample(contestant, 3)[0]))


def fastest(candidates, milliseconds):
    """The name of the candidate with the least median, and the milliseconds of each, five samples in turn."""
    launches = {name: launches_in(milliseconds, each) for name, each in candidates.items()}
    times = {name: [] for name in candidates}
    for _ in range(5):
        for name, each in candidates.items():
            times[name].append(sample(each, launches[name])[0])
    return min(times, key=lambda name: statistics.median(times[name])), times


def measure(contestants, rounds, milliseconds):
    """Of each contestant its launches a sample, and its rounds of two samples."""
    launches = {name: launches_in(milliseconds, each) for name, each in contestants.items()}
    samples = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, each in contestants.items():
            samples[name].append([sample(each, launches[name])])
        for name, each in reversed(contestants.items()):
            samples[name][-1].append(sample(each, launches[name]))
    return launches, samples


def run_cell(plugin, cell, tiles, arguments):
    """The cell's record: what was timed, every sample, and what became of the outputs."""
    generator = torch.Generator(device=DEVICE).manual_seed(arguments.seed)
    q, k, v = (empty(cell, arguments.layout).normal_(generator=generator) for _ in range(3))
    o, lse = empty(cell, arguments.layout), torch.empty((cell.batch, cell.heads, cell.length), device=DEVICE)
    bits = None
    if arguments.flashproof:
        bits = BitCheck(arguments.flashproof, q, k, v, cell.causal, plugin.arithmetic(cell.problem), arguments.seed)

    candidates, refused = plugin_contestants(plugin, cell, tiles, q, k, v, o, lse)
    if not candidates:
        raise fk.Refused(f"{plugin.name}, {cell}: {'; '.join(refused.values())}")
    tile, tried = fastest(candidates, arguments.sample_ms / 2)
    peers, without = peer_contestants(cell, q, k, v)
    contestants = {plugin.name: candidates[tile], **peers}
    o.fill_(math.nan), lse.fill_(math.nan)
    launches, samples = measure(contestants, arguments.rounds, arguments.sample_ms)

    errors = {plugin.name: largest_error(q, k, v, o, cell.causal)}
    for name, each in peers.items():
        with each.setting():
            errors[name] = largest_error(q, k, v, each.launch(), cell.causal)
    arithmetic = plugin.arithmetic(cell.problem, config_of(tile))
    return {
        **cell._asdict(),
        "batch": cell.batch,
        "heads": cell.heads,
        "flops": cell.flops,
        "kernel": plugin.name,
        "tile": tile,
        "arithmetic": arithmetic,
        "tried_ms": tried,
        "refused": {**refused, **without},
        "launches": launches,
        "samples": samples,
        "error_over_tolerance": errors,
        "bits": bits.verdict(o, lse, arithmetic) if bits else None,
    }


def about_run(arguments, plugin):
    device = torch.cuda.get_device_properties(0)
    try:
        driver = subprocess.run(
            ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "-i", "0"],
            capture_output=True,
            text=True,
        ).stdout.strip()
    except OSError:
        driver = "unknown"
    with open(arguments.plugin, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    return {
        "command": shlex.join(sys.argv),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "gpu": device.name,
        "multiprocessors": device.multi_processor_count,
        "driver": driver,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "kernel": plugin.name,
        "plugin_sha256": digest,
        "layout": arguments.layout,
    }


# The command line


def divisor_of(whole):
    def parse(text):
        if not text.isdecimal() or int(text) == 0 or whole % int(text) != 0:
            raise argparse.ArgumentTypeError(f"{text} does not divide {whole}")
        return int(text)

    return parse


def tiles_of(lists, d, every):
    """The tiles to be tried at d: those of the lists "d:TILE,..." if there are any, else of the lists without a dim."""
    named = [each.partition(":") for each in lists]
    own = [tiles for dim, colon, tiles in named if colon and dim == str(d)]
    tiles = ",".join(own or [each for each in lists if ":" not in each] or ["auto"])
    return every or ["auto"] if tiles == "all" else tiles.split(",")


def parse(words):
    parser = Parser(description="A plug-in's attention forward, timed beside PyTorch's FlashAttention 2 and cuDNN.")
    parser.add_argument("plugin", help="a kernel behind flashproof_kernel.h, e.g. .build/release/plugins/gpu_flash2.so")
    parser.add_argument("--flashproof", metavar="PROGRAM", help="checks every bit of two heads with this flashproof")
    parser.add_argument(
        "--tiles",
        nargs="+",
        default=["auto"],
        metavar="LIST",
        help="auto: the kernel's choice; all: every value of its tunable `tile`; 64x64x2x4,128x64x2x8; for one dim alone, "
        "64:128x64x2x4,64x64x2x4 and so on",
    )
    parser.add_argument("--dims", nargs="+", type=divisor_of(HIDDEN), default=[64, 128, 256])
    parser.add_argument("--masks", nargs="+", choices=["full", "causal"], default=["full", "causal"])
    parser.add_argument("--lengths", nargs="+", type=divisor_of(TOKENS), default=[1024, 4096, 16384])
    parser.add_argument("--layout", choices=["bshd", "bhsd"], default="bshd", help="of q, k, v and o in memory")
    parser.add_argument("--rounds", type=int, default=10, help="with the two that are dropped (10)")
    parser.add_argument("--sample-ms", type=float, default=50, help="length of a sample (50)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", metavar="FILE", help="JSON lines: the machine, then each cell with every sample")
    arguments = parser.parse_args(words)
    if arguments.rounds < DROPPED_ROUNDS + 2:
        parser.error(f"--rounds is at least {DROPPED_ROUNDS + 2}")
    return arguments


def load(path):
    if torch is None:
        raise fk.Unavailable("this needs PyTorch, which was not found")
    if not torch.cuda.is_available():
        raise fk.Unavailable(f"PyTorch {torch.__version__} finds no GPU")
    plugin = fk.Plugin(path)
    if plugin.kernel.memory != fk.CUDA:
        raise fk.Unavailable(f"{plugin.name} does not run on a GPU")
    return plugin


def run(arguments, out):
    """Exit code."""
    plugin = load(arguments.plugin)
    about, records, code = about_run(arguments, plugin), [], 0
    print(json.dumps(about), file=out)
    for cell in (
        Cell(d, mask, length) for d in arguments.dims for mask in arguments.masks for length in arguments.lengths
    ):
        try:
            tiles = tiles_of(arguments.tiles, cell.d, plugin.values("tile"))
            records.append(run_cell(plugin, cell, tiles, arguments))
        except fk.Refused as reason:
            print(f"attention_speed: {reason}", file=sys.stderr)
            code = UNAVAILABLE
            continue
        print(json.dumps(records[-1]), file=out, flush=True)
        print(cell, records[-1]["tile"], verdict_of(records[-1]), file=sys.stderr)
    print(heading(about), *([table([(about, records)]), tiles_table(records)] if records else []), sep="\n")
    return code if all(is_right(record) for record in records) else FINDING


def main(words):
    arguments = parse(words)
    try:
        with open(arguments.out or "/dev/null", "w") as out:
            return run(arguments, out)
    except (fk.Unavailable, OSError) as error:
        print(f"attention_speed: {error}", file=sys.stderr)
        return UNAVAILABLE
    except RuntimeError as error:  # of CUDA, PyTorch or the kernel
        print(f"attention_speed: {error}", file=sys.stderr)
        return INTERNAL


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
