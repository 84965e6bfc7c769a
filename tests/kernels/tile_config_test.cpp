// Which tiles can run: an answer for any numbers, without an overflow on the way to it.
#include "kernels/tile_config.h"

#include <gtest/gtest.h>

#include <climits>

namespace flashproof {
namespace {

constexpr TileConfig small = {DType::bf16, 32, 32, 2, 2, 64, 64, Features::plain};
constexpr int TileConfig::*numbers[] = {&TileConfig::tile_m, &TileConfig::tile_n,   &TileConfig::stages,
                                        &TileConfig::warps,  &TileConfig::head_dim, &TileConfig::value_dim};

/// Whether nothing is feasible that has this number in one or two of its fields, the others as they are in `small`. To
/// a compiler that evaluates it, an overflow is an error.
constexpr bool never_feasible(int number) {
  for (auto one : numbers)
    for (auto other : numbers)
      for (DType dtype : {DType::bf16, DType::e5m2}) {
        TileConfig c = small;
        c.dtype = dtype, c.*one = number, c.*other = number;
        if (feasible(c) == nullptr) return false;
      }
  return true;
}
static_assert(feasible(small) == nullptr);
static_assert(never_feasible(INT_MAX) && never_feasible(INT_MIN) && never_feasible(0) && never_feasible(-32));
static_assert(never_feasible(INT_MAX - 31) && never_feasible(1 << 30) && never_feasible(1 << 20));

/// With 2^23 keys, K and V of a stage have 2^31 bytes: as an int, less than nothing.
TEST(TileConfig, NamesWhatAHugeTileLacks) {
  TileConfig c = small;
  c.tile_n = 1 << 23;
  EXPECT_STREQ(feasible(c), "the accumulators need more registers than a thread has");
  c = {DType::bf16, 32, 192, 4, 2, 256, 32, Features::plain};
  EXPECT_STREQ(feasible(c), "the tiles need more shared memory than a block has");
}

}  // namespace
}  // namespace flashproof
