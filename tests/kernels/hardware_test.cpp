// The models of kernels/hardware against plain doubles: a second tensor core with frexp and trunc, std::exp2 and
// std::log, the neighbours of a rounded number; and what fp8 attention over equal keys comes to.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/hardware/certify.h"
#include "kernels/hardware/certify_data.h"
#include "kernels/hardware/convert.h"
#include "kernels/hardware/ex2.h"
#include "kernels/hardware/natural_log.h"
#include "kernels/hardware/tensor_core.h"

namespace flashproof {
namespace {

uint32 bits_of(float x) { return __builtin_bit_cast(uint32, x); }
float float_of(uint32 bits) { return __builtin_bit_cast(float, bits); }

// ---- a second tensor core

/// Exponent of an operand: of its leading bit, at least its format's least.
int exponent_of(double x, int emin) { return std::max(std::ilogb(x), emin); }

/// C + sum a b in one step, all in doubles: each term and the aligned sum have fewer than 53 bits.
float slow_step(const std::vector<double>& a, int a_emin, const std::vector<double>& b, int b_emin, double c,
                int align_bits, int keep_bits) {
  double plain = c;
  for (size_t k = 0; k < a.size(); ++k) plain += a[k] * b[k];
  if (std::isnan(plain)) return float_of(0x7fffffff);
  if (std::isinf(plain)) return float(plain);
  int top = c == 0 ? -133 : std::max(exponent_of(c, -126), -133);  // no less, Khattak and Mikaitis, 2512.07004
  for (size_t k = 0; k < a.size(); ++k)
    if (a[k] * b[k] != 0) top = std::max(top, exponent_of(a[k], a_emin) + exponent_of(b[k], b_emin));
  double units = std::trunc(std::ldexp(c, align_bits - top));
  for (size_t k = 0; k < a.size(); ++k) units += std::trunc(std::ldexp(a[k] * b[k], align_bits - top));
  if (units == 0) return 0;
  const double sum = std::ldexp(units, top - align_bits);
  const int last_bit = std::max(std::ilogb(sum) - keep_bits, -149);
  const double kept = std::ldexp(std::trunc(std::ldexp(sum, -last_bit)), last_bit) + 0.0;  // never -0
  return std::fabs(kept) < 0x1p128 ? float(kept) : std::copysign(std::numeric_limits<float>::infinity(), float(kept));
}

float slow_instruction(const MatrixUnit& unit, const std::vector<uint32>& a, const std::vector<uint32>& b, float c) {
  // Groups of products that are one step each.
  std::vector<std::vector<int>> groups(unit.run == 0 ? a.size() / unit.products : 2);
  for (int k = 0; k < int(a.size()); ++k) groups[unit.run == 0 ? k / unit.products : k / unit.run % 2].push_back(k);
  const int a_emin = format_of(unit.run == 0 ? unit.a : DType::fp16).emin;
  const int b_emin = format_of(unit.run == 0 ? unit.b : DType::fp16).emin;
  float t = unit.run == 0 ? c : 0;
  for (const std::vector<int>& group : groups) {
    std::vector<double> x, y;
    for (int k : group) {
      x.push_back(decode(unit.a, a[k]));
      y.push_back(decode(unit.b, b[k]));
    }
    t = slow_step(x, a_emin, y, b_emin, t, unit.align_bits, unit.keep_bits);
  }
  if (unit.run == 0) return t;
  return std::isnan(c + t) ? float_of(0x7fffffff) : c + t;
}

struct NamedUnit {
  const char* name;
  MatrixUnit unit;
};

std::vector<NamedUnit> units() {
  using enum Architecture;
  using enum MatrixInstruction;
  using enum DType;
  MatrixUnit permuted = matrix_unit(sm_90, mma_sync, e4m3, e5m2);
  permuted.run = 8;
  return {{"mma.sync bf16", matrix_unit(sm_90, mma_sync, bf16, bf16)},
          {"mma.sync fp16", matrix_unit(sm_90, mma_sync, fp16, fp16)},
          {"mma.sync e4m3 e4m3", matrix_unit(sm_90, mma_sync, e4m3, e4m3)},
          {"mma.sync e5m2 e5m2", matrix_unit(sm_90, mma_sync, e5m2, e5m2)},
          {"mma.sync e4m3 e5m2, runs of 8", permuted},
          {"wgmma e4m3 e4m3", matrix_unit(sm_90, wgmma, e4m3, e4m3)},
          {"wgmma e5m2 e4m3", matrix_unit(sm_90, wgmma, e5m2, e4m3)},
          {"sm_80 bf16", matrix_unit(sm_80, mma_sync, bf16, bf16)},
          {"sm_89 e4m3 e5m2", matrix_unit(sm_89, mma_sync, e4m3, e5m2)}};
}

/// Bits of `dtype`: any, or numbers of a few binades (in fp8 of all), or those with zeros, by `family` 0, 1, 2.
uint32 draw_bits(DType dtype, int family, std::mt19937_64& random) {
  const uint32 any = uint32(random()) & uint32((1ul << format_of(dtype).bits) - 1);
  if (family == 0) return any;
  if (family == 2 && random() % 3 == 0) return any & 1 ? 0 : 1u << (format_of(dtype).bits - 1);
  const double size = double(int64(random() % 2001) - 1000) * 0x1p-10;
  const Format format = format_of(dtype);
  const int top = is_fp8(dtype) ? std::ilogb(format.largest) : 0;
  return encode(dtype, std::ldexp(size, top - int(random() % (is_fp8(dtype) ? top - format.emin : 6))));
}

float draw_accumulator(int family, std::mt19937_64& random) {
  if (family == 0) return float_of(uint32(random()));
  if (random() % 4 == 0) return 0;
  return std::ldexp(float(int64(random() >> 40) - (1 << 23)), -20 - int(random() % 12));
}

struct Operands {
  std::vector<uint32> a, b;
  float c;
};

/// Every third draw of family 1 cancels: pairs of products that differ in sign alone, but for the last.
Operands draw_operands(const MatrixUnit& unit, int family, std::mt19937_64& random) {
  Operands x;
  for (int k = 0; k < products_an_instruction(unit); ++k) {
    x.a.push_back(draw_bits(unit.a, family, random));
    x.b.push_back(draw_bits(unit.b, family, random));
  }
  x.c = draw_accumulator(family, random);
  if (family == 1 && random() % 3 == 0)
    for (size_t k = 1; k + 1 < x.a.size(); k += 2) {
      x.a[k] = x.a[k - 1] ^ 1u << (format_of(unit.a).bits - 1);
      x.b[k] = x.b[k - 1];
    }
  return x;
}

TEST(TensorCore, AgreesWithPlainDoublesOnRandomOperands) {
  std::mt19937_64 random(1);
  for (const auto& [name, unit] : units())
    for (int n = 0; n < 30000; ++n) {
      const Operands x = draw_operands(unit, n % 3, random);
      const float result = fused_step(unit, x.a.data(), x.b.data(), x.c);
      const float expected = slow_instruction(unit, x.a, x.b, x.c);
      ASSERT_EQ(bits_of(result), bits_of(expected)) << name << ", draw " << n << ": " << result << ", not " << expected;
    }
}

/// One bit more or less, or other groups, would be seen: the draws tell the models apart.
TEST(TensorCore, RandomOperandsTellNeighbouringModelsApart) {
  std::mt19937_64 random(2);
  for (const auto& [name, unit] : units()) {
    std::vector<MatrixUnit> others(4, unit);
    others[0].align_bits += 1;
    others[1].align_bits -= 1;
    others[2].keep_bits -= 1;
    if (unit.run == 0)
      others[3].products /= 2;
    else
      others[3].run = 10 - unit.run;
    std::vector<int> differ(others.size());
    for (int n = 0; n < 3000; ++n) {
      const Operands x = draw_operands(unit, 1, random);
      const uint32 bits = bits_of(fused_step(unit, x.a.data(), x.b.data(), x.c));
      for (size_t m = 0; m < others.size(); ++m)
        differ[m] += bits_of(fused_step(others[m], x.a.data(), x.b.data(), x.c)) != bits;
    }
    for (size_t m = 0; m < others.size(); ++m) EXPECT_GE(differ[m], 10) << name << ", neighbour " << m;
  }
}

TEST(TensorCore, AgreesWithPlainDoublesOnCorners) {
  const std::vector<uint32> accumulators = {0,          0x80000000, 1,          0x80000001, 0x007fffff, 0x00800000,
                                            0x0d800000, 0x3f800000, 0xbf800001, 0x4b7fffff, 0x7f7fffff, 0xff7fffff,
                                            0x7f800000, 0xff800000, 0x7fc00000, 0xffffffff};
  for (const auto& [name, unit] : units()) {
    std::vector<std::vector<uint32>> corners;
    for (DType dtype : {unit.a, unit.b}) {
      const int fraction_bits = format_of(dtype).precision - 1;
      std::vector<uint32> list = {0,
                                  1,
                                  (1u << fraction_bits) - 1,
                                  1u << fraction_bits,
                                  encode(dtype, 1.0),
                                  encode(dtype, 1.5),
                                  largest_bits(dtype),
                                  infinity_bits(dtype),
                                  nan_bits(dtype)};
      for (size_t n = 0, size = list.size(); n < size; ++n) list.push_back(list[n] | 1u << (format_of(dtype).bits - 1));
      corners.push_back(list);
    }
    for (uint32 x : corners[0])
      for (uint32 y : corners[1])
        for (uint32 c : accumulators)
          for (int copies : {1, products_an_instruction(unit)}) {
            std::vector<uint32> a(products_an_instruction(unit)), b(a.size());
            std::fill_n(a.begin(), copies, x);
            std::fill_n(b.begin(), copies, y);
            ASSERT_EQ(bits_of(fused_step(unit, a.data(), b.data(), float_of(c))),
                      bits_of(slow_instruction(unit, a, b, float_of(c))))
                << name << std::hex << ": " << copies << " of " << x << " * " << y << " + " << c;
          }
  }
}

/// What an H200 gave for mma.sync and wgmma.
TEST(TensorCore, CutsWhatIsFarBelowTheLeastNumberToPositiveZero) {
  const MatrixUnit unit = matrix_unit(Architecture::sm_90, MatrixInstruction::mma_sync, DType::bf16, DType::bf16);
  const std::vector<uint32> a = {0x9894, 0x1b6d, 0x9b1c, 0x18a9, 0x1863, 0x97a7, 0x1af5, 0x1b6b,
                                 0x980a, 0x9787, 0x1a00, 0x19bf, 0x9a51, 0x9ae6, 0x9a75, 0x99d3};
  const std::vector<uint32> b = {0x9b5b, 0x19a6, 0x9bc0, 0x17f2, 0x9b6c, 0x18bb, 0x9b3a, 0x9bad,
                                 0x1a1d, 0x98b5, 0x99a7, 0x1a02, 0x18d2, 0x9bee, 0x9b3c, 0x1c7f};
  EXPECT_EQ(bits_of(fused_step(unit, a.data(), b.data(), 0)), 0u);
  const std::vector<uint32> corners_a = {0x8000, 0x007f, 0x8000, 0x3fc0, 0x3f80, 0x0000, 0x8080, 0x0081,
                                         0xbf81, 0x3f80, 0x8000, 0x0001, 0x8000, 0xff7e, 0x8081, 0x8000};
  const std::vector<uint32> corners_b = {0x8000, 0x8081, 0xbf81, 0x8000, 0x0000, 0xbf80, 0x8000, 0x8081,
                                         0x8000, 0x8000, 0xbf80, 0x0001, 0x8000, 0x0000, 0x0000, 0x3f80};
  EXPECT_EQ(bits_of(fused_step(unit, corners_a.data(), corners_b.data(), -0.0f)), 0u);
}

/// c + count products a b.
float sum_of(const MatrixUnit& unit, float c, int count, double a, double b) {
  std::vector<uint32> x(products_an_instruction(unit)), y(x.size());
  std::fill_n(x.begin(), count, encode(unit.a, a));
  std::fill_n(y.begin(), count, encode(unit.b, b));
  return fused_step(unit, x.data(), y.data(), c);
}

TEST(TensorCore, TruncatesWhereTheModelSays) {
  using enum Architecture;
  using enum MatrixInstruction;
  const MatrixUnit hopper = matrix_unit(sm_90, mma_sync, DType::bf16, DType::bf16);
  EXPECT_EQ(sum_of(hopper, 1, 16, 0x1p-25, 1), 0x1.000008p0f);  // 16 terms at the last aligned bit
  EXPECT_EQ(sum_of(hopper, 1, 16, 0x1p-26, 1), 1);              // below it: lost one by one
  EXPECT_EQ(sum_of(hopper, 1, 3, 0x1p-25, 1), 1);               // aligned, then cut in the result
  EXPECT_EQ(sum_of(hopper, -1, 3, -0x1p-25, 1), -1);            // toward zero
  EXPECT_EQ(sum_of(hopper, -1, 16, -0x1p-26, 1), -1);
  EXPECT_EQ(bits_of(sum_of(hopper, -1, 1, 1, 1)), 0u);  // a zero sum is +0
  EXPECT_EQ(bits_of(sum_of(hopper, -0.0f, 0, 0, 0)), 0u);
  EXPECT_EQ(sum_of(hopper, 0, 2, 0x1p-100, 0x1p-50), 0x1p-149f);  // subnormal results are kept
  EXPECT_EQ(bits_of(sum_of(hopper, 0, 2, 0x1p127, 1)), 0x7f800000u);

  const MatrixUnit ampere = matrix_unit(sm_80, mma_sync, DType::bf16, DType::bf16);
  EXPECT_EQ(sum_of(ampere, 1, 16, 0x1p-25, 1), 1);
  EXPECT_EQ(sum_of(ampere, 1, 16, 0x1p-24, 1), 0x1.000010p0f);

  const MatrixUnit fp8 = matrix_unit(sm_90, wgmma, DType::e4m3, DType::e4m3);
  EXPECT_EQ(sum_of(fp8, 0x1.fffffep0f, 0, 0, 0), 0x1.fff8p0f);  // the accumulator too has 13 fraction bits
  EXPECT_EQ(sum_of(fp8, 0x1p22f, 32, 256, 1), 0x1p22f);         // 2^8 is below 2^(22 - 13)
  EXPECT_EQ(sum_of(fp8, 0x1p21f, 32, 256, 1), 0x1p21f + 8192);
  EXPECT_EQ(sum_of(fp8, 1, 1, 0x1p-9, 0.25), 1 + 0x1p-11f);
}

TEST(TensorCore, HasNoUnitWhereThereIsNoInstruction) {
  using enum Architecture;
  using enum MatrixInstruction;
  EXPECT_EQ(matrix_unit(sm_80, mma_sync, DType::e4m3, DType::e4m3).products, 0);
  EXPECT_EQ(matrix_unit(sm_89, wgmma, DType::bf16, DType::bf16).products, 0);
  EXPECT_EQ(matrix_unit(sm_90, wgmma, DType::bf16, DType::fp16).products, 0);
  EXPECT_EQ(matrix_unit(sm_90, mma_sync, DType::fp32, DType::fp32).products, 0);
  EXPECT_THROW(multiply_add_tile({}, 1, 1, 1, nullptr, 1, 1, nullptr, 1, nullptr, 1), std::invalid_argument);
}

// ---- tiles

TEST(TensorCore, TileHasTheBitsOfEachInstruction) {
  std::mt19937_64 random(3);
  for (const auto& [name, unit] : units())
    for (int n = 0; n < 60; ++n) {
      const int64 rows = 1 + random() % 40, columns = 1 + random() % 40, inner = 1 + random() % 300;
      const int64 b_stride = columns + random() % 3, c_stride = columns + random() % 3;
      const bool transposed = random() % 2 == 0;
      const int64 row_stride = transposed ? 1 : inner, column_stride = transposed ? rows : 1;
      std::vector<float> a(rows * inner), b(inner * b_stride), c(rows * c_stride);
      for (float& x : a) x = float(decode(unit.a, draw_bits(unit.a, n % 3, random)));
      for (float& x : b) x = float(decode(unit.b, draw_bits(unit.b, n % 3, random)));
      for (float& x : c) x = draw_accumulator(n % 3, random);
      if (unit.a == DType::bf16 && n % 6 == 1)  // at the lower end of the range
        for (float& x : a) x *= 0x1p-110f;
      std::vector<float> expected = c;
      const int length = products_an_instruction(unit);
      for (int64 i = 0; i < rows; ++i)
        for (int64 j = 0; j < columns; ++j)
          for (int64 first = 0; first < inner; first += length) {
            uint32 x[32] = {}, y[32] = {};
            for (int64 k = first; k < std::min(inner, first + length); ++k) {
              x[k - first] = encode(unit.a, a[i * row_stride + k * column_stride]);
              y[k - first] = encode(unit.b, b[k * b_stride + j]);
            }
            float& result = expected[i * c_stride + j];
            result = fused_step(unit, x, y, result);
          }
      multiply_add_tile(unit, rows, columns, inner, a.data(), row_stride, column_stride, b.data(), b_stride, c.data(),
                        c_stride);
      for (size_t m = 0; m < c.size(); ++m)
        ASSERT_EQ(bits_of(c[m]), bits_of(expected[m]))
            << name << ": element " << m << " of " << rows << " x " << columns << ", inner " << inner;
    }
}

/// P = 256 (e4m3) and V = 1 over `keys` equal keys: the sum over what it should be.
float weight_of_equal_keys(MatrixInstruction instruction, int64 keys) {
  const MatrixUnit unit = matrix_unit(Architecture::sm_90, instruction, DType::e4m3, DType::e4m3);
  const std::vector<float> p(keys, 256), v(keys, 1);
  float sum = 0;
  multiply_add_tile(unit, 1, 1, keys, p.data(), keys, 1, v.data(), 1, &sum, 1);
  return sum / (256 * float(keys));
}

TEST(TensorCore, Fp8WgmmaStagnatesFrom16KiKeysOn) {
  for (int64 keys = 32; keys <= 16384; keys *= 2)
    EXPECT_EQ(weight_of_equal_keys(MatrixInstruction::wgmma, keys), 1) << keys;
  EXPECT_EQ(weight_of_equal_keys(MatrixInstruction::wgmma, 32768), 0.5f);
  EXPECT_EQ(weight_of_equal_keys(MatrixInstruction::wgmma, 65536), 0.25f);
  EXPECT_EQ(weight_of_equal_keys(MatrixInstruction::wgmma, 131072), 0.125f);
  for (int64 keys = 32; keys <= 131072; keys *= 2)
    EXPECT_EQ(weight_of_equal_keys(MatrixInstruction::mma_sync, keys), 1) << keys;
}

// ---- unary functions

TEST(Ex2, IsWithinItsBoundMonotoneAndExactAtIntegers) {
  for (const double sign : {-1.0, 1.0}) {
    const double most = sign < 0 ? 0x1p-22 * std::exp2(-0.727) : 0x1p-22 * std::exp2(-0.709);
    float before = 1;
    for (uint32 bits = 0x33000000; bits < 0x43000000; bits += 101) {
      const float x = float_of(bits) * float(sign), y = ex2_approx(x);
      if (x < -126) break;
      ASSERT_LE(std::fabs(double(y) / std::exp2(double(x)) - 1), most) << x;
      ASSERT_TRUE(sign < 0 ? y <= before : y >= before) << x;
      before = y;
    }
  }
  for (int n = -126; n < 128; ++n) EXPECT_EQ(ex2_approx(float(n)), std::ldexp(1.0f, n)) << n;
}

TEST(Ex2, TakesItsWorstErrorsWhereTheHeaderSays) {
  const auto error = [](uint32 bits) {
    return std::fabs(double(ex2_approx(float_of(bits))) / std::exp2(double(float_of(bits))) - 1);
  };
  EXPECT_GT(error(0xbf7b000c), 0x1p-22 * std::exp2(-0.729));
  EXPECT_GT(error(0x3d8005d0), 0x1p-22 * std::exp2(-0.711));
}

TEST(Ex2, ExceptionalInputs) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(ex2_approx(0.0f), 1);
  EXPECT_EQ(ex2_approx(-0.0f), 1);
  for (float x : {0x1p-149f, -0x1p-149f, 0x1p-126f, 0x1.fffffep-24f, -0x1.fffffep-24f}) EXPECT_EQ(ex2_approx(x), 1);
  EXPECT_LT(ex2_approx(-0x1p-23f), 1);
  EXPECT_EQ(bits_of(ex2_approx(std::nextafter(-126.0f, -200.0f))), 0u);
  EXPECT_EQ(bits_of(ex2_approx(-300.0f)), 0u);
  EXPECT_EQ(bits_of(ex2_approx(-infinity)), 0u);
  EXPECT_LT(ex2_approx(std::nextafter(128.0f, 0.0f)), infinity);
  for (float x : {128.0f, 255.0f, 1e30f, infinity}) EXPECT_EQ(ex2_approx(x), infinity) << x;
  EXPECT_EQ(bits_of(ex2_approx(float_of(0xff800001))), 0x7fffffffu);
}

/// The nearest number, of two the one with an even encoding; magnitudes are those of neighbouring encodings.
void expect_nearest(DType dtype, float x) {
  const uint32 bits = convert_rn(dtype, x, true), sign_bit = 1u << (format_of(dtype).bits - 1);
  const uint32 magnitude = bits & ~sign_bit;
  ASSERT_EQ((bits & sign_bit) != 0, std::signbit(x)) << x;
  ASSERT_LE(magnitude, largest_bits(dtype)) << x;
  const double size = std::min(std::fabs(double(x)), format_of(dtype).largest);  // satfinite
  const double distance = std::fabs(size - decode(dtype, magnitude));
  for (uint32 neighbour : {magnitude - 1, magnitude + 1}) {
    if (neighbour > largest_bits(dtype)) continue;
    const double other = std::fabs(size - decode(dtype, neighbour));
    ASSERT_TRUE(distance < other || (distance == other && magnitude % 2 == 0)) << x << " became " << bits;
  }
}

TEST(Convert, GivesTheNearestNumberAndOfTwoTheEven) {
  std::mt19937_64 random(4);
  for (DType dtype : {DType::bf16, DType::fp16, DType::e4m3, DType::e5m2}) {
    for (uint32 n = 0; n < largest_bits(dtype); ++n) {  // every midpoint and its neighbours
      const double middle = (decode(dtype, n) + decode(dtype, n + 1)) / 2;
      for (float x : {float(middle), std::nextafter(float(middle), 0.0f), std::nextafter(float(middle), 1e38f)}) {
        expect_nearest(dtype, x);
        expect_nearest(dtype, -x);
      }
    }
    for (int n = 0; n < 200000; ++n) {
      const float x = float_of(uint32(random()));
      if (std::isfinite(x)) expect_nearest(dtype, x);
    }
  }
}

TEST(Convert, OverflowAndNaN) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  struct Row {
    DType dtype;
    float x;
    uint32 plain, satfinite;
  };
  const Row rows[] = {{DType::bf16, 0x1.fffffep127f, 0x7f80, 0x7f7f},
                      {DType::bf16, -infinity, 0xff80, 0xff7f},
                      {DType::fp16, 65519.0f, 0x7bff, 0x7bff},
                      {DType::fp16, 65520.0f, 0x7c00, 0x7bff},
                      {DType::fp16, -infinity, 0xfc00, 0xfbff},
                      {DType::e5m2, 61440.0f, 0x7c, 0x7b},
                      {DType::e5m2, -infinity, 0xfc, 0xfb},
                      {DType::e4m3, 464.0f, 0x7e, 0x7e},
                      {DType::e4m3, 1e30f, 0x7e, 0x7e},
                      {DType::e4m3, -infinity, 0xfe, 0xfe}};
  for (const Row& row : rows) {
    EXPECT_EQ(convert_rn(row.dtype, row.x, false), row.plain) << row.x;
    EXPECT_EQ(convert_rn(row.dtype, row.x, true), row.satfinite) << row.x;
  }
  for (uint32 nan : {0x7fc00000u, 0xff800001u, 0xffffffffu})
    for (bool satfinite : {false, true}) {
      EXPECT_EQ(convert_rn(DType::bf16, float_of(nan), satfinite), 0x7fffu);
      EXPECT_EQ(convert_rn(DType::fp16, float_of(nan), satfinite), 0x7fffu);
      EXPECT_EQ(convert_rn(DType::e4m3, float_of(nan), satfinite), 0x7fu);
      EXPECT_EQ(convert_rn(DType::e5m2, float_of(nan), satfinite), 0x7fu);
    }
}

