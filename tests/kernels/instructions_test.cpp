// The instructions of kernels/ptx.cuh under the simulator: where fragments lie in a warp, and the corners of
// arithmetic. The layouts are written here from the PTX ISA's tables, element by element.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/ptx.cuh"
#include "kernels/simulator/simulate.h"
#include "reference/philox.h"

namespace flashproof {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

uint32 bits_of(float x) { return std::bit_cast<uint32>(x); }

/// The n-th of a stream of random words.
uint32 random_word(uint32 stream, uint32 n) { return philox4x32_10({{n, stream, 0, 0}}, 1, 2).word[0]; }

// ---- mma.sync.m16n8k16 and m16n8k32: PTX ISA, "Matrix fragments for mma.m16n8k16 with floating point type" and
// "... for mma.m16n8k32". Element i of lane l: its row and column.

struct Place {
  int row, column;
};

Place place_in_a(int lane, int i, bool bytes) {
  const int group = lane >> 2, in_group = lane % 4;
  if (bytes) return {group + ((i >= 4 && i < 8) || i >= 12 ? 8 : 0), in_group * 4 + (i & 3) + (i >= 8 ? 16 : 0)};
  return {group + ((i >= 2 && i < 4) || i >= 6 ? 8 : 0), in_group * 2 + (i & 1) + (i >= 4 ? 8 : 0)};
}

Place place_in_b(int lane, int i, bool bytes) {
  const int group = lane >> 2, in_group = lane % 4;
  if (bytes) return {in_group * 4 + (i & 3) + (i >= 4 ? 16 : 0), group};
  return {in_group * 2 + (i & 1) + (i >= 2 ? 8 : 0), group};
}

Place place_in_c(int lane, int i) { return {(lane >> 2) + (i < 2 ? 0 : 8), lane % 4 * 2 + (i & 1)}; }

/// Finite encodings, all exponents in the first half of the draws, near 1 in the second, so that products cancel.
uint32 random_encoding(DType dtype, uint32 stream, uint32 n) {
  const Format format = format_of(dtype);
  const uint32 word = random_word(stream, n), sign = (word >> 31) << (format.bits - 1);
  if (stream % 2 == 0) return sign | (word & 0x7fffffffu) % (largest_bits(dtype) + 1);
  return encode(dtype, (sign ? -1.0 : 1.0) * (1.0 + double(word & 0xffffu) / 65536));
}

template <class A, class B>
void expect_products(uint32 stream) {
  constexpr bool bytes = sizeof(A) == 1;
  constexpr int inner = bytes ? 32 : 16, width = bytes ? 8 : 16, numbers = 32 / width;
  uint32 a[16][inner], b[8][inner];  // encodings; b by columns
  float c[16][8], expected[16][8];
  for (int i = 0; i < 16 * inner; ++i) a[i / inner][i % inner] = random_encoding(A::dtype, stream, uint32(i));
  for (int i = 0; i < 8 * inner; ++i) b[i / inner][i % inner] = random_encoding(B::dtype, stream, uint32(1000 + i));
  const MatrixUnit unit = matrix_unit(Architecture::sm_90, MatrixInstruction::mma_sync, A::dtype, B::dtype);
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 8; ++column) {
      c[row][column] = float(int(random_word(stream, uint32(2000 + row * 8 + column)))) * 0x1p-31f;
      expected[row][column] = fused_step(unit, a[row], b[column], c[row][column]);
    }
  simulate({}, [&] {
    const int lane = thread_index();
    uint32 fragment_a[4] = {}, fragment_b[2] = {};
    float fragment_c[4];
    for (int i = 0; i < 4 * numbers; ++i) {
      const Place place = place_in_a(lane, i, bytes);
      fragment_a[i / numbers] |= a[place.row][place.column] << (i % numbers * width);
    }
    for (int i = 0; i < 2 * numbers; ++i) {
      const Place place = place_in_b(lane, i, bytes);
      fragment_b[i / numbers] |= b[place.column][place.row] << (i % numbers * width);
    }
    for (int i = 0; i < 4; ++i) fragment_c[i] = c[place_in_c(lane, i).row][place_in_c(lane, i).column];
    if constexpr (bytes)
      multiply_add_16x8x32<A, B>(fragment_c, fragment_a, fragment_b);
    else
      multiply_add_16x8x16<A, B>(fragment_c, fragment_a, fragment_b);
    for (int i = 0; i < 4; ++i) c[place_in_c(lane, i).row][place_in_c(lane, i).column] = fragment_c[i];
  });
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 8; ++column)
      ASSERT_EQ(bits_of(c[row][column]), bits_of(expected[row][column])) << row << " " << column;
}

