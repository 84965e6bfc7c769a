// What the FlashAttention 2 kernel gets: a call of the C interface as pointers, byte strides and numbers, ready for
// use.
//
// Lengths are at most 2^29, so that positions, windows and their sums are 32-bit integers. Freestanding:
// kernels/flash2_host.cpp fills it in, kernels/flash2_forward.cuh reads it.
#pragma once
#include "reference/formats.h"

namespace flashproof::flash2 {

constexpr int longest_sequence = 1 << 29;
constexpr int open_side = 1 << 30;  ///< of a window: beyond every position

/// n div d for 0 <= n < 2^31 by a product: with s = ceil(log2 d) and f = floor(2^32 (2^s - d) / d) + 1 it is
/// floor((floor(f n / 2^32) + n) / 2^s) (Granlund and Montgomery 1994, theorem 4.2).
struct Divisor {
  uint32 value, factor, shift;
  FLASHPROOF_HD constexpr int divide(int n) const {
    return int((uint32(uint64(factor) * uint32(n) >> 32) + uint32(n)) >> shift);
  }
};
constexpr Divisor divisor_of(uint32 d) {
  uint32 shift = 0;
  while ((uint64(1) << shift) < d) ++shift;
  return {d, uint32((((uint64(1) << shift) - d) << 32) / d + 1), shift};
}

/// Tensor [batch or page, token, head, channel]; strides in bytes.
struct Rows {
  const void* data;
  int64 batch_bytes, head_bytes;
  int token_bytes;
  int aligned;  ///< 1: every row begins at a multiple of 16 bytes
};

/// Where entries begin and how long they are.
struct Side {
  const int32* begins;  ///< NULL: dense; else the first token of each entry, and the end of the last
  const int32* used;    ///< NULL: all; else of an entry's slot the first used[b] tokens count
  int slot;             ///< tokens of a dense slot
};

/// Numbers by entry and head: data[b * batch_stride + head * head_stride].
struct ByHead {
  const float* data;  ///< NULL: not given
  int64 batch_stride, head_stride;
};

/// [1|B, 1|H, 1|Sq, 1|Sk]; an axis that is broadcast has stride 0, the others strides in elements.
struct Bias {
  const void* data;  ///< NULL: not given
  int is_fp32;       ///< 0: the inputs' format
  int64 stride[4];
};

struct Call {
  Rows q, k, v, o;
  float* lse;
  int64 lse_batch_stride, lse_head_stride, lse_token_stride;  ///< in elements
  Side q_side, k_side;
  int group;                ///< query heads of a kv head
  int head_dim, value_dim;  ///< not padded
  int last_rows_first;      ///< 1: blocks take the row tiles in descending order: under causal the longest start first
  int top_left;
  int window_left, window_right;  ///< inclusive, or open_side; causal is window_right 0

  /// Scores are <q, k> itself where `scaled` is 0, else scale t_q t_k <q, k>, then modified. The weight of a score s is
  /// 2^(s exponent_factor - ...), and a natural logarithm is a score times `unit`.
  int scaled;
  float scale, exponent_factor, unit;
  float dropout_factor;  ///< 1 / (1 - rate)

  // Of the feature set `general` alone.
  const int32* page_table;  ///< [batch, pages_an_entry], or NULL
  int64 pages_an_entry;
  Divisor page_size;
  float softcap, softcap_argument;  ///< cap and 2 log2(e) / cap, or 0
  ByHead slopes, sink, q_descale, k_descale, v_descale;
  Bias bias;
  uint64 dropout_seed;
  uint32 dropped_words;  ///< dropout_threshold(rate)
};

}  // namespace flashproof::flash2