double ulps_of_log(float x) {
  const double exact = std::log(double(x));
  return std::fabs(double(natural_log(x)) - exact) / ulp(DType::fp32, exact);
}

TEST(NaturalLog, IsWithinItsBoundAndMonotone) {
  float before = -std::numeric_limits<float>::infinity();
  for (uint32 bits = 0x00800000; bits < 0x7f800000; bits += 997) {
    const float x = float_of(bits);
    ASSERT_LE(ulps_of_log(x), 0.9029) << x;
    ASSERT_GE(natural_log(x), before) << x;
    before = natural_log(x);
  }
  EXPECT_GT(ulps_of_log(float_of(0x402c2318)), 0.9027);
  EXPECT_EQ(bits_of(natural_log(1.0f)), 0u);
}

TEST(NaturalLog, ExceptionalInputs) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(natural_log(infinity), infinity);
  for (float x : {0.0f, -0.0f, 0x1p-127f}) EXPECT_EQ(natural_log(x), -infinity) << x;
  EXPECT_NEAR(natural_log(0x1p-126f), -126 * std::log(2.0), 1e-5);
  for (uint32 bits : {0xbf800000u, 0xff800000u, 0x7fc00001u})
    EXPECT_EQ(bits_of(natural_log(float_of(bits))), 0x7fffffffu);
}

