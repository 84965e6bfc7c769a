#!/usr/bin/env python3
"""The loop over key tiles in a GPU kernel's machine code, its instructions counted by kind, as a Markdown table.

cuobjdump -sass kernel.cubin | python3 fuzz/python/loop_instructions.py

The loop is what lies between the ends of backward branches around tensor instructions. A block that a forward branch
inside it may pass over (masks, the rescaling of O) is counted apart: `always` is what each tile of keys costs a warp.
"""

import re
import sys
import typing

from command_line import USAGE, Parser

KINDS = {
    "MMA": "HMMA|QMMA",
    "LDSM": "LDSM",
    "MUFU": "MUFU",
    "FFMA": "FFMA",
    "FMUL": "FMUL",
    "FADD": "FADD",
    "FMNMX": "FMNMX",
    "FSETP, FSEL": "FSETP|FSEL",
    "F2FP": "F2FP",
    "SHFL": "SHFL",
    "moves": "MOV|IMAD.MOV|CS2R|S2R|UMOV|R2UR|P2R|R2P|LDC|ULDC",
    "integers": "U?IADD3?|U?IMAD|U?LEA|VIADD|VIADDMNMX|VIMNMX|U?ISETP|U?SEL|U?LOP3|U?SHF|PRMT|PLOP3|UPLOP3",
    "LDGSTS": "LDGSTS",
    "BAR": "BAR",
    "spills": "LDL|STL",
}


class Instruction(typing.NamedTuple):
    address: int
    text: str  # without its predicate
    predicated: bool

    @property
    def target(self):
        """Where a branch goes, or None."""
        found = re.match(r"BRA\b.*?(0x[0-9a-f]+)", self.text)
        return int(found[1], 16) if found else None

    @property
    def kind(self):
        return next(
            (kind for kind, names in KINDS.items() if re.match(rf"(?:{names})(?![A-Z0-9])", self.text)), "other"
        )


def functions_of(sass):
    """{name: instructions} of `cuobjdump -sass`."""
    functions = {}
    for line in sass.splitlines():
        name = re.search(r"Function : (\S+)", line)
        code = re.match(r"\s*/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+ )?\s*(.*?)\s*;", line)
        if name:
            functions[name[1]] = []
        elif code and functions:
            list(functions.values())[-1].append(Instruction(int(code[1], 16), code[3], code[2] is not None))
    return functions


def loop_of(instructions):
    """The longest loop with tensor instructions, loops that overlap taken together; empty if there is none."""
    loops = []
    for each in instructions:
        if each.target is not None and each.target < each.address:
            loops.append((each.target, each.address))
    merged = []
    for begin, end in sorted(loops):
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(end, merged[-1][1])
        else:
            merged.append([begin, end])
    bodies = [[each for each in instructions if begin <= each.address <= end] for begin, end in merged]
    return max((body for body in bodies if any(each.kind == "MMA" for each in body)), key=len, default=[])


def skipped_in(loop):
    """[begin, end) of the blocks that forward branches on a predicate may pass over, none inside another."""
    blocks = []
    for each in loop:
        if each.predicated and each.target is not None and each.address < each.target <= loop[-1].address:
            if not blocks or each.address >= blocks[-1][1]:
                blocks.append((each.address + 1, each.target))
    return blocks


def counts_of(loop):
    """{kind: how many} of what is never passed over, and how many instructions each other block has."""
    blocks, counts = skipped_in(loop), dict.fromkeys([*KINDS, "other"], 0)
    for each in loop:
        if not any(begin <= each.address < end for begin, end in blocks):
            counts[each.kind] += 1
    return counts, [sum(begin <= each.address < end for each in loop) for begin, end in blocks]


def row(name, counts, blocks):
    always = sum(counts.values())
    words = [name, always, f"{always / counts['MMA']:.2f}", *counts.values(), ", ".join(map(str, blocks))]
    return "| " + " | ".join(map(str, words)) + " |"


def main(words):
    Parser(description=__doc__.splitlines()[0] + " Reads `cuobjdump -sass` from stdin.").parse_args(words)
    sass = sys.stdin.buffer.read().decode(errors="replace")
    rows = [row(name, *counts_of(loop)) for name, code in functions_of(sass).items() if (loop := loop_of(code))]
    if not rows:
        print("loop_instructions: no loop with tensor instructions in what cuobjdump -sass told", file=sys.stderr)
        return USAGE
    header = ["kernel", "always", "an MMA", *KINDS, "other", "blocks"]
    print("| " + " | ".join(header) + " |", "| " + " | ".join(["---"] * len(header)) + " |", *rows, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
