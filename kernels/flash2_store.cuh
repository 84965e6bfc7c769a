// From accumulators to O and L.
//
//   l = 0 (no key): O = 0, L = -infinity
//   else O = round(w o + 0) with w = fl(fl(1 / l) g), g = t_v / (1 - rate), and L = m unit + ln l
// The sum with 0 makes -0 +0: which of them an accumulator holds depends on the tiles that add nothing to it.
// O passes through shared memory, so that a warp stores whole rows: 16 bytes a lane where rows are aligned, else by
// elements.
#pragma once
#include "kernels/flash2_scores.cuh"
#include "kernels/flash2_softmax.cuh"
#include "kernels/hardware/natural_log.h"

namespace flashproof::flash2 {

/// fp8 has its outputs in bf16.
template <TileConfig config>
using OutputNumber = Element<is_fp8(config.dtype) ? DType::bf16 : config.dtype>;
template <TileConfig config>
constexpr int output_chunks = config.value_dim * 2 / chunk_bytes;

/// g; in fp8 times 2^-8, since weights are times 2^8.
template <TileConfig config>
FLASHPROOF_DEVICE float value_factor(const Call& call, int b, int kv_head) {
  float factor = call.dropout_factor;
  if (config.features == Features::general && call.v_descale.data != nullptr)
    factor = number_of(call.v_descale, b, kv_head) * factor;
  return is_fp8(config.dtype) ? factor * 0x1p-8f : factor;
}

/// L of the thread's rows, and in `weights` what their accumulators are to be multiplied by.
template <TileConfig config>
FLASHPROOF_DEVICE void finish_rows(const RowState<config>& rows, float factor, float unit,
                                   float (&weights)[thread_rows<config>], float (&lse)[thread_rows<config>]) {
#pragma unroll
  for (int row = 0; row < thread_rows<config>; ++row) {
    const float l = whole_sum(rows.sum[row]);
    weights[row] = l == 0 ? 0 : divide(1, l) * factor;
    lse[row] = l == 0 ? -infinity : fused(rows.largest[row], unit, natural_log(l));
  }
}

/// The thread's accumulators, rounded, into the warp's rows of the tile of O.
template <TileConfig config>
FLASHPROOF_DEVICE void stage_outputs(SharedAddress tile, const Outputs<config>& o,
                                     const float (&weights)[thread_rows<config>]) {
  constexpr int chunks = output_chunks<config>;
  const int g = lane_index() / 4, q = lane_index() % 4;
  const auto pair = [](float low, float high) { return pack_pair<OutputNumber<config>>(low + 0, high + 0); };
#pragma unroll
  for (int row = 0; row < thread_rows<config>; ++row) {
    const float w = weights[row];
    const int e = row % 2 * 2;
#pragma unroll
    for (int n = 0; n < config.value_dim / 8; ++n) {
      const Accumulator& x = o[row / 2][n];
      if constexpr (!is_fp8(config.dtype)) {
        store_shared(tile + swizzled_offset(chunks, row * 8 + g, n) + uint32(4 * q), pair(w * x[e], w * x[e + 1]));
      } else if (n % 2 == 0) {  // channels 4 q to 4 q + 3 of sixteen, even ones here, odd ones in the next block
        const Accumulator& y = o[row / 2][n + 1];
        const Words2 four = {pair(w * x[e], w * y[e]), pair(w * x[e + 1], w * y[e + 1])};
        store_shared(tile + swizzled_offset(chunks, row * 8 + g, n + q / 2) + uint32(q % 2 * 8), four);
      }
    }
  }
}

/// The warp's rows of O, of which the entry has `rows`, from the tile to memory.
template <TileConfig config>
FLASHPROOF_DEVICE void store_outputs(SharedAddress tile, const Tokens& to, int first_row) {
  constexpr int chunks = output_chunks<config>;
#pragma unroll 4
  for (int n = lane_index(); n < warp_rows(config) * chunks; n += 32) {
    const int row = n / chunks, chunk = n % chunks;
    if (first_row + row >= to.length || chunk >= to.chunks) continue;
    const Words4 x = load_shared<Words4>(tile + swizzled_offset(chunks, row, chunk));
    char* address = const_cast<char*>(to.data) + int64(first_row + row) * to.token_bytes + chunk * chunk_bytes;
    if (config.features == Features::plain || to.aligned) {
      store_global(reinterpret_cast<Words4*>(address), x);
    } else {
      const uint32 words[] = {x.x, x.y, x.z, x.w};
#pragma unroll
      for (int e = 0; e < 8; ++e)
        store_global(reinterpret_cast<unsigned short*>(address) + e,
                     static_cast<unsigned short>(words[e / 2] >> e % 2 * 16));
    }
  }
}

/// L of the warp's rows, each by one of its four lanes; `lse` is the entry's and head's first.
template <TileConfig config>
FLASHPROOF_DEVICE void store_lse(float* lse, int64 token_stride, int rows, int first_row,
                                 const float (&values)[thread_rows<config>]) {
  if (lane_index() % 4 != 0) return;
#pragma unroll
  for (int row = 0; row < thread_rows<config>; ++row) {
    const int i = first_row + row * 8 + lane_index() / 4;
    if (i < rows) store_global(lse + i * token_stride, values[row]);
  }
}

}  // namespace flashproof::flash2
