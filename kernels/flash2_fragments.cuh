// The matrix products of FlashAttention 2 by mma.sync: which lane holds which element, and how operands come out of
// shared memory.
//
// With lane = 4 g + q, an accumulator of m16n8 holds rows g (elements 0, 1) and g + 8 (2, 3), columns 2 q and 2 q + 1.
// Scores are such blocks over keys; two neighbouring blocks (fp8: four) are, rounded, the left operand of P V as it
// wants to lie.
//
// fp8. A product has 32 keys. ldmatrix moves 16-bit pairs, so that of V it gives, for keys 2 q and 2 q + 1 of eight,
// channels 2 g and 2 g + 1 of sixteen; bytes are put together so that place 4 q + n of the product's keys is key 2 q +
// n of the first eight (n < 2) or key 2 q + n - 2 of the second eight, which is how the rounded scores lie, and one
// product has the even channels, one the odd.
#pragma once
#include "kernels/ptx.cuh"
#include "kernels/swizzle.h"
#include "kernels/tile_config.h"

namespace flashproof::flash2 {

/// Keys of a product P V; of Q K it is as many channels. Both are 32 bytes of a row.
template <TileConfig config>
constexpr int product_step = is_fp8(config.dtype) ? 32 : 16;

/// Blocks of 16 rows of a warp.
template <TileConfig config>
constexpr int row_blocks = warp_rows(config) / 16;

/// Rows of a thread: row n is g + 8 (n mod 2) of the warp's block n div 2.
template <TileConfig config>
constexpr int thread_rows = 2 * row_blocks<config>;

using Accumulator = float[4];
/// [block of rows][eight keys]
template <TileConfig config>
using Scores = Accumulator[row_blocks<config>][config.tile_n / 8];
/// [block of rows][eight channels]; in fp8 blocks 2 n and 2 n + 1 are the even and the odd channels of 16
template <TileConfig config>
using Outputs = Accumulator[row_blocks<config>][config.value_dim / 8];

/// P's format: fp8 weights are e4m3, with e5m2 values too.
template <TileConfig config>
using Weight = Element<is_fp8(config.dtype) ? DType::e4m3 : config.dtype>;

FLASHPROOF_DEVICE int lane_index() { return int(uint32(thread_index()) % 32); }

/// Address of the calling lane's row of ldmatrix in a swizzled tile of `chunks` chunks a row: (lane_row, lane_chunk)
/// from a corner whose row is a multiple of 8 and whose chunk is even, or any where lane_chunk is 0. Rows and tiles are
/// multiples of `span` chunks, so the XOR of the swizzle may come after the sum: one address a tile, from which the
/// others differ by constants.
template <int chunks>
FLASHPROOF_DEVICE SharedAddress matrix_row(SharedAddress tile, int lane_row, int lane_chunk, int row, int chunk) {
  const SharedAddress corner = tile + swizzled_offset(chunks, lane_row, lane_chunk);
  const int low = chunk % swizzle_span(chunks);
  return (corner ^ uint32(low * chunk_bytes)) + uint32((row * chunks + chunk - low) * chunk_bytes);
}

/// Four matrices of 16 rows and two chunks: rows first, then chunks, or the other way round. The two registers of a
/// right operand must be neighbours, or each product costs two moves; they are two chunks of eight keys of K, and one
/// chunk of 16 keys of V.
template <int chunks>
FLASHPROOF_DEVICE SharedAddress rows_first(SharedAddress tile, int row, int chunk) {
  return matrix_row<chunks>(tile, lane_index() % 16, lane_index() / 16, row, chunk);
}
template <int chunks>
FLASHPROOF_DEVICE SharedAddress chunks_first(SharedAddress tile, int row, int chunk) {
  return matrix_row<chunks>(tile, lane_index() / 16 * 8 + lane_index() % 8, lane_index() / 8 % 2, row, chunk);
}

template <TileConfig config>
constexpr int head_chunks = config.head_dim* element_bytes(config) / chunk_bytes;
template <TileConfig config>
constexpr int value_chunks = config.value_dim* element_bytes(config) / chunk_bytes;

/// c += a b.
template <class A, class B>
FLASHPROOF_DEVICE void multiply_add(Accumulator& c, const uint32 (&a)[4], uint32 b0, uint32 b1) {
  const uint32 b[2] = {b0, b1};
  if constexpr (is_fp8(A::dtype))
    multiply_add_16x8x32<A, B>(c, a, b);
  else
    multiply_add_16x8x16<A, B>(c, a, b);
}

/// The warp's rows of Q as left operands, one for each step of channels, or read again whenever they are wanted.
template <TileConfig config>
struct Queries {
  static constexpr int steps = head_chunks<config> / 2;
  SharedAddress rows;  ///< the warp's, in the tile
  uint32 kept[keeps_queries(config) ? row_blocks<config> : 1][keeps_queries(config) ? steps : 1][4];

