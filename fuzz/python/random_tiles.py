#!/usr/bin/env python3
"""Random tiles of gpu:flash2: which are feasible, compile at run time and run right on this machine's GPU.

    .build/release/flashproof bench compile --count 200 --json > compiled.json
    python3 fuzz/python/random_tiles.py .build/release/flashproof compiled.json --jobs 16

Each TileConfig that compiled runs one case of its dtype, dims and features, two tiles of rows and three of keys and a
few more, through `flashproof check`, by which every bit is predicted. At run time a kernel's dims are padded to 64, 128
or 256, so that a tile may be refused there. Exit codes: 0; 1, one ran wrong or did not compile; 2, none ran; 64, wrong
words or files; 69, no GPU or file.
"""

import collections
import concurrent.futures
import json
import re
import subprocess
import sys

from command_line import FINDING, INCONCLUSIVE, RIGHT, UNAVAILABLE, USAGE, Parser


def case_of(config):
    """("bf16 64x96x2x4 d64/32 general") -> (its case, its tile)"""
    dtype, tile, d, dv, features = re.fullmatch(r"(\w+) (\S+) d(\d+)/(\d+) (\w+)", config).groups()
    rows, keys = map(int, tile.split("x")[:2])
    modifiers = "softcap=20 alibi" if features == "general" else "causal"
    return f"{dtype} h2/1 q{2 * rows + 3} k{3 * keys + 5} d{d}/{dv} {modifiers} seed=1", tile


def compiled_in(random):
    """Of the list that `bench compile` gives, which holds those that were refused or failed, too."""
    return [each["config"] for each in random["configs"] if "refused" not in each and "error" not in each]


def run(program, config):
    """(what became of it, what was printed)"""
    case, tile = case_of(config)
    command = [program, "check", "gpu:flash2", case, "--config", "tile=" + tile, "--check", "bits", "--timeout", "60s"]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True)
    return outcome(done.returncode, done.stdout, tile), done.stdout + done.stderr


def outcome(code, told, tile):
    """`told` is the JSON of `check`. A rejection for another reason than the padded tile's is a finding."""
    if code == INCONCLUSIVE and json.loads(told)["rejected"].startswith(f"tile {tile}: "):
        return "refused when padded"
    return {RIGHT: "right", FINDING: "wrong", UNAVAILABLE: "unavailable"}.get(code, f"exit {code}")


def read_compiled(path):
    """(what `bench compile --json` counted, the configs that compiled). ValueError for another file."""
    with open(path) as file:
        text = file.read()
    try:
        random = json.loads(text)["random"]
        configs = compiled_in(random)
        for config in configs:
            case_of(config)
        return {name: int(random[name]) for name in ("count", "refused", "compiled", "failed")}, configs
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path} is not what `bench compile --json` prints: {error!r}") from error


def require_flashproof(program):
    """ValueError for what is another program or none; OSError where there is nothing."""
    command = [program, "--version"]
    try:
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, text=True, errors="replace")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ValueError(f"{program} is not flashproof: {error}") from error
    if not done.stdout.startswith("flashproof "):
        raise ValueError(f"{program} is not flashproof")


def exit_code(counts, failed):
    """Of how many tiles came to each outcome, and how many did not compile."""
    if "unavailable" in counts:
        return UNAVAILABLE
    if failed or not counts.keys() <= {"right", "refused when padded"}:
        return FINDING
    return RIGHT if "right" in counts else INCONCLUSIVE


def main(words):
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="flashproof")
    parser.add_argument("compiled", help="what `bench compile --json` printed")
    parser.add_argument("--jobs", type=int, default=2, help="checks side by side (2)")
    arguments = parser.parse_args(words)
    if arguments.jobs < 1:
        parser.error("--jobs is at least 1")
    try:
        random, configs = read_compiled(arguments.compiled)
        require_flashproof(arguments.program)
    except OSError as error:
        print(f"random_tiles: {error}", file=sys.stderr)
        return UNAVAILABLE
    except ValueError as error:
        print(f"random_tiles: {error}", file=sys.stderr)
        return USAGE
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        results = list(pool.map(lambda config: run(arguments.program, config), configs))
    counts = collections.Counter(result for result, _ in results)
    print(
        f"{random['count']} random TileConfigs: {random['refused']} refused by feasible(), "
        f"{random['compiled']} compiled, {random['failed']} did not"
    )
    print("of those that compiled: " + (", ".join(f"{count} {name}" for name, count in counts.most_common()) or "none"))
    for config, (result, text) in zip(configs, results, strict=True):
        if result not in ("right", "refused when padded"):
            print(f"{config}: {result}\n{text}", file=sys.stderr)
    return exit_code(counts, random["failed"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
