// Which keys a query sees: causal and window masks, as an interval of keys.
//
// With off = Sk - Sq (bottom-right alignment, FlashAttention 2.1 and later) or 0 (top-left), row i sees key j iff
//   0 <= j < Sk,  j <= i + off if causal,  i + off - left <= j <= i + off + right if a window side is closed.
// Each condition bounds j on one side, so the visible keys of a row are an interval. A bias of -inf hides single keys
// of it; that is data, and is applied where the bias is read. Freestanding: device code includes this file.
#pragma once
#include "reference/formats.h"

namespace flashproof {

constexpr int64 open_window = -1;

struct Mask {
  bool causal = false;
  bool top_left = false;             ///< alignment of causal, window and ALiBi; false = bottom-right
  int64 window_left = open_window;   ///< inclusive, >= 0, or open_window
  int64 window_right = open_window;  ///< inclusive, >= 0, or open_window
#ifndef __CUDACC_RTC__
  bool operator==(const Mask&) const = default;
#endif
};

/// Half-open interval of keys; empty when begin >= end.
struct KeyRange {
  int64 begin, end;
};

/// Shift between query and key positions: query i stands at key position i + off.
FLASHPROOF_HD constexpr int64 alignment_offset(const Mask& mask, int64 seq_q, int64 seq_k) {
  return mask.top_left ? 0 : seq_k - seq_q;
}

/// Keys that row i of an entry with Sq = seq_q, Sk = seq_k sees; begin == end == 0 when there is none.
FLASHPROOF_HD constexpr KeyRange visible_keys(const Mask& mask, int64 seq_q, int64 seq_k, int64 i) {
  const int64 position = i + alignment_offset(mask, seq_q, seq_k);
  int64 begin = 0, end = seq_k;
  if (mask.causal && position + 1 < end) end = position + 1;
  if (mask.window_right != open_window && mask.window_right < end - position - 1)
    end = position + mask.window_right + 1;
  if (mask.window_left != open_window && position - mask.window_left > begin) begin = position - mask.window_left;
  return begin < end ? KeyRange{begin, end} : KeyRange{0, 0};
}

FLASHPROOF_HD constexpr bool visible(const Mask& mask, int64 seq_q, int64 seq_k, int64 i, int64 j) {
  const KeyRange keys = visible_keys(mask, seq_q, seq_k, i);
  return keys.begin <= j && j < keys.end;
}

}  // namespace flashproof
