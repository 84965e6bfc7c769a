#!/usr/bin/env python3
"""Outside witnesses: small attention cases computed in float64 by the code of other projects.

Writes golden.jsonl beside this file, one case a line (the fields stand in README.md). Each case states, by project,
version and function, who computed it:

  flex     torch.nn.attention.flex_attention, eager; gradients by autograd through math_attention, the function it runs
  sdpa     torch.nn.functional.scaled_dot_product_attention, math backend; gradients by autograd
  fa       flash_attn.cute.testing.attention_ref, the reference in FlashAttention's own tests, with upcast=False; causal
           and window are its construct_local_mask; gradients by autograd
  gpt_oss  transformers.models.gpt_oss.modeling_gpt_oss.eager_attention_forward (the attention sink); gradients by
           autograd
  onnx     onnx.reference.ReferenceEvaluator, operator Attention of opset 25, with its own causal, window, softcap and
           group mapping; output only

Every witness that can state a case computes it, and the script stops if two of them differ by more than LIMIT times
the magnitude of the sum behind the number (see `magnitudes`). What a witness lacks is given to it as its callers do:
ALiBi, and for sdpa and gpt_oss masks too, as an additive mask; the sink for flex as one more column whose score is the
sink and whose value is 0.

Inputs are normal numbers rounded to the case's dtype, so their float64 values are exact; scale, softcap, slopes, sinks
and bias are fp32 numbers.
"""

import collections
import importlib.metadata
import importlib.util
import itertools
import json
import math
import pathlib
import warnings
import zlib

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from torch.nn.attention import SDPBackend, flex_attention as flex_module, sdpa_kernel
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, create_mask, flex_attention
from torch._higher_order_ops.flex_attention import math_attention
from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward

LIMIT = 1e-14
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
FUNCTIONS = {
    "flex": ("torch", "flex_attention"),
    "sdpa": ("torch", "scaled_dot_product_attention"),
    "fa": ("flash-attn-4", "attention_ref"),
    "gpt_oss": ("transformers", "gpt_oss eager_attention_forward"),
    "onnx": ("onnx", "ReferenceEvaluator Attention-25"),
}

warnings.filterwarnings("ignore")
flex_module._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = True  # run eagerly: no torch.compile between us and the formulas


