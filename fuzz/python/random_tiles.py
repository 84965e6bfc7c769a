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

RIGHT, FINDING, USAGE, UNAVAILABLE = 0, 1, 64, 69  # exit codes (fuzz/README.md)


def case_of(config):
    """("bf16 64x96x2x4 d64/32 general") -> (its case, its tile)"""
    dtype, tile, d, dv, features = re.fullmatch(r"(\w+) (\S+) d(\d+)/(\d+) (\w+)", config).groups()
    rows, keys = map(int, tile.split("x")[:2])
    modifiers = "softcap=20 alibi" if features == "general" else "causal"
    return f"{dtype} h2/1 q{2 * rows + 3} k{3 * keys + 5} d{d}/{dv} {modifiers} seed=1", tile


def run(program, config):
    """(exit code, what was printed)"""
    case, tile = case_of(config)
    command = [program, "check", "gpu:flash2", case, "--config", "tile=" + tile, "--check", "bits", "--timeout", "60s"]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def outcome(code, text):
    if "does not take this problem" in text:
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
    o = parser.parse_args(words)
    with open(o.compiled) as file:
        random = json.load(file)["random"]
    configs = [each["config"] for each in random["configs"]]
    with concurrent.futures.ThreadPoolExecutor(o.jobs) as pool:
        results = list(pool.map(lambda config: run(o.program, config), configs))
    counts = collections.Counter(outcome(*result) for result in results)
    print(f"{random['count']} random TileConfigs: {random['refused']} refused by feasible(), "
          f"{random['compiled']} compiled, {random['failed']} did not")
    print("of those that compiled: " + ", ".join(f"{count} {name}" for name, count in counts.most_common()))
    for config, (code, text) in zip(configs, results):
        if outcome(code, text) not in ("right", "refused when padded"):
            print(f"{config}: {outcome(code, text)}\n{text}", file=sys.stderr)
    if "unavailable" in counts:
        return UNAVAILABLE
    return RIGHT if counts.keys() <= {"right", "refused when padded"} and random["failed"] == 0 else FINDING


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
