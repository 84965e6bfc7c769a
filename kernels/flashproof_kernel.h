/* Flashproof's kernel interface: all that a plug-in needs (C99).
 *
 * A plug-in is a shared library that exports one function,
 *
 *     const flashproof_kernel* flashproof_kernel_entry(uint32_t abi);
 *
 * which returns a table of functions, or NULL for an ABI it does not know. A minimal one, for a kernel that does the
 * plain bf16 forward on a GPU:
 *
 *     #include "flashproof_kernel.h"
 *     static const flashproof_kernel kernel;
 *     static flashproof_status supports(const flashproof_problem* p, const char* config, char* why, size_t n) {
 *       return flashproof_check_problem(&kernel, p, why, n);
 *     }
 *     static flashproof_status forward(const flashproof_call* c, const char* config, void* stream, char* why,
 *                                      size_t n) {
 *       my_kernel<<<grid, block, 0, (cudaStream_t)stream>>>(c->q.data, c->q.stride[1], ..., c->o.data, c->lse.data);
 *       return cudaGetLastError() == cudaSuccess ? FLASHPROOF_OK : FLASHPROOF_ERROR;
 *     }
 *     static const flashproof_kernel kernel = {
 *       .struct_size = sizeof(flashproof_kernel), .abi = FLASHPROOF_ABI, .name = "mine", .version = "1",
 *       .memory = FLASHPROOF_CUDA, .dtypes = 1u << FLASHPROOF_BF16,
 *       .features = FLASHPROOF_FEATURE_CAUSAL | FLASHPROOF_FEATURE_GQA, .max_head_dim = 128, .head_dim_multiple = 64,
 *       .conventions = FLASHPROOF_DEFAULT_CONVENTIONS, .supports = supports, .forward = forward,
 *     };
 *     const flashproof_kernel* flashproof_kernel_entry(uint32_t abi) { return abi == FLASHPROOF_ABI ? &kernel : NULL; }
 *
 * What is computed, for batch entry b, query i, head h over the keys j that it sees, in real arithmetic:
 *
 *     s0 = scale <q_i, k_j>        s1 = softcap tanh(s0 / softcap), or s0        s = s1 - slope |i + off - j| + bias
 *     L = ln(sum_j exp(s) [+ exp(sink)])        p = exp(s - L)        O_i = sum_j p z v_j, z = keep / (1 - rate), or 1
 *
 * Query head h reads kv head h / (heads / kv_heads). off is Sk - Sq, or 0 with top_left. causal: j <= i + off. window:
 * i + off - left <= j <= i + off + right. So with causal and Sk < Sq the first Sq - Sk rows see no key
 * (NEGATIVE_OFFSET): there O = 0 and L = -infinity, or what the conventions declare. Sq and Sk may be 0; a launch over
 * an empty grid is an error in CUDA, so return early. Floats (scale, softcap, slopes, sinks, descales) are exact as
 * given.
 *
 * Everything outside the logical tensors (padding, unused page slots, stride gaps, red zones around each buffer) is
 * poisoned and watched. Inputs must not be written. Device calls enqueue on `stream` and return; they must not
 * synchronise the device.
 */
