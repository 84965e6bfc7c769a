"""fuzz/python without a GPU: structs against a C compiler's, a plug-in loaded and called, a table of known numbers.

python_test.py ROOT CC PLUGIN      the project's root, a C compiler, sim:flash2 as a plug-in
"""

import array
import ctypes
import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT, CC, PLUGIN = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "fuzz/python"))
import attention_speed  # noqa: E402
import flashproof_kernel as fk  # noqa: E402
import loop_instructions  # noqa: E402
import random_tiles  # noqa: E402
import speed_table  # noqa: E402

STRUCTS = {
    "flashproof_tensor": fk.Tensor,
    "flashproof_integers": fk.Integers,
    "flashproof_conventions": fk.Conventions,
    "flashproof_problem": fk.Problem,
    "flashproof_call": fk.Call,
    "flashproof_kernel": fk.Kernel,
}
CONSTANTS = ("ABI", "FP32", "BF16", "FP16", "E4M3", "E5M2", "INT32", "HOST", "CUDA", "OK", "REJECTED", "ERROR")
NUMBERS = {
    ctypes.c_int32: "int32_t",
    ctypes.c_uint32: "uint32_t",
    ctypes.c_int64: "int64_t",
    ctypes.c_uint64: "uint64_t",
    ctypes.c_float: "float",
}


def layout(structs):
    """{"flashproof_tensor.rank": [offset, size, type]}, "other" for what is no number; {"flashproof_tensor": size}."""
    told = {name: [ctypes.sizeof(c_struct)] for name, c_struct in structs.items()}
    for name, c_struct in structs.items():
        for field, kind in c_struct._fields_:
            place = getattr(c_struct, field)
            told[f"{name}.{field}"] = [place.offset, place.size, NUMBERS.get(kind, "other")]
    return told


def compilers_layout(structs):
    """The same, and the constants, as CC has them."""
    kinds = ", ".join(f'{name}: "{name}"' for name in NUMBERS.values())
    lines = [f'printf("{name} %zu\\n", sizeof({name}));' for name in structs]
    for name, c_struct in structs.items():
        for field, _ in c_struct._fields_:
            member = f"(({name}*)0)->{field}"
            lines.append(
                f'printf("{name}.{field} %zu %zu %s\\n", offsetof({name}, {field}), sizeof({member}), '
                f'_Generic({member}, {kinds}, default: "other"));'
            )
    lines += [f'printf("{name} %d\\n", (int)FLASHPROOF_{name});' for name in CONSTANTS]
    with tempfile.TemporaryDirectory() as folder:
        source, program = pathlib.Path(folder, "layout.c"), str(pathlib.Path(folder, "layout"))
        source.write_text('#include "kernels/flashproof_kernel.h"\nint main(void) {\n' + "\n".join(lines) + "\n}\n")
        subprocess.run([CC, "-std=c11", f"-I{ROOT}", str(source), "-o", program], check=True)
        output = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    return {
        words[0]: [int(word) if word.isdecimal() else word for word in words[1:]]
        for words in map(str.split, output.splitlines())
    }


class LayoutTest(unittest.TestCase):
    def test_is_the_compilers(self):
        constants = {name: [getattr(fk, name)] for name in CONSTANTS}
        self.assertEqual({**layout(STRUCTS), **constants}, compilers_layout(STRUCTS))

    def test_tells_a_wrong_place_and_a_wrong_type(self):
        class Swapped(ctypes.Structure):
            _fields_ = [("host", ctypes.c_void_p), ("data", ctypes.c_void_p), ("length", ctypes.c_uint64)]

        wrong = {"flashproof_integers": Swapped}
        told, right = layout(wrong), compilers_layout(wrong)
        self.assertEqual(
            {name for name in told if told[name] != right[name]},
            {"flashproof_integers." + field for field in ("data", "host", "length")},
        )


def bf16(values):
    """Of numbers that have a bf16."""
    return array.array("H", (struct.unpack("<I", struct.pack("<f", x))[0] >> 16 for x in values))


