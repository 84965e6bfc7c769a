#!/usr/bin/env python3
"""Random tiles of gpu:flash2: which are feasible, compile at run time and run right on this machine's GPU.

    .build/release/flashproof bench compile --count 200 --json > compiled.json
    python3 fuzz/python/random_tiles.py .build/release/flashproof compiled.json --jobs 16

Each TileConfig that compiled runs one case of its dtype, dims and features, two tiles of rows and three of keys and a few
more, through `flashproof check`, by which every bit is predicted. At run time a kernel's dims are padded to 64, 128 or
256, so that a tile may be refused there. Exit codes: 0; 1, one ran wrong or did not compile; 64, wrong words; 69, no GPU.
"""

import argparse
import collections
import concurrent.futures
import json
import re
import subprocess
import sys

RIGHT, FINDING, INCONCLUSIVE, USAGE, UNAVAILABLE = 0, 1, 2, 64, 69  # exit codes (fuzz/README.md)


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


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.print_usage(sys.stderr)
        self.exit(USAGE, f"{self.prog}: {message}\n")


def main(words):
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="flashproof")
    parser.add_argument("compiled", help="what `bench compile --json` printed")
    parser.add_argument("--jobs", type=int, default=2, help="checks side by side")
    arguments = parser.parse_args(words)
    with open(arguments.compiled) as file:
        random = json.load(file)["random"]
    configs = compiled_in(random)
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        results = list(pool.map(lambda config: run(arguments.program, config), configs))
    counts = collections.Counter(result for result, _ in results)
    print(
        f"{random['count']} random TileConfigs: {random['refused']} refused by feasible(), "
        f"{random['compiled']} compiled, {random['failed']} did not"
    )
    print("of those that compiled: " + ", ".join(f"{count} {name}" for name, count in counts.most_common()))
    for config, (result, text) in zip(configs, results, strict=True):
        if result not in ("right", "refused when padded"):
            print(f"{config}: {result}\n{text}", file=sys.stderr)
    if "unavailable" in counts:
        return UNAVAILABLE
    return RIGHT if counts.keys() <= {"right", "refused when padded"} and random["failed"] == 0 else FINDING


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
