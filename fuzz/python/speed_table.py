#!/usr/bin/env python3
"""What attention_speed.py measured, as a Markdown table; of several runs as one.

python3 fuzz/python/speed_table.py speed.jsonl ...
"""

import json
import statistics
import sys

from command_line import UNAVAILABLE, USAGE, Parser

DROPPED_ROUNDS = 2  # while caches, clocks and allocators settle


def verdict_of(record):
    """ "every bit", or "float64" where no bit was predicted, or what is wrong."""
    wrong = [name for name, error in record["error_over_tolerance"].items() if error > 1]
    if wrong:
        return "WRONG: " + ", ".join(wrong)
    if record["bits"] is None:
        return "float64"
    return "every bit" if record["bits"]["status"] == "pass" else "bits: " + record["bits"]["status"].upper()


def is_right(record):
    return verdict_of(record) in ("every bit", "float64")


def milliseconds_of(record, name):
    """A launch's, of each round that counts."""
    return [(a[0] + b[0]) / 2 for a, b in record["samples"][name][DROPPED_ROUNDS:]]


def quartiles(values, digits):
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def rate(record, name):
    if name not in record["samples"]:
        return "refuses"
    return quartiles([record["flops"] / ms * 1e-9 for ms in milliseconds_of(record, name)], 0)


def ratio(record, peer):
    if peer not in record["samples"]:
        return ""
    own, theirs = milliseconds_of(record, record["kernel"]), milliseconds_of(record, peer)
    return quartiles([b / a for a, b in zip(own, theirs, strict=True)], 2)


def clock_and_flops(record, multiprocessors):
    """The SM clock in MHz while the kernel was timed, and its FLOP per SM and clock; empty where no clock was told."""
    rounds = record["samples"][record["kernel"]][DROPPED_ROUNDS:]
    clocks = [clock for pair in rounds for _, _, clock in pair if clock]
    if not clocks:
        return ["", ""]
    cycles = statistics.median(milliseconds_of(record, record["kernel"])) * 1e3 * statistics.median(clocks)
    return [f"{statistics.median(clocks):.0f}", f"{record['flops'] / (cycles * multiprocessors):.0f}"]


def is_bound_by_host(record):
    """Whether launching took the host about as long as the GPU needed, so that the host may be what was timed."""
    shares = ([host / ms for pair in rounds for ms, host, _ in pair] for rounds in record["samples"].values())
    return any(statistics.median(each) > 0.9 for each in shares)


def heading(about):
    return (
        f"{about['gpu']}, driver {about['driver']}, PyTorch {about['torch']}, cuDNN {about['cudnn']}:\n\n"
        f"    {about['command']}\n"
    )


def table(runs):
    """Of [(what is known of the run, its records)]: TFLOP/s, the kernel's rate over each peer's, clock, output."""
    rows = [(about, record) for about, records in runs for record in records]
    kernels = list(dict.fromkeys(record["kernel"] for _, record in rows))
    peers = list(dict.fromkeys(name for _, record in rows for name in record["samples"] if name not in kernels))
    header = ["d", "mask", "length", "tile", "/".join(kernels), *peers, *(f"over {peer}" for peer in peers)]
    header += ["MHz", "FLOP/SM/clock", "output"]
    lines = [header, ["---"] * len(header)]
    for about, r in rows:
        line = [r["d"], r["mask"], r["length"], r["tile"], *(rate(r, name) for name in (r["kernel"], *peers))]
        line += [ratio(r, peer) for peer in peers] + clock_and_flops(r, about["multiprocessors"]) + [verdict_of(r)]
        lines.append([str(each) for each in line])
    text = "TFLOP/s and ratios of rates: medians (quartiles) over rounds.\n\n"
    text += "\n".join("| " + " | ".join(line) + " |" for line in lines)
    slow = [f"d {r['d']} {r['mask']} {r['length']}" for _, r in rows if is_bound_by_host(r)]
    return text + ("\n\nThe host may be what was timed in " + ", ".join(slow) + "." if slow else "")


def tiles_table(records):
    """TFLOP/s of the tiles that were tried, least to most over their samples, the best median of each cell in bold."""
    text = ""
    for d in dict.fromkeys(r["d"] for r in records):
        cells = [r for r in records if r["d"] == d and len(r["tried_ms"]) > 1]
        tiles = list(dict.fromkeys(tile for r in cells for tile in r["tried_ms"]))
        if not cells:
            continue
        lines = [[f"d {d}", *(f"{r['mask']} {r['length']}" for r in cells)], ["---"] * (len(cells) + 1)]
        for tile in tiles:
            rates = [sorted(r["flops"] / ms * 1e-9 for ms in r["tried_ms"].get(tile, [])) for r in cells]
            told = [f"{statistics.median(n):.0f} ({n[0]:.0f} to {n[-1]:.0f})" if n else "refused" for n in rates]
            lines.append([tile, *(f"**{n}**" if r["tile"] == tile else n for r, n in zip(cells, told, strict=True))])
        text += "\n\n" + "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return text


def read_run(path):
    with open(path) as file:
        about, *records = map(json.loads, file)
    return about, records


def page(runs):
    return "\n".join(
        [*(heading(about) for about, _ in runs), table(runs), tiles_table([r for _, rs in runs for r in rs])]
    )


def main(words):
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", metavar="FILE", help="what attention_speed.py --out wrote")
    paths = parser.parse_args(words).files
    try:
        text = page([read_run(path) for path in paths])
    except OSError as error:
        print(f"speed_table: {error}", file=sys.stderr)
        return UNAVAILABLE
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        print(f"speed_table: {' or '.join(paths)} is not of attention_speed.py --out: {error!r}", file=sys.stderr)
        return USAGE
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