#ifndef FLASHPROOF_KERNEL_H
#define FLASHPROOF_KERNEL_H
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#ifdef __cplusplus
extern "C" {
#endif

#define FLASHPROOF_ABI 1u

typedef enum {
  FLASHPROOF_FP32,
  FLASHPROOF_BF16,
  FLASHPROOF_FP16,
  FLASHPROOF_E4M3,
  FLASHPROOF_E5M2,
  FLASHPROOF_INT32
} flashproof_dtype;
typedef enum { FLASHPROOF_HOST, FLASHPROOF_CUDA } flashproof_memory;

/* OK: enqueued or done. REJECTED: this problem or config is not supported, with a message; never a wrong answer
 * instead. ERROR: it should have worked and did not, with a message. */
typedef enum { FLASHPROOF_OK, FLASHPROOF_REJECTED, FLASHPROOF_ERROR } flashproof_status;

/* A strided view; strides in elements. data == NULL: the tensor is absent. */
typedef struct {
  void* data;
  int32_t dtype;  /* flashproof_dtype */
  int32_t memory; /* flashproof_memory */
  int32_t rank;
  int64_t shape[4];
  int64_t stride[4];
} flashproof_tensor;

/* A small integer array, both where the kernel runs and on the host; NULL = absent. int32. */
typedef struct {
  const int32_t* data; /* in the kernel's memory */
  const int32_t* host;
  int64_t length;
} flashproof_integers;

/* Bits of flashproof_kernel.features: what the kernel can do. A problem that needs a missing bit is refused before the
 * kernel is called. supports() has the last word. */
enum {
  FLASHPROOF_FEATURE_BACKWARD = 1 << 0,
  FLASHPROOF_FEATURE_CAUSAL = 1 << 1,
  FLASHPROOF_FEATURE_WINDOW = 1 << 2,
  FLASHPROOF_FEATURE_TOP_LEFT = 1 << 3,
  FLASHPROOF_FEATURE_GQA = 1 << 4,
  FLASHPROOF_FEATURE_PACKED = 1 << 5, /* cu_seqlens */
  FLASHPROOF_FEATURE_SEQUSED = 1 << 6,
  FLASHPROOF_FEATURE_PAGED = 1 << 7,
  FLASHPROOF_FEATURE_VALUE_DIM = 1 << 8, /* value_dim != head_dim */
  FLASHPROOF_FEATURE_SOFTCAP = 1 << 9,
  FLASHPROOF_FEATURE_ALIBI = 1 << 10,
  FLASHPROOF_FEATURE_BIAS = 1 << 11,
  FLASHPROOF_FEATURE_SINK = 1 << 12,
  FLASHPROOF_FEATURE_DROPOUT = 1 << 13,
  FLASHPROOF_FEATURE_DESCALE = 1 << 14,
  FLASHPROOF_FEATURE_STRIDES = 1 << 15, /* any strides with a unit last one; without it all tensors are contiguous */
  FLASHPROOF_FEATURE_SCALE = 1 << 16,   /* a scale other than 1/sqrt(head_dim) */
  FLASHPROOF_FEATURE_NEGATIVE_OFFSET = 1 << 17 /* causal or window with Sk < Sq */
};

/* What the kernel does where libraries differ; the oracle follows it. */
typedef enum { FLASHPROOF_EMPTY_O_ZERO, FLASHPROOF_EMPTY_O_UNDEFINED } flashproof_empty_o;
typedef enum {
  FLASHPROOF_EMPTY_LSE_MINUS_INFINITY,
  FLASHPROOF_EMPTY_LSE_PLUS_INFINITY,
  FLASHPROOF_EMPTY_LSE_ZERO,
  FLASHPROOF_EMPTY_LSE_UNDEFINED
} flashproof_empty_lse;
typedef enum { FLASHPROOF_LSE_NATURAL, FLASHPROOF_LSE_BASE_2, FLASHPROOF_LSE_NONE } flashproof_lse_base;
typedef enum { FLASHPROOF_TAIL_UNTOUCHED, FLASHPROOF_TAIL_ZERO, FLASHPROOF_TAIL_UNDEFINED } flashproof_tail;
typedef enum { FLASHPROOF_DROPOUT_PHILOX, FLASHPROOF_DROPOUT_NONE } flashproof_dropout;
/* How much may change around a batch entry while its O, L, dq, dk and dv keep every bit. Each promise holds those
 * before it. */
typedef enum {
  FLASHPROOF_DETERMINISTIC_NO,
  FLASHPROOF_DETERMINISTIC_CALL,   /* nothing but the content of the workspace: the same call gives the same bits */
  FLASHPROOF_DETERMINISTIC_LAYOUT, /* strides and pages, too */
  FLASHPROOF_DETERMINISTIC_BATCH,  /* and the other entries: batch-invariant */
  /* and, for O and L of a query row without dropout, the entry's other query rows; a zero's sign aside. What decoding
   * needs to repeat a prefill. */
  FLASHPROOF_DETERMINISTIC_ROWS
} flashproof_deterministic;

typedef struct {
  int32_t empty_o;          /* flashproof_empty_o: O of a row that sees no key (without sink) */
  int32_t empty_lse;        /* flashproof_empty_lse: L of such a row */
  int32_t lse_base;         /* flashproof_lse_base */
  int32_t tail;             /* flashproof_tail: outputs at and past the used length */
  int32_t dropout;          /* flashproof_dropout */
  int32_t saturates;        /* 1: conversion of O to its format saturates instead of giving infinity */
  int32_t bears_hidden_nan; /* 1: NaN or infinity in keys hidden by mask or bias changes nothing */
  int32_t deterministic;    /* flashproof_deterministic */
} flashproof_conventions;

/* O = 0 and L = -infinity for rows without keys, natural logarithm, tails untouched, Flashproof's Philox,
 * deterministic. */
#define FLASHPROOF_DEFAULT_CONVENTIONS \
  { 0, 0, 0, 0, 0, 0, 0, 1 }

/* The problem as numbers; the same for all calls of a case. */
typedef struct {
  uint32_t struct_size;
  int32_t dtype;     /* of q, k, v, d_o */
  int32_t out_dtype; /* of o, dq, dk, dv: dtype; bf16 for fp8 */
  int64_t batch, heads, kv_heads, head_dim, value_dim;
  int64_t max_seq_q, max_seq_k; /* longest slot of the batch */
  int64_t total_q, total_k;     /* packed: tokens in all; dense: batch * slot */
  int32_t packed_q, packed_k;   /* 1: cu_seqlens_q / cu_seqlens_k are given */
  int32_t used_q, used_k;       /* 1: seqused_q / seqused_k are given */
  int64_t page_size;            /* 0: not paged */
  float scale;
  int32_t causal;
  int32_t top_left;                  /* 1: query i stands at key i; 0: at key i + Sk - Sq */
  int64_t window_left, window_right; /* inclusive; -1 open, both -1: no window */
  float softcap;                     /* 0: off */
  int32_t alibi;                     /* 0, 1: slopes [H], 2: slopes [B, H] */
  int32_t bias, sink, descale;       /* 1: given */
  float dropout_rate;
  uint64_t dropout_seed;
  int32_t backward; /* 1: backward will be called after forward, with its o and lse */
} flashproof_problem;

/* The tensors of one call. Dense: q, d_o, o, dq [B, Sq, H, d]; k, v, dk, dv [B, Sk, Hk, d]; lse [B, H, Sq]. Packed: the
 * same with B = 1 and S = the total. Paged: k, v [pages, page_size, Hk, d], page_table [B, pages an entry] (row-major),
 * dk and dv not paged: [1, total used, Hk, d], entries concatenated. The last stride is 1. slopes [H] or [B, H], sink
 * [H], bias [1|B, 1|H, 1|Sq, 1|Sk] (broadcast axes have shape 1), dsink [H] fp32, dbias like bias in fp32, descales [B,
 * Hk] fp32. dq, dk, dv, dsink, dbias and d_o are absent in forward; they are not zeroed beforehand. */
typedef struct {
  uint32_t struct_size;
  const flashproof_problem* problem;
  flashproof_tensor q, k, v, o, lse;
  flashproof_tensor d_o, dq, dk, dv;
  flashproof_tensor bias, dbias, slopes, sink, dsink, q_descale, k_descale, v_descale;
  flashproof_integers cu_seqlens_q, cu_seqlens_k; /* B + 1 */
  flashproof_integers seqused_q, seqused_k;       /* B */
  flashproof_integers page_table;
  void* workspace; /* workspace_size() bytes, 256-byte aligned, content arbitrary */
  size_t workspace_size;
} flashproof_call;

typedef struct {
  uint32_t struct_size; /* sizeof(flashproof_kernel) */
  uint32_t abi;         /* FLASHPROOF_ABI */
  const char* name;     /* letters, digits, '-', '_' */
  const char* version;
  int32_t memory;  /* flashproof_memory of all tensors */
  uint32_t dtypes; /* bit 1 << flashproof_dtype for each input dtype it takes; 0 = ask supports */
  uint64_t features;
  int64_t max_head_dim;      /* 0 = no limit */
  int64_t head_dim_multiple; /* 0 or 1 = any */
  flashproof_conventions conventions;
  /* What may be set in `config`, with its values, e.g. "tile_m=16:128:16 order=up,down" (from:to:step, or words,
   * simplest first); NULL or "" = nothing. A config is text such as "tile_m=64,tile_n=32"; "" is the kernel's own
   * choice. */
  const char* tunables;
  /* The arithmetic for this problem and config, as text (reference/arithmetic.h); NULL member or "" = unknown. The text
   * must stay valid until the next call on the same thread. Words, unset ones counting at their worst: e.g.
   * "tile=64x64 order=ascending scores=fp32 values=fp32 exp=expf arg=sub s=fp32 p=bf16 rowsum=1 division=ieee". */
  const char* (*arithmetic)(const flashproof_problem*, const char* config);
  /* On the host, without a GPU: OK, or REJECTED with a reason in message. Must refuse what no kernel can answer, too
   * (flashproof_check_problem does); the check `reject` offers such problems. */
  flashproof_status (*supports)(const flashproof_problem*, const char* config, char* message, size_t message_size);
  size_t (*workspace_size)(const flashproof_problem*, const char* config); /* NULL = 0 */
  flashproof_status (*forward)(const flashproof_call*, const char* config, void* stream, char* message,
                               size_t message_size);
  flashproof_status (*backward)(const flashproof_call*, const char* config, void* stream, char* message,
                                size_t message_size);
} flashproof_kernel;

/* Why no kernel, or not this one, answers the problem; NULL if nothing speaks against it. Checked are sizes, dtypes and
 * head dims within the table's ranges, kv_heads that divide heads, and numbers that are finite and in range. */
static inline const char* flashproof_reason_against(const flashproof_kernel* kernel, const flashproof_problem* p) {
  const int64_t multiple = kernel->head_dim_multiple > 1 ? kernel->head_dim_multiple : 1;
  const int is_fp8 = p->dtype == FLASHPROOF_E4M3 || p->dtype == FLASHPROOF_E5M2;
  if (p->struct_size != sizeof *p) return "another struct_size: built with another flashproof_kernel.h?";
  if (p->dtype < 0 || p->dtype > FLASHPROOF_E5M2) return "unknown dtype: it is fp32, bf16, fp16, e4m3 or e5m2";
  if (kernel->dtypes != 0 && !(kernel->dtypes >> p->dtype & 1)) return "this dtype is not supported";
  if (p->out_dtype != (is_fp8 ? FLASHPROOF_BF16 : p->dtype)) return "out_dtype must be dtype, or bf16 for fp8";
  if (p->descale && !is_fp8) return "descales are for fp8 alone";
  if (p->batch < 1 || p->heads < 1 || p->kv_heads < 1) return "batch, heads and kv_heads must be at least 1";
  if (p->heads % p->kv_heads != 0) return "kv_heads must divide heads";
  if (p->head_dim < 1 || p->value_dim < 1) return "head_dim and value_dim must be at least 1";
  if (p->head_dim % multiple != 0 || p->value_dim % multiple != 0)
    return "head_dim or value_dim is not a multiple of what is supported";
  if (kernel->max_head_dim > 0 && (p->head_dim > kernel->max_head_dim || p->value_dim > kernel->max_head_dim))
    return "head_dim or value_dim is larger than supported";
  if (p->max_seq_q < 0 || p->max_seq_k < 0 || p->total_q < 0 || p->total_k < 0) return "lengths must be at least 0";
  if (p->page_size < 0) return "page_size must be at least 1, or 0 for keys without pages";
  if (!isfinite(p->scale)) return "the scale must be finite";
  if (!isfinite(p->softcap) || p->softcap < 0) return "the softcap must be finite and positive, or 0 for off";
  if (p->window_left < -1 || p->window_right < -1) return "a window side is at least 0, or -1 for open";
  if (p->alibi < 0 || p->alibi > 2) return "alibi is 0, 1 (slopes by head) or 2 (by entry and head)";
  if (!(p->dropout_rate >= 0 && p->dropout_rate < 1)) return "the dropout rate must be in [0, 1)";
  return NULL;
}

/* REJECTED with that reason, or OK: first line of a supports(). */
static inline flashproof_status flashproof_check_problem(const flashproof_kernel* kernel, const flashproof_problem* p,
                                                         char* message, size_t message_size) {
  const char* reason = flashproof_reason_against(kernel, p);
  if (reason == NULL) return FLASHPROOF_OK;
  snprintf(message, message_size, "%s", reason);
  return FLASHPROOF_REJECTED;
}

typedef const flashproof_kernel* (*flashproof_kernel_entry_function)(uint32_t abi);
#define FLASHPROOF_KERNEL_SYMBOL "flashproof_kernel_entry"

#ifdef __cplusplus
}
#endif
#endif