def dense(numbers, dtype, shape):
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return fk.tensor(numbers.buffer_info()[0], dtype, fk.HOST, shape, strides)


class PluginTest(unittest.TestCase):
    def setUp(self):
        self.plugin = fk.Plugin(PLUGIN)

    def test_two_queries_of_two_equal_keys(self):
        """The first sees one key, so that O = v_0 and L = <q, k> / sqrt(d); the second sees both, half of each."""
        d = 32
        q, k = bf16([1] * 2 * d), bf16([0.5] * 2 * d)
        v = bf16([1 + c / 32 for c in range(d)] + [3 - c / 32 for c in range(d)])
        o, lse = bf16([math.nan] * 2 * d), array.array("f", [math.nan] * 2)
        tensors = [dense(each, fk.BF16, (1, 2, 1, d)) for each in (q, k, v, o)] + [dense(lse, fk.FP32, (1, 1, 2))]
        for config in ("", "tile=" + self.plugin.values("tile")[0]):
            o[:], lse[:] = bf16([math.nan] * 2 * d), array.array("f", [math.nan] * 2)
            self.plugin.forward(fk.plain_problem(fk.BF16, 1, 1, 2, d, True), *tensors, config)()
            self.assertEqual(o, bf16([1 + c / 32 for c in range(d)] + [2] * d))
            score = 0.5 * d / math.sqrt(d)
            self.assertAlmostEqual(lse[0], score, delta=1e-6)
            self.assertAlmostEqual(lse[1], score + math.log(2), delta=1e-6)

    def test_says_what_it_is(self):
        problem = fk.plain_problem(fk.BF16, 1, 1, 2, 32, False)
        self.assertEqual((self.plugin.name, self.plugin.kernel.memory), ("sim_flash2", fk.HOST))
        self.assertIsNone(self.plugin.reason_against(problem))
        self.assertIn("scores=tc", self.plugin.arithmetic(problem).split())
        self.assertEqual(self.plugin.values("no_such_tunable"), [])

    def test_refuses_with_the_kernels_reason(self):
        problem = fk.plain_problem(fk.BF16, 1, 1, 2, 33, False)
        self.assertIn("head_dim", self.plugin.reason_against(problem))
        with self.assertRaisesRegex(fk.Refused, "head_dim"):
            self.plugin.forward(problem, *[fk.Tensor()] * 5)

    def test_what_is_no_plugin_is_unavailable(self):
        for path in (str(ROOT / "no_such_plugin.so"), str(ROOT / "README.md")):
            with self.assertRaisesRegex(fk.Unavailable, "cannot load"):
                fk.Plugin(path)


def ended(program, *words, stdin=b""):
    """(exit code, stdout, stderr) of a program of fuzz/python"""
    command = [sys.executable, "-B", str(ROOT / "fuzz/python" / program), *map(str, words)]
    done = subprocess.run(command, input=stdin, capture_output=True)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


class ProgramTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def file(self, name, text):
        path = pathlib.Path(self.folder.name, name)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def refused(self, code, program, *words, **more):
        """It ends with that code, prints nothing and says one line."""
        told = ended(program, *words, **more)
        self.assertEqual((told[0], told[1]), (code, ""), (words, told))
        self.assertRegex(told[2], rf"\A{program.removesuffix('.py')}: .*\n\Z", words)


def measured(**changed):
    """A launch took the kernel 2 ms in the dropped rounds, then 1, 2 and 4 ms, and the peer twice as long."""
    own = [[[2.0, 0.1, 1000], [2.0, 0.1, 1000]]] * 2 + [[[ms, 0.1, 1000]] * 2 for ms in (1.0, 2.0, 4.0)]
    theirs = [[[2 * ms, host, None] for ms, host, _ in pair] for pair in own]
    cell = {"d": 64, "mask": "full", "length": 1024, "flops": 8e11, "kernel": "own", "tile": "64x64x2x4"}
    judged = {"error_over_tolerance": {"own": 0.5, "peer": 1.0}, "bits": {"status": "pass"}}
    return {**cell, **judged, "samples": {"own": own, "peer": theirs}, **changed}


