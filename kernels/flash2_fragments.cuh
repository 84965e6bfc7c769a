// The matrix products of FlashAttention 2 by mma.sync: which lane holds which element, and how operands come out of shared memory.
//
// With lane = 4 g + q, an accumulator of m16n8 holds rows g (elements 0, 1) and g + 8 (2, 3), columns 2 q and 2 q + 1. Scores are
// such blocks over keys; two neighbouring blocks (fp8: four) are, rounded, the left operand of P V as it wants to lie.
//
// fp8. A product has 32 keys. ldmatrix moves 16-bit pairs, so that of V it gives, for keys 2 q and 2 q + 1 of eight, channels 2 g and
// 2 g + 1 of sixteen; bytes are put together so that place 4 q + n of the product's keys is key 2 q + n of the first eight (n < 2) or
// key 2 q + n - 2 of the second eight, which is how the rounded scores lie, and one product has the even channels, one the odd.
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

/// Where the calling lane's row of ldmatrix lies in a swizzled tile of `chunks` chunks a row: at (row, chunk) from a corner whose row
/// is a multiple of 8 and whose chunk is even, or any where `chunk` is always 0.
template <int chunks>
struct MatrixRow {
  SharedAddress address;
  uint32 chunk;

  FLASHPROOF_DEVICE MatrixRow(SharedAddress tile, int row, int chunk)
      : address(tile + uint32(row * chunks * chunk_bytes)), chunk(uint32(chunk ^ swizzle_phase(chunks, row))) {}
  /// From the corner at `row`, `corner_chunk`: a phase has three bits at most, so the chunks above them are added.
  FLASHPROOF_DEVICE SharedAddress at(int row, int corner_chunk) const {
    const uint32 low = uint32(corner_chunk) % 8, high = uint32(corner_chunk) - low;
    return address + ((chunk ^ low) + high + uint32(row * chunks)) * chunk_bytes;
  }
};

template <TileConfig config>
constexpr int head_chunks = config.head_dim* element_bytes(config) / chunk_bytes;
template <TileConfig config>
constexpr int value_chunks = config.value_dim* element_bytes(config) / chunk_bytes;

/// The lane's row in the four matrices of a left operand of 16 rows and two chunks: rows first, then chunks.
template <TileConfig config>
FLASHPROOF_DEVICE MatrixRow<head_chunks<config>> query_row(SharedAddress tile, int warp_row) {
  return {tile, warp_row + lane_index() % 16, lane_index() / 16};
}
/// Of 16 keys and two chunks: the two chunks of eight keys are the right operand for them.
template <TileConfig config>
FLASHPROOF_DEVICE MatrixRow<head_chunks<config>> key_row(SharedAddress tile) {
  return {tile, lane_index() / 16 * 8 + lane_index() % 8, lane_index() / 8 % 2};
}
/// Of 16 keys and two chunks of channels; in fp8 of 32 keys and one chunk.
template <TileConfig config>
FLASHPROOF_DEVICE MatrixRow<value_chunks<config>> value_row(SharedAddress tile) {
  if constexpr (is_fp8(config.dtype)) return {tile, lane_index(), 0};
  return {tile, lane_index() % 16, lane_index() / 16};
}

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
  MatrixRow<head_chunks<config>> row;
  uint32 kept[keeps_queries(config) ? row_blocks<config> : 1][keeps_queries(config) ? steps : 1][4];

  FLASHPROOF_DEVICE Queries(SharedAddress tile, int warp_row) : row(query_row<config>(tile, warp_row)) {}
  FLASHPROOF_DEVICE void load() {
    if constexpr (keeps_queries(config)) {
#pragma unroll
      for (int block = 0; block < row_blocks<config>; ++block)
#pragma unroll
        for (int step = 0; step < steps; ++step) load_matrix_x4(kept[block][step], row.at(16 * block, 2 * step));
    }
  }
  FLASHPROOF_DEVICE void operand(uint32 (&a)[4], int block, int step) const {
    if constexpr (keeps_queries(config))
      for (int n = 0; n < 4; ++n) a[n] = kept[block][step][n];
    else
      load_matrix_x4(a, row.at(16 * block, 2 * step));
  }
};

/// s = Q K^T of a tile, channels in ascending steps from zero.
template <TileConfig config>
FLASHPROOF_DEVICE void multiply_keys(Scores<config>& s, const Queries<config>& queries, SharedAddress tile) {
  using Number = Element<config.dtype>;
  const auto row = key_row<config>(tile);
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
      load_matrix_x4(b, row.at(16 * n, 2 * step));
#pragma unroll
      for (int block = 0; block < row_blocks<config>; ++block) {
        multiply_add<Number, Number>(s[block][2 * n], a[block], b[0], b[1]);
        multiply_add<Number, Number>(s[block][2 * n + 1], a[block], b[2], b[3]);
      }
    }
  }
}

/// The weights of keys `step` times product_step and on, rounded: fp8 weights are 2^8 p, which uses the range of e4m3 up to 448.
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
  const auto row = value_row<config>(tile);
#pragma unroll
  for (int step = 0; step < config.tile_n / product_step<config>; ++step) {
    uint32 a[row_blocks<config>][4];
#pragma unroll
    for (int block = 0; block < row_blocks<config>; ++block) weight_operand<config>(a[block], p[block], step);
#pragma unroll
    for (int n = 0; n < config.value_dim / 16; ++n) {
      uint32 v[4];
      load_matrix_x4_transposed(v, row.at(product_step<config> * step, is_fp8(config.dtype) ? n : 2 * n));
      if constexpr (is_fp8(config.dtype)) {
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