// ---- certificates

/// Outputs of 4096 instructions of drawn operands for which the two units differ.
int differences(const MatrixUnit& one, const MatrixUnit& other, OperandFamily family) {
  int count = 0;
  const int products = products_an_instruction(one);
  for (uint64 number = 0; number < 4096; ++number) {
    uint32 a[32], b[32];
    for (int k = 0; k < products; ++k) {
      a[k] = draw_operand(one.a, family, {number, Operand::a, int(number % 16), k}, products);
      b[k] = draw_operand(one.b, family, {number, Operand::b, int(number % 8), k}, products);
    }
    const float c = draw_accumulator(family, {number, Operand::c, int(number % 16), int(number % 8)});
    count += bits_of(fused_step(one, a, b, c)) != bits_of(fused_step(other, a, b, c));
  }
  return count;
}

TEST(CertifyData, TellsEachRuleFromItsNeighbours) {
  for (const auto& [name, unit] : units()) {
    std::vector<MatrixUnit> others(3, unit);
    others[0].align_bits += 1;
    others[1].align_bits -= 1;
    others[2].keep_bits -= 1;
    for (int run : {1, 2, 4, 8, 16})
      if (unit.run != 0 && run != unit.run) {
        others.push_back(unit);
        others.back().run = run;
      }
    for (const MatrixUnit& other : others)
      EXPECT_GT(differences(unit, other, OperandFamily::cancelling) + differences(unit, other, OperandFamily::bits), 0)
          << name << ": align " << other.align_bits << ", keep " << other.keep_bits << ", run " << other.run;
  }
}

