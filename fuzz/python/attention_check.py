"""Whether attention came out right: two heads against float64, and every bit of two through `flashproof verify`.

Tensors are torch's, [B, S, H, d] in index order; lse is [B, H, S].
"""

import ctypes
import json
import math
import os
import subprocess
import tempfile

import torch

from flashproof_kernel import Unavailable

VERIFIED_HEADS = 2
ROWS_AT_ONCE = 1024
DTYPES = {"BF16": torch.bfloat16, "F32": torch.float32}  # safetensors' names


def tolerance(exact, magnitude, length, dim):
    """First order: O and the weights rounded to bf16 (2^-8 each), fp32 sums over keys and channels.

    magnitude is sum_j p_j |v_j|.
    """
    return 2**-8 * exact.abs() + (2**-8 + (length + dim) * 2**-22) * magnitude


def largest_error(q, k, v, o, causal):
    """Of the first entry's first and the last entry's last head, the largest |O - exact| / tolerance; NaN: infinity."""
    batch, length, heads, dim = q.shape
    positions, worst = torch.arange(length, device=q.device), 0.0
    for b, h in ((0, 0), (batch - 1, heads - 1)):
        q64, k64, v64, o64 = (t[b, :, h].double() for t in (q, k, v, o))
        for first in range(0, length, ROWS_AT_ONCE):
            rows = slice(first, first + ROWS_AT_ONCE)
            s = q64[rows] @ k64.T / math.sqrt(dim)
            if causal:
                s.masked_fill_(positions > positions[rows, None], -math.inf)
            p = torch.softmax(s, dim=1)
            exact = p @ v64
            ratio = ((o64[rows] - exact).abs() / tolerance(exact, p @ v64.abs(), length, dim)).max().item()
            worst = max(worst, ratio if math.isfinite(ratio) else math.inf)
    return worst


def read_safetensors(path):
    """The tensors of DTYPES that it holds, by name."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = bytearray(file.read())
    tensors = {}
    for name, entry in header.items():
        if entry.get("dtype") in DTYPES:
            bytes_of_it = data[slice(*entry["data_offsets"])]
            tensors[name] = torch.frombuffer(bytes_of_it, dtype=DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors


def write_safetensors(path, tensors):
    names, header, data = {dtype: name for name, dtype in DTYPES.items()}, {}, bytearray()
    for name, t in tensors.items():
        t = t.contiguous().cpu()
        begin = len(data)
        data += ctypes.string_at(t.data_ptr(), t.numel() * t.element_size())
        header[name] = {"dtype": names[t.dtype], "shape": list(t.shape), "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + data)


class BitCheck:
    """The last entry's last heads as a case of `flashproof gen`: `verify` then predicts every bit of their O and L.

    Raises Unavailable where the program cannot be run, or has no models of this GPU's arithmetic.
    """

    def __init__(self, program, q, k, v, causal, arithmetic, seed):
        """Writes the case's data into q, k and v."""
        _, length, heads, dim = q.shape
        self.program, self.heads, self.directory = program, min(VERIFIED_HEADS, heads), tempfile.TemporaryDirectory()
        self.folder = os.path.join(self.directory.name, "case")
        mask = "causal " if causal else ""
        self.case = f"bf16 h{self.heads} q{length} k{length} d{dim} {mask}data=normal seed={seed}"
        made = self._run("gen", self.case, "-o", self.folder, "--check", "bits", "--arithmetic", arithmetic)
        if made.returncode != 0:
            raise Unavailable(f"{program} gen '{self.case}': {made.stderr.strip()}")
        inputs = read_safetensors(self.folder + "/inputs.safetensors")
        for name, t in (("q", q), ("k", k), ("v", v)):
            t[-1, :, -self.heads :].copy_(inputs[name][0])

    def _run(self, *words):
        try:
            return subprocess.run([self.program, *words], capture_output=True, text=True)
        except OSError as error:
            raise Unavailable(str(error)) from error

    def verdict(self, o, lse, arithmetic):
        """{"case", "status", "judged", ...}: the case, and fields of verify's verdict (fuzz/JSON.md)."""
        write_safetensors(
            self.folder + "/outputs.safetensors", {"o": o[-1:, :, -self.heads :], "lse": lse[-1:, -self.heads :]}
        )
        told = self._run("verify", self.folder, "--json", "--arithmetic", arithmetic)
        try:
            return {"case": self.case, **json.loads(told.stdout)["verdicts"][0]}
        except (ValueError, KeyError, IndexError):
            raise Unavailable(f"{self.program} verify '{self.case}': {told.stderr.strip()}") from None