class SpeedTableTest(ProgramTest):
    def test_exit_codes(self):
        about = {"gpu": "x", "driver": "x", "torch": "x", "cudnn": "x", "command": "x", "multiprocessors": 100}
        lines = "\n".join(map(json.dumps, (about, measured(tried_ms={"64x64x2x4": [1.0]}))))
        code, out, err = ended("speed_table.py", self.file("speed.jsonl", lines))
        self.assertEqual((code, err), (0, ""))
        self.assertIn("400 (300 to 600)", out)
        self.refused(69, "speed_table.py", self.folder.name + "/none")
        self.refused(69, "speed_table.py", self.folder.name)
        no_rounds = json.dumps(about) + "\n" + json.dumps(measured(samples={"own": [], "peer": []}))
        for junk in ("", "junk", "{}", "[]\n{}", b"\xff\xfe", '{"gpu": "x"}', lines[:-9], no_rounds):
            self.refused(64, "speed_table.py", self.file("junk", junk))
        self.assertEqual(ended("speed_table.py")[0], 64)
        self.assertIn("attention_speed.py", ended("speed_table.py", "--help")[1])

    def row(self, record):
        text = speed_table.table([({"multiprocessors": 100}, [record])])
        header, _, row = ([word.strip() for word in line.split("|")] for line in text.splitlines() if line[:1] == "|")
        return dict(zip(header, row, strict=True)), text

    def test_medians_and_quartiles_of_the_rounds_that_count(self):
        """8e11 FLOP in 1, 2, 4 ms are 800, 400, 200 TFLOP/s; in 2 ms at 1 GHz on 100 SMs, 4000 an SM and clock."""
        row, text = self.row(measured())
        self.assertEqual(row["own"], "400 (300 to 600)")
        self.assertEqual(row["peer"], "200 (150 to 300)")
        self.assertEqual(row["over peer"], "2.00 (2.00 to 2.00)")
        self.assertEqual((row["MHz"], row["FLOP/SM/clock"], row["output"]), ("1000", "4000", "every bit"))
        self.assertNotIn("host", text)

    def test_tells_what_is_wrong(self):
        wrong_peer = {"error_over_tolerance": {"own": 0.5, "peer": 1.01}}
        for changed, verdict in (
            ({"bits": None}, "float64"),
            ({"bits": {"status": "fail"}}, "bits: FAIL"),
            (wrong_peer, "WRONG: peer"),
        ):
            self.assertEqual(self.row(measured(**changed))[0]["output"], verdict)
            self.assertEqual(speed_table.is_right(measured(**changed)), verdict == "float64")

    def test_tells_a_host_that_is_too_slow(self):
        slow = [[[1.0, 0.95, None]] * 2] * 4
        row, text = self.row(measured(samples={"own": slow}))
        self.assertIn("The host may be what was timed in d 64 full 1024.", text)
        self.assertEqual((row["MHz"], row["FLOP/SM/clock"]), ("", ""))

    def test_tiles_of_each_dim_with_the_best_in_bold(self):
        """8e11 FLOP in 1, 2, 4 ms and in 2, 4, 8 ms; a tile that one cell refuses; a cell with one tile is left out."""
        tried = {"64x64x2x4": [4.0, 1.0, 2.0], "64x32x2x4": [2.0, 4.0, 8.0]}
        cells = [measured(tried_ms=tried), measured(length=4096, tried_ms={**tried, "32x32x2x2": [1.0, 1.0, 1.0]})]
        text = speed_table.tiles_table([*cells, measured(d=128, tried_ms={"64x64x2x4": [1.0]})])
        self.assertIn("| d 64 | full 1024 | full 4096 |", text)
        self.assertIn("| 64x64x2x4 | **400 (200 to 800)** | **400 (200 to 800)** |", text)
        self.assertIn("| 64x32x2x4 | 200 (100 to 400) | 200 (100 to 400) |", text)
        self.assertIn("| 32x32x2x2 | refused | 800 (800 to 800) |", text)
        self.assertNotIn("d 128", text)