  FLASHPROOF_DEVICE SharedAddress address(int block, int step) const {
    return rows_first<head_chunks<config>>(rows, 16 * block, 2 * step);
  }
  FLASHPROOF_DEVICE void load() {
    if constexpr (keeps_queries(config)) {
#pragma unroll
      for (int block = 0; block < row_blocks<config>; ++block)
#pragma unroll
        for (int step = 0; step < steps; ++step) load_matrix_x4(kept[block][step], address(block, step));
    }
  }
  FLASHPROOF_DEVICE void operand(uint32 (&a)[4], int block, int step) const {
    if constexpr (keeps_queries(config))
      for (int n = 0; n < 4; ++n) a[n] = kept[block][step][n];
    else
      load_matrix_x4(a, address(block, step));
  }
};

/// s = Q K^T of a tile, channels in ascending steps from zero.
template <TileConfig config>
FLASHPROOF_DEVICE void multiply_keys(Scores<config>& s, const Queries<config>& queries, SharedAddress tile) {
  using Number = Element<config.dtype>;
#pragma unroll
  for (int block = 0; block < row_blocks<config>; ++block)
#pragma unroll
    for (int n = 0; n < config.tile_n / 8; ++n)
#pragma unroll
      for (float& each : s[block][n]) each = 0;
#pragma unroll
  for (int step = 0; step < Queries<config>::steps; ++step) {
    uint32 a[row_blocks<config>][4];
#pragma unroll
    for (int block = 0; block < row_blocks<config>; ++block) queries.operand(a[block], block, step);
#pragma unroll
    for (int n = 0; n < config.tile_n / 16; ++n) {
      uint32 b[4];
      load_matrix_x4(b, chunks_first<head_chunks<config>>(tile, 16 * n, 2 * step));
#pragma unroll
      for (int block = 0; block < row_blocks<config>; ++block) {
        multiply_add<Number, Number>(s[block][2 * n], a[block], b[0], b[1]);
        multiply_add<Number, Number>(s[block][2 * n + 1], a[block], b[2], b[3]);
      }
    }
  }
}

/// The weights of keys `step` times product_step and on, rounded: fp8 weights are 2^8 p, which uses the range of e4m3
/// up to 448.
template <TileConfig config>
FLASHPROOF_DEVICE void weight_operand(uint32 (&a)[4], const Accumulator (&p)[config.tile_n / 8], int step) {
  if constexpr (is_fp8(config.dtype)) {
    const auto pair = [](const Accumulator& x, int row) {
      return pack_pair<Weight<config>>(0x1p8f * x[2 * row], 0x1p8f * x[2 * row + 1]);
    };
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const int first = 4 * step + n / 2 * 2;
      a[n] = permute_bytes(pair(p[first], n % 2), pair(p[first + 1], n % 2), 0x5410);
    }
  } else {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const Accumulator& x = p[2 * step + n / 2];
      a[n] = pack_pair<Weight<config>>(x[n % 2 * 2], x[n % 2 * 2 + 1]);
    }
  }
}

/// o += P V of a tile, keys in ascending steps.
template <TileConfig config>
FLASHPROOF_DEVICE void multiply_values(Outputs<config>& o, const Scores<config>& p, SharedAddress tile) {
  using Number = Element<config.dtype>;
  constexpr int steps = config.tile_n / product_step<config>;
#pragma unroll
  for (int step = 0; step < steps; ++step) {
    uint32 a[row_blocks<config>][4];
#pragma unroll
    for (int block = 0; block < row_blocks<config>; ++block) weight_operand<config>(a[block], p[block], step);
#pragma unroll
    for (int n = 0; n < config.value_dim / 16; ++n) {
      uint32 v[4];
      if constexpr (!is_fp8(config.dtype)) {
        load_matrix_x4_transposed(v, rows_first<value_chunks<config>>(tile, 16 * step, 2 * n));
      } else {
        load_matrix_x4_transposed(v, matrix_row<value_chunks<config>>(tile, lane_index(), 0, 32 * step, n));
        const uint32 even0 = permute_bytes(v[0], v[1], 0x6420), odd0 = permute_bytes(v[0], v[1], 0x7531);
        const uint32 even1 = permute_bytes(v[2], v[3], 0x6420), odd1 = permute_bytes(v[2], v[3], 0x7531);
        v[0] = even0, v[1] = even1, v[2] = odd0, v[3] = odd1;
      }
#pragma unroll
      for (int block = 0; block < row_blocks<config>; ++block) {
        multiply_add<Weight<config>, Number>(o[block][2 * n], a[block], v[0], v[1]);
        multiply_add<Weight<config>, Number>(o[block][2 * n + 1], a[block], v[2], v[3]);
      }
    }
  }
}

}  // namespace flashproof::flash2
