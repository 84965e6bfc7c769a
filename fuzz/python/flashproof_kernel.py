"""kernels/flashproof_kernel.h for Python: its structs by ctypes, a plug-in loaded, a plain forward called.

Tensors are addresses, so that any library's arrays will do; nothing but Python itself is needed. What the header says
of a field holds here too. tests/fuzz/python_test.py compares names, offsets, types and constants with a C
compiler's.
"""

import ctypes
import math
import os

ABI = 1
FP32, BF16, FP16, E4M3, E5M2, INT32 = range(6)
HOST, CUDA = range(2)
OK, REJECTED, ERROR = range(3)
MESSAGE_BYTES = 1024

_int32, _uint32, _int64, _uint64 = ctypes.c_int32, ctypes.c_uint32, ctypes.c_int64, ctypes.c_uint64
_float, _size, _text, _address = ctypes.c_float, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_void_p


def _fields(kind, names):
    return [(name, kind) for name in names.split()]


class Tensor(ctypes.Structure):
    _fields_ = _fields(_address, "data") + _fields(_int32, "dtype memory rank") + _fields(_int64 * 4, "shape stride")


class Integers(ctypes.Structure):
    _fields_ = _fields(_address, "data host") + _fields(_int64, "length")


class Conventions(ctypes.Structure):
    _fields_ = _fields(_int32, "empty_o empty_lse lse_base tail dropout saturates bears_hidden_nan deterministic")


class Problem(ctypes.Structure):
    _fields_ = (
        _fields(_uint32, "struct_size")
        + _fields(_int32, "dtype out_dtype")
        + _fields(_int64, "batch heads kv_heads head_dim value_dim max_seq_q max_seq_k total_q total_k")
        + _fields(_int32, "packed_q packed_k used_q used_k")
        + _fields(_int64, "page_size")
        + _fields(_float, "scale")
        + _fields(_int32, "causal top_left")
        + _fields(_int64, "window_left window_right")
        + _fields(_float, "softcap")
        + _fields(_int32, "alibi bias sink descale")
        + _fields(_float, "dropout_rate")
        + _fields(_uint64, "dropout_seed")
        + _fields(_int32, "backward")
    )


class Call(ctypes.Structure):
    _fields_ = (
        _fields(_uint32, "struct_size")
        + _fields(ctypes.POINTER(Problem), "problem")
        + _fields(Tensor, "q k v o lse d_o dq dk dv bias dbias slopes sink dsink q_descale k_descale v_descale")
        + _fields(Integers, "cu_seqlens_q cu_seqlens_k seqused_q seqused_k page_table")
        + _fields(_address, "workspace")
        + _fields(_size, "workspace_size")
    )


_Launch = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Call), _text, _address, _address, _size)


class Kernel(ctypes.Structure):
    _fields_ = (
        _fields(_uint32, "struct_size abi")
        + _fields(_text, "name version")
        + _fields(_int32, "memory")
        + _fields(_uint32, "dtypes")
        + _fields(_uint64, "features")
        + _fields(_int64, "max_head_dim head_dim_multiple")
        + _fields(Conventions, "conventions")
        + _fields(_text, "tunables")
        + _fields(ctypes.CFUNCTYPE(_text, ctypes.POINTER(Problem), _text), "arithmetic")
        + _fields(ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Problem), _text, _address, _size), "supports")
        + _fields(ctypes.CFUNCTYPE(_size, ctypes.POINTER(Problem), _text), "workspace_size")
        + _fields(_Launch, "forward backward")
    )


class Unavailable(Exception):
    """The plug-in is not here or cannot be loaded."""


class Refused(Exception):
    """The kernel does not take this problem, config or call; the message is its own."""


def tensor(address, dtype, memory, shape, stride):
    """At most four axes; strides in elements."""
    return Tensor(address, dtype, memory, len(shape), (_int64 * 4)(*shape), (_int64 * 4)(*stride))


def plain_problem(dtype, batch, heads, length, head_dim, causal):
    """As many keys as queries and kv heads as heads, the scale 1/sqrt(head_dim), no modifier."""
    return Problem(
        struct_size=ctypes.sizeof(Problem),
        dtype=dtype,
        out_dtype=dtype,
        batch=batch,
        heads=heads,
        kv_heads=heads,
        head_dim=head_dim,
        value_dim=head_dim,
        max_seq_q=length,
        max_seq_k=length,
        total_q=batch * length,
        total_k=batch * length,
        scale=1 / math.sqrt(head_dim),
        causal=int(causal),
        window_left=-1,
        window_right=-1,
    )


class Plugin:
    """A kernel in a shared library. Problems and calls that are passed in must outlive what they are passed to."""

    def __init__(self, path):
        try:
            entry = ctypes.CDLL(os.path.abspath(path)).flashproof_kernel_entry
        except (OSError, AttributeError) as error:
            raise Unavailable(f"cannot load {path}: {error}") from error
        entry.argtypes, entry.restype = [ctypes.c_uint32], ctypes.POINTER(Kernel)
        table = entry(ABI)
        if not table or table.contents.struct_size != ctypes.sizeof(Kernel):
            raise Unavailable(f"{path} was built for another flashproof_kernel.h")
        self.kernel = table.contents
        self.name = self.kernel.name.decode()

    def values(self, tunable):
        """The words that its tunables list for one of them, as text: ["64x64x2x4", "128x64x2x8"]."""
        for word in (self.kernel.tunables or b"").decode().split():
            name, _, values = word.partition("=")
            if name == tunable:
                return values.split(",")
        return []

    def reason_against(self, problem, config=""):
        """None where the kernel takes the problem."""
        message = ctypes.create_string_buffer(MESSAGE_BYTES)
        status = self.kernel.supports(ctypes.byref(problem), config.encode(), message, MESSAGE_BYTES)
        return None if status == OK else message.value.decode()

    def arithmetic(self, problem, config=""):
        """The declared Arithmetic in the words of reference/arithmetic.h; empty where there is none."""
        if not self.kernel.arithmetic:
            return ""
        return (self.kernel.arithmetic(ctypes.byref(problem), config.encode()) or b"").decode()

    def forward(self, problem, q, k, v, o, lse, config=""):
        """A function of a stream's handle that launches the kernel on these tensors, raising Refused or RuntimeError.

        Raises Refused itself where the kernel does not take the problem or wants a workspace.
        """
        reason = self.reason_against(problem, config)
        if reason is None and self.kernel.workspace_size and self.kernel.workspace_size(problem, config.encode()) > 0:
            reason = "it wants a workspace"
        if reason is not None:
            raise Refused(reason)
        call = Call(struct_size=ctypes.sizeof(Call), problem=ctypes.pointer(problem), q=q, k=k, v=v, o=o, lse=lse)
        message = ctypes.create_string_buffer(MESSAGE_BYTES)
        call_by_reference, config_bytes, function = ctypes.byref(call), config.encode(), self.kernel.forward

        def launch(stream=0):
            status = function(call_by_reference, config_bytes, stream, message, MESSAGE_BYTES)
            if status != OK:
                raise (Refused if status == REJECTED else RuntimeError)(f"{self.name}: {message.value.decode()}")

        return launch
