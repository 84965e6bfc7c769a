// Which keys a row of a tile sees: reference/visible.h in 32-bit numbers, applied to elements only where a tile is cut.
//
//   begin <= j < end,  begin = max(0, position - left),  end = min(Sk, position + right + 1),  position = i + off
// for row i; causal is right = 0. Both rise with i, so a range of rows sees from its first row's begin to its last row's
// end.
#pragma once
#include "kernels/flash2_fragments.cuh"
#include "kernels/flash2_load.cuh"

namespace flashproof::flash2 {

constexpr float infinity = __builtin_bit_cast(float, 0x7f800000u);

/// Half-open; a row sees no key where begin >= end.
struct KeyRange {
  int begin, end;
};

/// The mask of one entry.
struct EntryMask {
  int rows, keys;  ///< Sq, Sk
  int offset, left, right;

  FLASHPROOF_DEVICE KeyRange range(int i) const {
    const int position = i + offset, begin = position - left, end = position + right + 1;
    return {begin > 0 ? begin : 0, end < keys ? end : keys};
  }
  /// Keys that a row of first..last sees, if any row sees one.
  FLASHPROOF_DEVICE KeyRange some(int first, int last) const { return {range(first).begin, range(last).end}; }
  /// The tiles of `size` keys of which each of the rows sees all.
  FLASHPROOF_DEVICE KeyRange whole_tiles(int first, int last, int size) const {
    return {(range(last).begin + size - 1) / size, range(first).end / size};
  }
};

FLASHPROOF_DEVICE EntryMask mask_of(const Call& call, int rows, int keys) {
  return {rows, keys, call.top_left ? 0 : keys - rows, call.window_left, call.window_right};
}

enum class Cut { before, past };

/// s = -infinity for keys of the tile that begins at `tile` before those that the warp's rows, `first_row` and on, see,
/// or past them.
template <TileConfig config, Cut cut>
FLASHPROOF_DEVICE void hide_keys(Scores<config>& s, const EntryMask& mask, int first_row, int tile) {
  const int first_key = tile + lane_index() % 4 * 2;
#pragma unroll
  for (int row = 0; row < thread_rows<config>; ++row) {
    const KeyRange range = mask.range(first_row + row * 8 + lane_index() / 4);
    const int bound = (cut == Cut::before ? range.begin : range.end) - first_key;
#pragma unroll
    for (int n = 0; n < config.tile_n / 8; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& each = s[row / 2][n][row % 2 * 2 + e];
        each = (8 * n + e < bound) == (cut == Cut::before) ? -infinity : each;
      }
  }
}

}  // namespace flashproof::flash2