def load_attention_ref():
    """attention_ref by its file: importing the package flash_attn.cute itself needs a GPU's libraries."""
    files = importlib.metadata.files("flash-attn-4")
    path = next(f for f in files if str(f) == "flash_attn/cute/testing.py").locate()
    spec = importlib.util.spec_from_file_location("flash_attn_testing", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.attention_ref


attention_ref = load_attention_ref()


def fp32(x):
    return float(np.float32(x))


# --- The cases ----------------------------------------------------------------------------------------------------


def all_cases():
    """Every case as a dict; `add` fills in what a family does not set."""
    cases = []

    def add(name, seq_q=(4,), seq_k=(5,), heads=2, kv_heads=1, d=2, dv=None, **settings):
        case = dict(id=name, dtype="fp16" if len(cases) % 4 == 3 else "bf16", batch=len(seq_q), heads=heads,
                    kv_heads=kv_heads, seq_q=list(seq_q), seq_k=list(seq_k), head_dim=d, value_dim=dv or d,
                    scale=1 / math.sqrt(d), causal=False, top_left=False, window_left=None, window_right=None,
                    softcap=0.0, slopes=None, sinks=None, bias_shape=None, hidden=0.0, spread=1.5, backward=True)
        unknown = set(settings) - set(case)
        assert not unknown, unknown
        case.update(settings)
        case["scale"], case["softcap"] = fp32(case["scale"]), fp32(case["softcap"])
        for key in ("slopes", "sinks"):
            case[key] = None if case[key] is None else [fp32(x) for x in case[key]]
        cases.append(case)

    def alignments():
        return (("bottom", False), ("top", True))

    for q, k in ((1, 1), (1, 5), (5, 1), (2, 3), (3, 2), (4, 4), (6, 7), (12, 12)):
        add(f"full_{q}x{k}", (q,), (k,), heads=1)
    for d in (1, 3, 4, 5, 8):
        add(f"full_d{d}", (3,), (4,), heads=1, d=d)
    for spread in (0, 6, 20):
        add(f"full_spread{spread}", spread=spread)

    for (q, k), (side, top) in itertools.product(
            ((1, 5), (5, 1), (4, 4), (3, 6), (6, 3), (2, 7), (7, 2), (5, 6), (6, 5)), alignments()):
        add(f"causal_{side}_{q}x{k}", (q,), (k,), heads=1, causal=True, top_left=top, d=2 if k < 6 else 3)

    for n, ((left, right), (side, top)) in enumerate(itertools.product(
            ((0, 0), (1, 0), (0, 1), (2, 1), (1, 2), (None, 0), (0, None), (2, None), (None, 2), (9, 9)),
            alignments())):
        q, k = ((5, 5), (3, 6), (6, 4))[n // 2 % 3]
        add(f"window_{left}_{right}_{side}_{q}x{k}", (q,), (k,), heads=1, window_left=left, window_right=right,
            top_left=top)
    for n, ((left, right), (side, top)) in enumerate(itertools.product(
            ((0, None), (1, None), (3, 0), (1, 3), (None, 1), (2, 2)), alignments())):
        q, k = ((3, 5), (5, 5), (5, 3))[n // 2 % 3]
        add(f"causal_window_{left}_{right}_{side}_{q}x{k}", (q,), (k,), heads=1, causal=True, window_left=left,
            window_right=right, top_left=top)

    for heads, kv_heads in ((1, 1), (2, 2), (2, 1), (4, 2), (3, 1), (6, 2), (4, 1), (8, 1)):
        for causal in (False, True):
            add(f"gqa_{heads}_{kv_heads}_{'causal' if causal else 'full'}", (2,), (3,), heads=heads, kv_heads=kv_heads,
                causal=causal, backward=heads < 6 or causal)

    for d, dv in ((2, 3), (4, 1), (1, 4), (3, 5), (8, 2), (2, 8), (5, 4)):
        add(f"value_dim_{d}_{dv}", (3,), (4,), heads=1, d=d, dv=dv, causal=d < dv)

    for n, ((q, k), (side, top)) in enumerate(itertools.product(((4, 4), (2, 6), (5, 3)), alignments())):
        add(f"alibi_{side}_{q}x{k}", (q,), (k,), slopes=(0.5, 0.3), top_left=top)
        add(f"alibi_causal_{side}_{q}x{k}", (q,), (k,), slopes=(0.0625, 1.7), top_left=top, causal=True, backward=n < 4)
    add("alibi_per_batch", (3, 2), (4, 5), slopes=(0.25, 0.1, 2.0, 0.7))
    add("alibi_negative_and_zero", (3,), (4,), slopes=(-0.4, 0.0))

    for n, cap in enumerate((0.5, 1, 3, 10, 50)):
        for causal in (False, True):
            add(f"softcap_{cap}_{'causal' if causal else 'full'}", (3,), (4,), softcap=cap, causal=causal,
                spread=3, backward=causal or n % 2 == 0)

    for shape in itertools.product((1, 2), (1, 2), (1, 3), (1, 4)):
        name = "x".join(map(str, shape))
        add(f"bias_{name}", (3, 3), (4, 4), bias_shape=shape)
        if shape != (1, 1, 1, 1):
            add(f"bias_hidden_{name}", (3, 2), (4, 3), bias_shape=shape, hidden=0.3, causal=shape[0] == 2)
    add("bias_causal_scores_of_heads", (4,), (4,), bias_shape=(1, 2, 4, 4), causal=True)

    for n, sink in enumerate((-30, -2, 0, 1.5, 10)):
        add(f"sink_{sink}", (3,), (4,), sinks=(sink, sink + 0.3))
        add(f"sink_{sink}_causal", (4,), (3,), sinks=(sink, 0.7), causal=True, top_left=n % 2 == 1)
    add("sink_group3", (2,), (3,), heads=3, kv_heads=1, sinks=(0.5, -1, 2))
    add("sink_window", (5,), (5,), sinks=(0.5, -1), window_left=1, window_right=0)
    add("sink_every_row_empty", (3,), (2,), sinks=(0.5, -1), bias_shape=(1, 1, 1, 1), hidden=1.0)
    add("sink_lengths", (1, 3, 2), (4, 2, 3), sinks=(0.5, -1), causal=True)
    add("sink_zero_keys", (2, 2), (0, 3), sinks=(0.5, -1))
    add("sink_softcap", (3,), (4,), sinks=(0.5, 2), softcap=2, spread=3)
    add("sink_alibi_bias", (3,), (4,), sinks=(0.5, 2), slopes=(0.3, 0.6), bias_shape=(1, 2, 1, 4))
    add("sink_value_dim", (3,), (4,), sinks=(1, 2), dv=5)

    for scale in (0.1, 1.0, 0.25, 3.0, 2.0**-6, -0.5, 0.0):
        add(f"scale_{scale}", (3,), (4,), scale=scale)
    add("scale_3_causal_softcap", (3,), (4,), scale=3, softcap=4, causal=True)

    for n, (q, k) in enumerate((((1, 3), (4, 2)), ((2, 1, 3), (2, 3, 1)), ((4, 1), (1, 5)),
                                ((1, 1, 1, 1), (1, 2, 3, 5)))):
        add(f"lengths_{n}_full", q, k, heads=1)
        add(f"lengths_{n}_causal", q, k, causal=True, backward=n < 2)
        add(f"lengths_{n}_window_top", q, k, heads=1, window_left=1, window_right=1, top_left=True)
    add("lengths_zero_queries", (0, 2), (3, 2), heads=1)
    add("lengths_zero_keys", (2, 2), (0, 3), heads=1)

    for n, ((side, top), (left, right), cap, group) in enumerate(itertools.product(
            alignments(), ((2, 0), (1, 1), (None, 2)), (0.8, 15), (1, 2, 3))):
        q, k = (((3,), (4,)), ((4,), (3,)), ((2, 3), (4, 3)))[n % 3] if group < 3 else ((2,), (3,))
        add(f"combined_{side}_{left}_{right}_cap{cap}_group{group}", q, k, heads=group, kv_heads=1,
            causal=n % 4 != 3, top_left=top, window_left=left, window_right=right, softcap=cap, spread=2,
            slopes=[0.2 + 0.15 * i for i in range(group * len(q))],
            bias_shape=(1, group, 1, max(k)) if n % 5 == 0 else None, sinks=[0.4] * group if n % 7 == 0 else None,
            backward=n % 3 == 0)

    random = np.random.RandomState(3)
    maybe = lambda chance, draw: draw() if random.random_sample() < chance else None
    integer = lambda low, high: int(random.randint(low, high + 1))
    for n in range(40):
        batch, kv_heads, group, d = integer(1, 2), integer(1, 2), integer(1, 3), integer(1, 8)
        q, k = ([integer(1, 9) for _ in range(batch)] for _ in range(2))
        h = kv_heads * group
        shape = [(1, size)[integer(0, 1)] for size in (batch, h, max(q), max(k))]
        add(f"mixed_{n}", q, k, heads=h, kv_heads=kv_heads, d=d, dv=maybe(0.4, lambda: integer(1, 8)),
            scale=maybe(0.3, lambda: 0.7 * random.random_sample()) or 1 / math.sqrt(d), causal=integer(0, 1) == 1,
            top_left=integer(0, 2) == 0, window_left=maybe(0.4, lambda: integer(0, 4)),
            window_right=maybe(0.3, lambda: integer(0, 4)), softcap=maybe(0.3, lambda: 6 * random.random_sample()) or 0,
            slopes=maybe(0.3, lambda: random.random_sample(h)), sinks=maybe(0.3, lambda: 2 * random.standard_normal(h)),
            bias_shape=maybe(0.4, lambda: shape), hidden=(0.0, 0.2)[integer(0, 1)], backward=h * d <= 24)
    return cases


def make_inputs(case):
    """Random inputs as float64 leaves: q, k, v, d_o packed [sum S, heads, dim]; bias; sinks. Fixed by the case's id."""
    random = np.random.RandomState(zlib.crc32(case["id"].encode()))

    def draw(rows, heads, dim, spread):
        return torch.from_numpy(random.standard_normal((rows, heads, dim)) * spread).to(DTYPES[case["dtype"]])

    queries, keys = sum(case["seq_q"]), sum(case["seq_k"])
    low = dict(q=draw(queries, case["heads"], case["head_dim"], case["spread"]),
               k=draw(keys, case["kv_heads"], case["head_dim"], 1),
               v=draw(keys, case["kv_heads"], case["value_dim"], 1),
               d_o=draw(queries, case["heads"], case["value_dim"], 1))
    bits = {name: [int(x) & 0xFFFF for x in t.view(torch.int16).flatten()] for name, t in low.items()}
    x = {name: t.to(torch.float64) for name, t in low.items()}
    x["bias"] = x["sinks"] = None
    if case["bias_shape"]:
        bias = random.standard_normal(case["bias_shape"]).astype(np.float32).astype(np.float64)
        bias[random.random_sample(case["bias_shape"]) < case["hidden"]] = -np.inf
        x["bias"] = torch.from_numpy(bias)
    if case["sinks"]:
        x["sinks"] = torch.tensor(case["sinks"], dtype=torch.float64)
    for name in ("q", "k", "v", "bias", "sinks"):
        if x[name] is not None:
            x[name].requires_grad_()
    return bits, x


# --- One batch entry, as each witness wants it --------------------------------------------------------------------


def entries(case, x):
    """Per batch entry: its q, k, v as [1, heads, S, dim], its bias, its slopes and off of |i + off - j|."""
    q_ends, k_ends = np.cumsum([0] + case["seq_q"]), np.cumsum([0] + case["seq_k"])
    for b, (sq, sk) in enumerate(zip(case["seq_q"], case["seq_k"])):
        pick = lambda t, ends: t[ends[b]:ends[b + 1]].transpose(0, 1).unsqueeze(0)
        bias = x["bias"]
        if bias is not None:
            bias = bias[b:b + 1] if bias.shape[0] > 1 else bias
            bias = bias[:, :, :sq] if bias.shape[2] > 1 else bias
            bias = bias[..., :sk] if bias.shape[3] > 1 else bias
        slopes = case["slopes"]
        if slopes is not None:
            slopes = torch.tensor(slopes, dtype=torch.float64).reshape(-1, case["heads"])
            slopes = slopes[b % len(slopes)]
        yield dict(sq=sq, sk=sk, q=pick(x["q"], q_ends), k=pick(x["k"], k_ends), v=pick(x["v"], k_ends), bias=bias,
                   slopes=slopes, off=0 if case["top_left"] else sk - sq)


def mask_mod_of(case, entry):
    """Causal and window as flex_attention's mask_mod (true: visible); None if every key is visible."""
    left, right, off = case["window_left"], case["window_right"], entry["off"]
    if not case["causal"] and left is None and right is None:
        return None

    def mask_mod(b, h, i, j):
        seen = j >= 0
        if case["causal"]:
            seen = seen & (j <= i + off)
        if left is not None:
            seen = seen & (j >= i + off - left)
        if right is not None:
            seen = seen & (j <= i + off + right)
        return seen

    return mask_mod


def added_scores(entry, heads):
    """ALiBi and bias as one additive tensor [1, heads, Sq, Sk], or None."""
    if entry["bias"] is None and entry["slopes"] is None:
        return None
    total = torch.zeros(1, heads, entry["sq"], entry["sk"], dtype=torch.float64)
    if entry["slopes"] is not None:
        i, j = torch.arange(entry["sq"]).unsqueeze(1), torch.arange(entry["sk"])
        total = total - entry["slopes"].reshape(1, -1, 1, 1) * (i + entry["off"] - j).abs()
    return total if entry["bias"] is None else total + entry["bias"]


def additive_mask(case, entry):
    """Everything that is added to the scores, masks as -inf, [1, heads, Sq, Sk]; None if nothing is."""
    total, mask_mod = added_scores(entry, case["heads"]), mask_mod_of(case, entry)
    if mask_mod is None:
        return total
    seen = create_mask(mask_mod, None, None, entry["sq"], entry["sk"], device="cpu")
    total = torch.zeros(1, case["heads"], entry["sq"], entry["sk"], dtype=torch.float64) if total is None else total
    return total.masked_fill(~seen, -math.inf)


# --- The witnesses: each gives O [Sq, heads, value_dim] and L [Sq, heads] or None of one entry --------------------


def rows(t):
    return t.squeeze(0).transpose(0, 1)


def witness_flex(case, entry, x):
    sk, off, cap, bias, slopes, sinks = (entry["sk"], entry["off"], case["softcap"], entry["bias"], entry["slopes"],
                                         x["sinks"])
    visible = mask_mod_of(case, entry) or (lambda b, h, i, j: j >= 0)
    k, v, mask_mod = entry["k"], entry["v"], visible
    if sinks is not None:
        pad = lambda t: torch.nn.functional.pad(t, (0, 0, 0, 1))
        k, v, mask_mod = pad(k), pad(v), lambda b, h, i, j: visible(b, h, i, j) | (j == sk)

    def score_mod(score, b, h, i, j):
        if cap > 0:
            score = cap * torch.tanh(score / cap)
        if slopes is not None:
            score = score - slopes[h] * (i + off - j).abs()
        if bias is not None and sk > 0:
            at = [n.clamp(max=size - 1) for n, size in zip((b, h, i, j), bias.shape)]
            score = score + bias[at[0], at[1], at[2], at[3]]
        return score if sinks is None else torch.where(j == sk, sinks[h], score)

    block_mask = create_block_mask(mask_mod, None, None, entry["sq"], k.shape[2], device="cpu")
    with torch.no_grad():
        o, aux = flex_attention(entry["q"].detach(), k.detach(), v.detach(), score_mod, block_mask, case["scale"],
                                enable_gqa=True, return_aux=AuxRequest(lse=True))
    out, _, _ = math_attention(entry["q"], k, v, score_mod, block_mask.as_tuple(), case["scale"], {})
    assert torch.equal(o, out), case["id"]  # the differentiable path is what the public function ran
    return rows(out), rows(aux.lse if entry["sq"] else out[..., 0])  # it gives no lse where there are no queries


def witness_sdpa(case, entry, x):
    plain_top_left = (case["causal"] and entry["off"] == 0 and case["window_left"] is None
                      and case["window_right"] is None and added_scores(entry, case["heads"]) is None)
    with sdpa_kernel(SDPBackend.MATH):
        o = torch.nn.functional.scaled_dot_product_attention(
            entry["q"], entry["k"], entry["v"], None if plain_top_left else additive_mask(case, entry),
            is_causal=plain_top_left, scale=case["scale"], enable_gqa=True)
    return rows(o), None


def witness_fa(case, entry, x):
    # attention_ref always scales by 1/sqrt(d): the case's scale over that goes into q.
    q = entry["q"] * (case["scale"] * math.sqrt(case["head_dim"]))
    swap = lambda t: t.transpose(1, 2)
    o, _, lse = attention_ref(swap(q), swap(entry["k"]), swap(entry["v"]), causal=case["causal"],
                              window_size=(case["window_left"], case["window_right"]), softcap=case["softcap"],
                              attn_bias=added_scores(entry, case["heads"]), upcast=False, return_lse=True)
    return o.squeeze(0), rows(lse)


def witness_gpt_oss(case, entry, x):
    module = torch.nn.Module()
    module.num_key_value_groups, module.sinks = case["heads"] // case["kv_heads"], x["sinks"]
    o, _ = eager_attention_forward(module, entry["q"], entry["k"], entry["v"], additive_mask(case, entry),
                                   case["scale"])
    return o.squeeze(0), None


def witness_onnx(case, entry, x):
    """Bottom-right alignment is ONNX's static cache: nonpad_kv_seqlen = Sk; without it, top-left.

    The evaluator takes the square root of the scale in fp32: the scale goes into q and the operator gets 1."""
    inputs = dict(Q=entry["q"] * case["scale"], K=entry["k"], V=entry["v"])
    added = added_scores(entry, case["heads"])
    if added is not None:
        inputs["mask"] = added
    inputs = {name: t.detach().numpy() for name, t in inputs.items()}
    names = ["Q", "K", "V", "mask" if "mask" in inputs else "", "", "", ""]
    types = dict.fromkeys(inputs, TensorProto.DOUBLE)
    if not case["top_left"]:
        names[6], types["used"], inputs["used"] = "used", TensorProto.INT64, np.array([entry["sk"]], dtype=np.int64)
    window = {name + "_size": case[key] for name, key in
              (("left_window", "window_left"), ("right_window", "window_right")) if case[key] is not None}
    node = helper.make_node("Attention", names, ["Y"], scale=1.0, softcap=case["softcap"],
                            is_causal=int(case["causal"]), **window)
    graph = helper.make_graph([node], "attention", [helper.make_tensor_value_info(n, types[n], None) for n in inputs],
                              [helper.make_tensor_value_info("Y", TensorProto.DOUBLE, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)])
    (o,) = ReferenceEvaluator(model).run(["Y"], inputs)
    return rows(torch.from_numpy(o)), None


WITNESSES = {"flex": witness_flex, "sdpa": witness_sdpa, "fa": witness_fa, "gpt_oss": witness_gpt_oss,
             "onnx": witness_onnx}


def flex_defines(case):
    """flex takes a maximum over the keys, so there must be one; the sink is its column."""
    return bool(case["sinks"]) or 0 not in case["seq_k"]


def witnesses_of(case, has_empty_row):
    """The names of the witnesses that can state the case and define its every number."""
    names = ["flex"] if flex_defines(case) else []
    if case["sinks"]:
        return names + ([] if case["softcap"] or 0 in case["seq_k"] else ["gpt_oss"])
    if not case["softcap"]:
        names.append("sdpa")
    if not case["top_left"] and not has_empty_row and 0 not in case["seq_q"] + case["seq_k"]:
        names.append("fa")
    if 0 not in case["seq_q"] + case["seq_k"]:
        names.append("onnx")
    return names


def evaluate(name, case, x):
    """All outputs of a case by one witness, packed: o, l and, where it is differentiable, the gradients."""
    parts = [WITNESSES[name](case, entry, x) for entry in entries(case, x)]
    result = dict(o=torch.cat([o for o, _ in parts]))
    if all(l is not None for _, l in parts):
        result["l"] = torch.cat([l for _, l in parts])
    if name != "onnx" and case["backward"]:
        leaves = [n for n in ("q", "k", "v", "bias", "sinks") if x[n] is not None]
        grads = torch.autograd.grad(result["o"], [x[n] for n in leaves], x["d_o"], allow_unused=True)
        for leaf, grad in zip(leaves, grads):
            key = {"sinks": "dsink"}.get(leaf, "d" + leaf)
            result[key] = torch.zeros_like(x[leaf]) if grad is None else grad
    return {key: t.detach() for key, t in result.items()}


def magnitudes(case, x, l):
    """For each output a bound on the sum of absolute values behind it: what a rounding error is relative to.

    sum_j p_ij = 1, so |O| <= max|v| and |g|, |D| <= dv max|dO| max|v|; the sums of dK, dV, dbias and dsink run over at
    most all query rows and heads."""
    top = lambda t: float(t.detach().abs().max()) if t.numel() else 0.0
    g = 2 * case["value_dim"] * top(x["d_o"]) * top(x["v"])
    n = max(1, sum(case["seq_q"])) * case["heads"]
    finite = l[torch.isfinite(l)] if l is not None else torch.zeros(0)
    scores = abs(case["scale"]) * case["head_dim"] * top(x["q"]) * top(x["k"])
    growth = 1 + scores  # d exp(s) = exp(s) ds, and ds is relative to the scores' own magnitude
    size = dict(o=top(x["v"]), l=1 + top(finite), dq=abs(case["scale"]) * g * top(x["k"]),
                dk=abs(case["scale"]) * g * top(x["q"]) * n, dv=top(x["d_o"]) * n, dbias=g * n, dsink=g * n)
    return {key: value * growth for key, value in size.items()}


# --- Writing ------------------------------------------------------------------------------------------------------


def hex_text(value):
    """C's %a without trailing zeros; infinities as inf and -inf."""
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    mantissa, exponent = float(value).hex().split("p")
    return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}p{exponent}"


def hex_list(values):
    return None if values is None else [hex_text(float(v)) for v in values]


def title(name):
    project, function = FUNCTIONS[name]
    return f"{project} {importlib.metadata.version(project)} {function}"


def record(case, bits, x, results, chosen):
    """The JSON object of one case. L is the chosen witness's own if it gives one, else flex_attention's."""
    expected = dict(results[chosen])
    l_by = next((name for name in (chosen, "flex") if "l" in results.get(name, {})), None)
    expected["l"] = results[l_by]["l"] if l_by else None
    plain = ("id", "dtype", "batch", "heads", "kv_heads", "seq_q", "seq_k", "head_dim", "value_dim", "causal",
             "top_left", "window_left", "window_right")
    line = {key: case[key] for key in plain}
    line.update(scale=hex_text(case["scale"]), softcap=hex_text(case["softcap"]), slopes=None,
                sinks=hex_list(case["sinks"]), bias=None)
    if case["slopes"] is not None:
        line["slopes"] = hex_list(case["slopes"] * (case["batch"] * case["heads"] // len(case["slopes"])))
    if case["bias_shape"]:
        line["bias"] = dict(shape=list(case["bias_shape"]), values=hex_list(x["bias"].detach().flatten()))
    line.update(bits)
    for key in ("o", "l", "dq", "dk", "dv", "dbias", "dsink"):
        line[key] = None if expected.get(key) is None else hex_list(expected[key].flatten())
    line.update(witness=title(chosen), witness_l=title(l_by) if l_by else None,
                agreeing=sorted(set(results) - {chosen}))
    return line


def compare(case, results, sizes, worst):
    """Every pair of witnesses on every output that both give; keeps the largest ratio a pair and output."""
    for a, b in itertools.combinations(results, 2):
        for key in results[a].keys() & results[b].keys():
            s, t = results[a][key], results[b][key]
            assert s.shape == t.shape, (case["id"], a, b, key)
            difference = torch.where(s == t, 0.0, (s - t).abs())  # equal infinities differ by nothing
            ratio = float(difference.max()) / sizes[key] if difference.numel() and difference.any() else 0.0
            assert ratio <= LIMIT, f"{case['id']}: {a} and {b} differ in {key} by {ratio:.1e} of its magnitude"
            worst[a, b, key] = max(worst[a, b, key], ratio)


def main():
    worst, counts = collections.defaultdict(float), collections.Counter()
    path = pathlib.Path(__file__).with_name("golden.jsonl")
    cases = all_cases()
    assert len({case["id"] for case in cases}) == len(cases)
    with path.open("w") as out:
        for n, case in enumerate(cases):
            bits, x = make_inputs(case)
            flex = evaluate("flex", case, x) if flex_defines(case) else None
            empty = flex is not None and not case["sinks"] and bool(torch.isinf(flex["l"]).any())
            results = {name: flex if name == "flex" else evaluate(name, case, x) for name in witnesses_of(case, empty)}
            for name, result in results.items():
                for key, t in result.items():
                    assert not torch.isnan(t).any(), (case["id"], name, key)
            compare(case, results, magnitudes(case, x, flex and flex["l"]), worst)
            full = [name for name in results if name != "onnx" or not case["backward"]]
            chosen = full[n % len(full)]
            line = record(case, bits, x, results, chosen)
            out.write(json.dumps(line, separators=(",", ":")) + "\n")
            counts.update([f"by {chosen}"] + [f"computed by {len(results)}"] + features(line))
    for (a, b, key), ratio in sorted(worst.items()):
        print(f"{a:8} {b:8} {key:6} largest difference {ratio:.1e}")
    for name, count in sorted(counts.items()):
        print(f"{count:4} {name}")
    print(f"{len(cases)} cases, {path.stat().st_size} bytes")


def features(line):
    """The words under which a case is counted."""
    words = [line["dtype"], f"group {line['heads'] // line['kv_heads']}"]
    masks = line["causal"] or line["window_left"] is not None or line["window_right"] is not None
    words += [("causal" if line["causal"] else "window") + (" top-left" if line["top_left"] else " bottom-right")
              ] if masks else ["no mask"]
    tests = dict(gradients=line["dq"], window=line["window_left"] is not None or line["window_right"] is not None,
                 alibi=line["slopes"], softcap=line["softcap"] != "0x0p+0", bias=line["bias"], sink=line["sinks"],
                 batches=line["batch"] > 1, dsink=line["dsink"], dbias=line["dbias"])
    tests["value dim != head dim"] = line["value_dim"] != line["head_dim"]
    tests["bias with -inf"] = line["bias"] and "-inf" in line["bias"]["values"]
    tests["empty rows"] = line["l"] and "-inf" in line["l"]
    tests["lengths differ"] = len(set(zip(line["seq_q"], line["seq_k"]))) > 1
    return words + [word for word, present in tests.items() if present]


if __name__ == "__main__":
    main()
