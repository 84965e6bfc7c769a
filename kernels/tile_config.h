// A tiled kernel's shape as a template parameter: what is fixed when the kernel is compiled, and whether it can run.
//
// Shared memory holds the Q tile, then for each stage a K tile and a V tile; after the last key the tile of O takes the
// place of all. Head dims are padded with zeros, which add nothing to a sum. Freestanding.
#pragma once
#include "kernels/hardware/tensor_core.h"

namespace flashproof {

/// What the kernel is compiled for. `plain`: causal, window, packed and used lengths, grouped heads, from tensors whose
/// rows are aligned to 16 bytes. `general`: every modifier, pages and any alignment besides.
enum class Features : int { plain, general };

struct TileConfig {
  DType dtype;
  int tile_m, tile_n;       ///< queries and keys of a tile
  int stages;               ///< key tiles in shared memory: one in use, the others on their way; 1: K, V in turn
  int warps;                ///< each has tile_m / warps rows, 16 or 32
  int head_dim, value_dim;  ///< padded (padded_dim)
  Features features;
};

/// The widths that kernels are compiled for, in channels.
constexpr int padded_dims[] = {32, 64, 96, 128, 160, 192, 256};
/// The least of them that holds `dim` channels; 0 if there is none.
FLASHPROOF_HD constexpr int padded_dim(int64 dim) {
  for (int width : padded_dims)
    if (dim <= width) return width;
  return 0;
}

FLASHPROOF_HD constexpr int element_bytes(const TileConfig& c) { return is_fp8(c.dtype) ? 1 : 2; }
FLASHPROOF_HD constexpr int thread_count(const TileConfig& c) { return 32 * c.warps; }
FLASHPROOF_HD constexpr int warp_rows(const TileConfig& c) { return c.tile_m / c.warps; }

FLASHPROOF_HD constexpr int query_tile_bytes(const TileConfig& c) { return c.tile_m * c.head_dim * element_bytes(c); }
FLASHPROOF_HD constexpr int key_tile_bytes(const TileConfig& c) { return c.tile_n * c.head_dim * element_bytes(c); }
FLASHPROOF_HD constexpr int value_tile_bytes(const TileConfig& c) { return c.tile_n * c.value_dim * element_bytes(c); }
FLASHPROOF_HD constexpr int stage_bytes(const TileConfig& c) { return key_tile_bytes(c) + value_tile_bytes(c); }
/// Of a block. O has 16-bit elements.
FLASHPROOF_HD constexpr int shared_bytes(const TileConfig& c) {
  const int loop = query_tile_bytes(c) + c.stages * stage_bytes(c), output = 2 * c.tile_m * c.value_dim;
  return loop > output ? loop : output;
}

// Of sm_90 (CUDA C++ Programming Guide, compute capabilities): shared memory of a block, and of a multiprocessor, where
// each block takes another 1024 bytes.
constexpr int largest_shared_bytes = 232448, multiprocessor_shared_bytes = 233472, reserved_shared_bytes = 1024;

/// What ptxas may give a thread where so many blocks share the 65536 registers of a multiprocessor: in steps of 8, at
/// most 255.
FLASHPROOF_HD constexpr int shared_out_registers(const TileConfig& c, int blocks) {
  const int share = 65536 / (thread_count(c) * blocks) / 8 * 8;
  return share > 255 ? 255 : share;
}
/// For the accumulators of O, the scores of a tile, and about 50 of addresses, row state and operands on their way.
FLASHPROOF_HD constexpr int64 estimated_registers(const TileConfig& c) {
  return warp_rows(c) * (int64(c.value_dim) + c.tile_n) / 32 + 50;
}
/// Blocks that are to be on a multiprocessor at once, so that the products of one hide the exponentials of another: as
/// many as shared memory and the estimate, in fp8, where bytes are put together, 24 more, leave room for. The assembler
/// is held to them, except in `general`, for which the estimate is too low.
FLASHPROOF_HD constexpr int resident_blocks(const TileConfig& c) {
  const int64 registers = estimated_registers(c) + (is_fp8(c.dtype) ? 24 : 0);
  int blocks = 1;
  while (c.features == Features::plain && registers <= shared_out_registers(c, blocks + 1) &&
         (shared_bytes(c) + reserved_shared_bytes) * (blocks + 1) <= multiprocessor_shared_bytes)
    ++blocks;
  return blocks;
}
/// Whether the warp's rows of Q stay in registers over all key tiles; else they are read again for each. Kept ones
/// leave the assembler less choice: it then uses up to 36 registers more than the estimate, in fp8, where bytes are put
/// together, 60.
FLASHPROOF_HD constexpr bool keeps_queries(const TileConfig& c) {
  const int queries = warp_rows(c) * c.head_dim * element_bytes(c) / 128, margin = is_fp8(c.dtype) ? 60 : 36;
  return estimated_registers(c) + queries + margin <= shared_out_registers(c, resident_blocks(c));
}

/// nullptr: the kernel can be compiled and run on sm_90; else what is wrong. Any numbers may be asked about: those that
/// are multiplied as ints have been bounded before.
FLASHPROOF_HD constexpr const char* feasible(const TileConfig& c) {
  const int step = is_fp8(c.dtype) ? 32 : 16;  // keys of a matrix instruction
  if (c.dtype == DType::fp32) return "the tensor core takes bf16, fp16, e4m3 and e5m2 alone";
  if (c.tile_m < 1 || c.tile_n < 1) return "a tile has at least one row and one key";
  if (c.warps < 1 || c.warps > 16) return "a block has 1 to 16 warps";
  if (c.tile_m % c.warps != 0 || (warp_rows(c) != 16 && warp_rows(c) != 32)) return "a warp has 16 or 32 rows";
  if (c.tile_n % step != 0) return "tile_n is not a multiple of 16 (fp8: 32)";
  if (c.stages < 1 || c.stages > 8) return "there are 1 to 8 stages";
  if (padded_dim(c.head_dim) != c.head_dim || padded_dim(c.value_dim) != c.value_dim)
    return "a padded dim is 32, 64, 96, 128, 160, 192 or 256";
  if (estimated_registers(c) > shared_out_registers(c, 1))
    return "the accumulators need more registers than a thread has";
  if (shared_bytes(c) > largest_shared_bytes) return "the tiles need more shared memory than a block has";
  return nullptr;
}

}  // namespace flashproof
