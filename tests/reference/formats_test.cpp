// Every code of the 8- and 16-bit formats, rounding at every midpoint, and fp32 against the processor's own
// conversions.
#include "reference/formats.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

namespace flashproof {
namespace {

constexpr DType narrow[] = {DType::bf16, DType::fp16, DType::e4m3, DType::e5m2};

bool is_nan(DType dtype, uint32 bits) { return std::isnan(decode(dtype, bits)); }
uint32 sign_bit(DType dtype) { return 1u << (format_of(dtype).bits - 1); }

TEST(Formats, EncodeUndoesDecodeForEveryCode) {
  for (const DType dtype : narrow) {
    int nans = 0;
    for (uint32 bits = 0; bits < 1u << format_of(dtype).bits; ++bits) {
      if (is_nan(dtype, bits))
        ++nans;
      else
        ASSERT_EQ(encode(dtype, decode(dtype, bits)), bits) << int(dtype);
    }
    const int fraction = (1 << (format_of(dtype).precision - 1)) - 1;
    EXPECT_EQ(nans, dtype == DType::e4m3 ? 2 : 2 * fraction);
    EXPECT_EQ(encode(dtype, NAN), nan_bits(dtype));
    EXPECT_TRUE(is_nan(dtype, nan_bits(dtype)));
  }
}

TEST(Formats, CodesAscendWithTheirValues) {
  for (const DType dtype : narrow) {
    for (uint32 bits = 0; bits < infinity_bits(dtype); ++bits) {
      if (bits == largest_bits(dtype) && !format_of(dtype).has_infinity) break;
      ASSERT_LT(decode(dtype, bits), decode(dtype, bits + 1));
    }
    EXPECT_EQ(decode(dtype, largest_bits(dtype)), format_of(dtype).largest);
  }
}

TEST(Formats, RoundingAtEveryMidpointGoesToTheEvenCodeAndBesideItToTheNearer) {
  for (const DType dtype : narrow) {
    for (uint32 bits = 0; bits < largest_bits(dtype); ++bits) {
      const double low = decode(dtype, bits), high = decode(dtype, bits + 1), middle = (low + high) / 2;
      ASSERT_EQ(encode(dtype, middle), bits + (bits & 1));
      ASSERT_EQ(encode(dtype, std::nextafter(middle, 0)), bits);
      ASSERT_EQ(encode(dtype, std::nextafter(middle, high)), bits + 1);
      ASSERT_EQ(encode(dtype, -middle), (bits + (bits & 1)) | sign_bit(dtype));
    }
  }
}

TEST(Formats, OverflowGoesToInfinityAndInE4m3ToTheLargest) {
  for (const DType dtype : narrow) {
    const double half_step = ulp(dtype, format_of(dtype).largest) / 2;
    const double limit = format_of(dtype).largest + half_step;  // the first number that does not round to the largest
    EXPECT_EQ(encode(dtype, std::nextafter(limit, 0)), largest_bits(dtype));
    EXPECT_EQ(encode(dtype, limit), infinity_bits(dtype));
    EXPECT_EQ(encode(dtype, INFINITY), infinity_bits(dtype));
    EXPECT_EQ(encode(dtype, -INFINITY), infinity_bits(dtype) | sign_bit(dtype));
    EXPECT_EQ(decode(dtype, infinity_bits(dtype)), dtype == DType::e4m3 ? 448.0 : INFINITY);
  }
}

TEST(Formats, SmallestNumbersAndZeros) {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16, DType::e4m3, DType::e5m2}) {
    const double least = decode(dtype, 1);
    EXPECT_EQ(least, power_of_two(format_of(dtype).emin - format_of(dtype).precision + 1));
    EXPECT_EQ(encode(dtype, least / 2), 0u);
    EXPECT_EQ(encode(dtype, std::nextafter(least / 2, 1)), 1u);
    EXPECT_EQ(encode(dtype, -0.0), sign_bit(dtype));
    EXPECT_EQ(encode(dtype, 0x1p-1074), 0u);
    EXPECT_TRUE(std::signbit(decode(dtype, sign_bit(dtype))));
    EXPECT_EQ(ulp(dtype, 0), least);
    EXPECT_EQ(ulp(dtype, 1.75), power_of_two(1 - format_of(dtype).precision));
  }
}

TEST(Formats, KnownCodes) {
  EXPECT_EQ(encode(DType::bf16, 1.0), 0x3f80u);
  EXPECT_EQ(encode(DType::fp16, -2.0), 0xc000u);
  EXPECT_EQ(encode(DType::e4m3, 448.0), 0x7eu);
  EXPECT_EQ(encode(DType::e4m3, 1.0), 0x38u);
  EXPECT_EQ(encode(DType::e5m2, 57344.0), 0x7bu);
  EXPECT_EQ(decode(DType::e4m3, 0x01), 0x1p-9);
  EXPECT_EQ(decode(DType::e5m2, 0x01), 0x1p-16);
}

TEST(Formats, Fp32AgreesWithTheProcessor) {
  std::mt19937_64 random(1);
  for (int n = 0; n < 2000000; ++n) {
    const auto word = random();
    const auto bits = uint32(word);
    const float x = std::bit_cast<float>(bits);
    if (!std::isnan(x)) {
      ASSERT_EQ(decode(DType::fp32, bits), double(x));
    }
    // Exponents from below the least subnormal of fp32 to above its largest number.
    const uint64 exponent = 1023 - 155 + word % 290;
    const double y = std::bit_cast<double>((word & 0x800fffffffffffff) | exponent << 52);
    ASSERT_EQ(encode(DType::fp32, y), std::bit_cast<uint32>(float(y))) << y;
  }
}

TEST(Formats, Fp16AgreesWithTheCompilersType) {
  std::mt19937_64 random(2);
  for (int n = 0; n < 200000; ++n) {
    const auto word = random();
    const uint64 exponent = 1023 - 28 + word % 46;
    const double y = std::bit_cast<double>((word & 0x800fffffffffffff) | exponent << 52);
    ASSERT_EQ(encode(DType::fp16, y), std::bit_cast<uint16_t>(_Float16(y))) << y;
  }
}

}  // namespace
}  // namespace flashproof