TEST(Instructions, MultiplyAddIsTheTensorCoresModelElementByElement) {
  for (uint32 stream = 0; stream < 200; ++stream) {
    expect_products<Bf16, Bf16>(stream);
    expect_products<Fp16, Fp16>(stream);
    expect_products<E4m3, E4m3>(stream);
    expect_products<E4m3, E5m2>(stream);
    expect_products<E5m2, E4m3>(stream);
    expect_products<E5m2, E5m2>(stream);
  }
}

TEST(Instructions, MultiplyAddPassesOnInfinityAndNaN) {
  simulate({}, [] {
    const auto product = [](uint32 x) {
      float c[4] = {};
      multiply_add_16x8x16<Fp16, Fp16>(c, {x, x, x, x}, {0x3c003c00u, 0x3c003c00u});
      return c[0];
    };
    const float one = product(0x3c003c00u), infinite = product(0x7c003c00u), not_a_number = product(0x7e003c00u);
    if (thread_index() != 0) return;
    EXPECT_EQ(one, 16.0f);
    EXPECT_EQ(infinite, infinity);
    EXPECT_TRUE(std::isnan(not_a_number));
  });
}

TEST(Instructions, MultiplyAddTakesTheChipsArithmetic) {
  // 2^24 and 16 times 1/2: Hopper's terms keep 25 fraction bits below 2^24, Ampere's 24, so that 1/2 is lost.
  const auto on = [](Architecture chip) {
    SimulatedLaunch launch;
    launch.chip = chip;
    float result = 0;
    simulate(launch, [&] {
      float c[4] = {0x1p24f, 0x1p24f, 0x1p24f, 0x1p24f};
      const uint32 half = 0x3f003f00u, one = 0x3f803f80u;
      multiply_add_16x8x16<Bf16, Bf16>(c, {half, half, half, half}, {one, one});
      if (thread_index() == 0) result = c[0];
    });
    return result;
  };
  EXPECT_EQ(on(Architecture::sm_90), 0x1p24f + 8.0f);
  EXPECT_EQ(on(Architecture::sm_80), 0x1p24f);
}

// ---- ldmatrix, stmatrix: "lane 4 g + q holds elements 2 q and 2 q + 1 of row g"; transposed of column g

TEST(Instructions, MatricesLieInRegistersAsThePtxIsaSays) {
  SimulatedLaunch launch;
  launch.shared_bytes = 32 * 16 * 2;
  simulate(launch, [] {
    const int lane = thread_index();
    const auto element = [](int matrix, int row, int column) { return uint32(matrix * 64 + row * 8 + column); };
    const auto row_address = [](int row) { return dynamic_shared() + uint32((row * 5 + 3) % 32) * 16; };  // in disorder
    const int matrix = lane / 8, row = lane % 8;
    Words4 x;
    uint32* words[] = {&x.x, &x.y, &x.z, &x.w};
    for (int i = 0; i < 4; ++i) *words[i] = element(matrix, row, 2 * i) | element(matrix, row, 2 * i + 1) << 16;
    store_shared(row_address(lane), x);
    warp_barrier();
    uint32 straight[4], transposed[4];
    load_matrix_x4(straight, row_address(lane));
    load_matrix_x4_transposed(transposed, row_address(lane));
    const int group = lane / 4, pair = lane % 4 * 2;
    for (int m = 0; m < 4; ++m) {
      EXPECT_EQ(straight[m], element(m, group, pair) | element(m, group, pair + 1) << 16) << lane;
      EXPECT_EQ(transposed[m], element(m, pair, group) | element(m, pair + 1, group) << 16) << lane;
    }
  });
}

