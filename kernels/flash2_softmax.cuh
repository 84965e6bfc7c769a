// The softmax of a tile on top of the tiles before it (FlashAttention 2, 2307.08691, Algorithm 1, lines 8 to 10), in
// base 2.
//
//   m' = max(m, max s)   r = m', or 0 where m' = -infinity   alpha = 2^((m - r) c)   p = 2^((s - r) c)
//   l = l alpha + sum p
// A row lies in four lanes. m is common; l is four partial sums, lane q adding its own keys in ascending order, and
// they are added up after the last tile, (l0 + l2) + (l1 + l3). The exponent of p is fma(s, c, -fl(r c)), one
// instruction, or, of `scaled` scores, fl(fl(s - r) c), which a bias of -FLT_MAX does not make infinite. NaN is passed
// over by the maximum and caught by l.
#pragma once
#include "kernels/flash2_mask.cuh"

namespace flashproof::flash2 {

template <TileConfig config>
struct RowState {
  float largest[thread_rows<config>];  ///< m
  float sum[thread_rows<config>];      ///< the lane's part of l
};

/// A sink is a score that every row has; its weight is in lane 0's part. -infinity: none.
template <TileConfig config>
FLASHPROOF_DEVICE RowState<config> start_rows(float sink) {
  RowState<config> rows;
#pragma unroll
  for (int row = 0; row < thread_rows<config>; ++row)
    rows.largest[row] = sink, rows.sum[row] = sink != -infinity && lane_index() % 4 == 0 ? 1 : 0;
  return rows;
}

/// What a tile makes of the rows: alpha, what their O has to be multiplied by, and where their exponents begin.
template <TileConfig config>
struct Exponents {
  float alpha[thread_rows<config>], origin[thread_rows<config>], shift[thread_rows<config>];
};

/// m takes in a tile's scores, and l is made one on top of the new m.
template <TileConfig config>
FLASHPROOF_DEVICE Exponents<config> raise(RowState<config>& rows, const Scores<config>& s, float c, bool scaled) {
  Exponents<config> x;
#pragma unroll
  for (int row = 0; row < thread_rows<config>; ++row) {
    const int block = row / 2, e = row % 2 * 2;
    float largest = rows.largest[row];
#pragma unroll
    for (int n = 0; n < config.tile_n / 8; ++n) largest = maximum(largest, maximum(s[block][n][e], s[block][n][e + 1]));
    largest = maximum(largest, lane_exchange(largest, 1));
    largest = maximum(largest, lane_exchange(largest, 2));
    const float reference = largest == -infinity ? 0 : largest;
    x.origin[row] = scaled ? reference : 0, x.shift[row] = scaled ? 0 : reference * c;
    x.alpha[row] = ex2((rows.largest[row] - reference) * c);
    rows.largest[row] = largest, rows.sum[row] *= x.alpha[row];
  }
  return x;
}

/// Scores become weights, which l takes in.
template <TileConfig config>
FLASHPROOF_DEVICE void weigh(Scores<config>& s, RowState<config>& rows, const Exponents<config>& x, float c) {
#pragma unroll
  for (int n = 0; n < config.tile_n / 8; ++n)
#pragma unroll
    for (int row = 0; row < thread_rows<config>; ++row)
#pragma unroll
      for (int e = row % 2 * 2; e < row % 2 * 2 + 2; ++e) {
        float& each = s[row / 2][n][e];
        each = ex2(fused(each - x.origin[row], c, -x.shift[row]));
        rows.sum[row] += each;
      }
}

/// O = alpha O. Where every factor of the warp is 1, as in most tiles but the first, nothing has to be done.
template <TileConfig config>
FLASHPROOF_DEVICE void rescale(Outputs<config>& o, const float (&alpha)[thread_rows<config>]) {
  bool changes = false;
#pragma unroll
  for (float each : alpha) changes = changes || each != 1;
  if (!any_lane(changes)) return;
#pragma unroll
  for (int row = 0; row < thread_rows<config>; ++row)
#pragma unroll
    for (int n = 0; n < config.value_dim / 8; ++n)
#pragma unroll
      for (int e = row % 2 * 2; e < row % 2 * 2 + 2; ++e) o[row / 2][n][e] *= alpha[row];
}

/// l of a row, in each of its four lanes.
FLASHPROOF_DEVICE float whole_sum(float part) {
  part += lane_exchange(part, 2);
  return part + lane_exchange(part, 1);
}

}  // namespace flashproof::flash2
