"""What the programs of this folder share: how their command lines are read, and their exit codes (fuzz/README.md)."""

import argparse
import sys

RIGHT, FINDING, INCONCLUSIVE, USAGE, UNAVAILABLE, INTERNAL = 0, 1, 2, 64, 69, 70


class Parser(argparse.ArgumentParser):
    """Wrong words end the program with USAGE; argparse alone would take 2."""

    def error(self, message):
        self.print_usage(sys.stderr)
        self.exit(USAGE, f"{self.prog}: {message}\n")