// ---- exchanges and votes

TEST(Instructions, ExchangesAndVotesReachTheNamedLanes) {
  simulate({}, [] {
    const int lane = thread_index();
    for (int mask = 0; mask < 32; ++mask) {
      EXPECT_EQ(lane_exchange(uint32(lane), mask), uint32(lane ^ mask));
      EXPECT_EQ(lane_exchange(float(lane), mask), float(lane ^ mask));
    }
    EXPECT_TRUE(any_lane(lane == 31));
    EXPECT_FALSE(any_lane(lane == 32));
    EXPECT_TRUE(any_lane(true));
  });
}

TEST(Instructions, ThreadsAndBlocksKnowTheirPlace) {
  SimulatedLaunch launch;
  launch.grid = {2, 3, 4};
  launch.threads = 64;
  std::vector<int> visits(2 * 3 * 4 * 64);
  simulate(launch, [&] {
    EXPECT_TRUE(block_count(0) == 2 && block_count(1) == 3 && block_count(2) == 4);
    ++visits.at(((block_index(2) * 3 + block_index(1)) * 2 + block_index(0)) * 64 + thread_index());
  });
  EXPECT_EQ(visits, std::vector<int>(visits.size(), 1));
}

// ---- arithmetic

TEST(Instructions, ArithmeticHasThePtxIsasCorners) {
  EXPECT_EQ(maximum(1.0f, 2.0f), 2.0f);
  EXPECT_EQ(maximum(nan, -3.0f), -3.0f);
  EXPECT_EQ(maximum(-3.0f, nan), -3.0f);
  EXPECT_TRUE(std::isnan(maximum(nan, nan)));
  EXPECT_EQ(bits_of(maximum(-0.0f, 0.0f)), bits_of(0.0f));
  EXPECT_EQ(bits_of(maximum(0.0f, -0.0f)), bits_of(0.0f));
  EXPECT_EQ(bits_of(maximum(-0.0f, -0.0f)), bits_of(-0.0f));
  EXPECT_EQ(maximum(-infinity, -5.0f), -5.0f);
  EXPECT_EQ(fused(0x1.001p0f, 0x1.001p0f, -0x1.002p0f), 0x1p-24f);
  EXPECT_EQ(divide(1.0f, 3.0f), 0x1.555556p-2f);
  EXPECT_EQ(ex2(-3.0f), 0.125f);
  EXPECT_EQ(ex2(-infinity), 0.0f);
}

TEST(Instructions, PairsArePackedLowFirst) {
  EXPECT_EQ(pack_pair<Bf16>(1.0f, -2.0f), 0xc0003f80u);
  EXPECT_EQ(pack_pair<Fp16>(1.0f, -2.0f), 0xc0003c00u);
  EXPECT_EQ(pack_pair<Fp16>(65520.0f, nan), 0x7fff7c00u);
  EXPECT_EQ(pack_pair<E4m3>(1.0f, 1e9f), 0x7e38u);
  EXPECT_EQ(pack_pair<E5m2>(1.0f, -1e9f), 0xfb3cu);
}

TEST(Instructions, BytesArePermutedAsPrmtDoes) {
  EXPECT_EQ(permute_bytes(0x33221100u, 0x77665544u, 0x6420u), 0x66442200u);
  EXPECT_EQ(permute_bytes(0x33221100u, 0x77665544u, 0x7531u), 0x77553311u);
  EXPECT_EQ(permute_bytes(0x33221100u, 0x77665544u, 0x0f04u), 0x00770044u);
}

}  // namespace
}  // namespace flashproof