SASS = """
		Function : kernel
        /*0000*/                   MOV R1, c[0x0][0x28] ;                  /* 0x00000a0000017a02 */
                                                                           /* 0x000fc40000000f00 */
        /*0010*/                   LDGSTS.E.BYPASS.128 [R85], desc[UR12][R6.64], P0 ;
        /*0020*/                   HMMA.16816.F32.BF16 R4, R8, R12, RZ ;
        /*0030*/               @P0 BRA 0x60 ;
        /*0040*/                   FSEL R4, R4, -INF , P1 ;
        /*0050*/              @!P1 FSEL R5, R5, -INF , P1 ;
        /*0060*/                   IMAD.MOV.U32 R4, RZ, RZ, R5 ;
        /*0070*/                   IMAD.WIDE R4, R4, 0x8, R6 ;
        /*0080*/                   LDL R9, [R1] ;
        /*0090*/                   FMNMX R4, R4, R5, !PT ;
        /*00a0*/                   NOP ;
        /*00b0*/               @P2 BRA 0x10 ;
        /*00c0*/                   EXIT ;
        /*00d0*/                   BRA 0xd0;
"""


class LoopInstructionsTest(ProgramTest):
    def test_exit_codes(self):
        code, out, err = ended("loop_instructions.py", stdin=SASS.encode())
        self.assertEqual((code, err), (0, ""))
        self.assertIn("| kernel | 9 | 9.00 |", out)
        for junk in (b"", b"\xff\xfe", SASS.replace("HMMA", "FFMA").encode()):
            self.refused(64, "loop_instructions.py", stdin=junk)
        self.assertIn("cuobjdump -sass", ended("loop_instructions.py", "--help")[1])
        self.assertEqual(ended("loop_instructions.py", "kernel.cubin")[0], 64)

    def test_counts_what_each_tile_executes(self):
        ((name, code),) = loop_instructions.functions_of(SASS).items()
        loop = loop_instructions.loop_of(code)
        self.assertEqual((name, loop[0].address, loop[-1].address), ("kernel", 0x10, 0xB0))
        counts, blocks = loop_instructions.counts_of(loop)
        self.assertEqual(blocks, [2])
        kinds = {"LDGSTS": 1, "MMA": 1, "moves": 1, "integers": 1, "spills": 1, "FMNMX": 1, "other": 3}
        self.assertEqual({kind: n for kind, n in counts.items() if n}, kinds)

    def test_a_loop_without_tensor_instructions_is_none(self):
        (code,) = loop_instructions.functions_of(SASS.replace("HMMA", "FFMA")).values()
        self.assertEqual(loop_instructions.loop_of(code), [])


class AttentionSpeedTest(unittest.TestCase):
    def test_tiles_of_a_dim(self):
        every = ["16x16x2x1"]
        self.assertEqual(attention_speed.tiles_of(["auto"], 64, every), ["auto"])
        self.assertEqual(attention_speed.tiles_of(["all"], 64, every), every)
        self.assertEqual(attention_speed.tiles_of(["all"], 64, []), ["auto"])
        lists = ["64:64x64x2x4,64x32x2x4", "128:32x32x2x2", "8x8x1x1"]
        self.assertEqual(attention_speed.tiles_of(lists, 64, every), ["64x64x2x4", "64x32x2x4"])
        self.assertEqual(attention_speed.tiles_of(lists, 128, every), ["32x32x2x2"])
        self.assertEqual(attention_speed.tiles_of(lists, 256, every), ["8x8x1x1"])
        self.assertEqual(attention_speed.tiles_of(["128:all"], 128, every), every)
        self.assertEqual(attention_speed.tiles_of(["128:all"], 64, every), ["auto"])

    def exit_code(self, *words):
        code, _, err = ended("attention_speed.py", *words)
        self.assertIn("attention_speed", err)
        return code

    def test_exit_codes(self):
        self.assertEqual(self.exit_code(str(ROOT / "no_such_plugin.so")), 69)
        self.assertEqual(self.exit_code(), 64)
        self.assertEqual(self.exit_code("plugin.so", "--dims", "60"), 64)
        self.assertEqual(self.exit_code("plugin.so", "--rounds", "3"), 64)