TEST(CertifyData, TellsAtTheBottomWhetherTheAlignmentHasALeastExponent) {
  const MatrixUnit unit = matrix_unit(Architecture::sm_90, MatrixInstruction::mma_sync, DType::bf16, DType::bf16);
  for (int least : {-126, -132, -134, -1000}) {
    MatrixUnit other = unit;
    other.least_exponent = least;
    EXPECT_GT(differences(unit, other, OperandFamily::bottom), 0) << least;
  }
}

TEST(CertifyData, FamiliesHoldWhatTheyPromise) {
  int exceptional = 0, subnormal = 0, opposite = 0;
  for (uint64 number = 0; number < 400; ++number)
    for (int k = 0; k < 16; ++k) {
      const auto draw = [&](OperandFamily family, int index) {
        return draw_operand(DType::fp16, family, {number, Operand::a, 3, index}, 16);
      };
      EXPECT_LT(std::fabs(decode(DType::fp16, draw(OperandFamily::normal, k))), 6);
      exceptional += !std::isfinite(decode(DType::fp16, draw(OperandFamily::corners, k)));
      subnormal += (draw(OperandFamily::bottom, k) & 0x7c00) == 0;
      opposite += draw(OperandFamily::cancelling, k) == (draw(OperandFamily::cancelling, k ^ 1 << number % 4) ^ 0x8000);
    }
  EXPECT_NEAR(exceptional, 6400 / 32, 60);
  EXPECT_NEAR(subnormal, 6400 / 4, 150);
  EXPECT_NEAR(opposite, 6400 * 3 / 4, 300);
}

TEST(Certificate, HoldsOnlyWhereSomethingWasComparedAndNothingDiffers) {
  Certificate certificate;
  EXPECT_FALSE(certificate.holds());
  certificate.checks.push_back({"skipped", "", "", "no such instruction", 0, 0, 0, 0, ""});
  EXPECT_FALSE(certificate.holds());
  certificate.checks.push_back({"compared", "bits", "ptxas 13.0.88", "", 100, 0, 10, 0, ""});
  certificate.chain.push_back({"wgmma", 32768, 0.5f, 0.5f});
  EXPECT_TRUE(certificate.holds());
  Certificate other = certificate;
  other.checks[1].mismatches = 1;
  EXPECT_FALSE(other.holds());
  other = certificate;
  other.checks[1].host_mismatches = 1;
  EXPECT_FALSE(other.holds());
  other = certificate;
  other.chain[0].measured = 1;
  EXPECT_FALSE(other.holds());
}

}  // namespace
}  // namespace flashproof