class RandomTilesTest(ProgramTest):
    def compiled(self, *configs, failed=0):
        counts = {"count": 9, "refused": 0, "compiled": len(configs), "failed": failed}
        return self.file("compiled.json", json.dumps({"random": {**counts, "configs": configs}}))

    def flashproof(self, code, rejected=""):
        """A stand-in that judges every case alike."""
        lines = [
            "#!/bin/sh",
            'test "$1" = --version && exec echo flashproof 0',
            f'echo \'{{"rejected": "{rejected}"}}\'',
        ]
        path = self.file(f"flashproof-{code}", "\n".join([*lines, f"exit {code}"]) + "\n")
        path.chmod(0o700)
        return path

    def test_exit_codes(self):
        one = {"config": "bf16 64x96x2x4 d64/32 general", "seconds": 1}

        def code(program, *configs, **more):
            return ended("random_tiles.py", program, self.compiled(*configs, **more))[0]

        refuses = self.flashproof(2, "tile 64x96x2x4: padded")
        self.assertEqual([code(self.flashproof(n), one) for n in (0, 1, 69, 70)], [0, 1, 69, 1])
        self.assertEqual(code(self.flashproof(0), one, failed=1), 1)
        self.assertEqual(code(self.flashproof(0)), 2, "nothing ran")
        self.assertEqual(code(refuses, one), 2, "nor here")
        self.assertEqual(code(refuses, one, failed=1), 1)

    def test_refuses_what_is_not_its_input(self):
        right, program = self.compiled(), self.flashproof(0)
        self.refused(69, "random_tiles.py", program, self.folder.name + "/none")
        self.refused(69, "random_tiles.py", program, self.folder.name)
        self.refused(69, "random_tiles.py", self.folder.name + "/none", right)
        for other in ("/bin/true", "/bin/false", self.folder.name, right):
            self.refused(64, "random_tiles.py", other, right)
        odd_config = {"random": {"count": 1, "refused": 0, "compiled": 1, "failed": 0, "configs": [{"config": "odd"}]}}
        no_counts = {"random": {"configs": []}}
        for junk in (
            "",
            "junk",
            "[]",
            "{}",
            '{"random": 1}',
            b"\xff\xfe",
            json.dumps(odd_config),
            json.dumps(no_counts),
        ):
            self.refused(64, "random_tiles.py", program, self.file("junk", junk))
        for words in ((), (program,), (program, right, "--jobs", "0"), (program, right, "--jobs", "x")):
            self.assertEqual(ended("random_tiles.py", *words)[0], 64)

    def test_runs_what_compiled(self):
        configs = [
            {"config": "refused one", "refused": "a warp has 16 or 32 rows"},
            {"config": "failed one", "error": "does not compile"},
            {"config": "compiled one", "seconds": 1.5},
        ]
        self.assertEqual(random_tiles.compiled_in({"configs": configs}), ["compiled one"])

    def test_case_of_a_tile(self):
        case, tile = random_tiles.case_of("e4m3 64x96x2x4 d64/32 general")
        self.assertEqual((case, tile), ("e4m3 h2/1 q131 k293 d64/32 softcap=20 alibi seed=1", "64x96x2x4"))

    def test_outcomes(self):
        def outcome(code, rejected=""):
            return random_tiles.outcome(code, f'{{"rejected": "{rejected}"}}', "64x96x2x4")

        self.assertEqual([outcome(0), outcome(1), outcome(69)], ["right", "wrong", "unavailable"])
        self.assertEqual(outcome(2, "tile 64x96x2x4: the tiles need more shared memory"), "refused when padded")
        self.assertEqual(outcome(2, "the run-time compiler is not here"), "exit 2")
        self.assertEqual(outcome(2), "exit 2")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
