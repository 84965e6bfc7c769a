// The number formats of attention kernels: fp32, bf16, fp16, e4m3, e5m2; exact decoding and correct rounding.
//
//   format   precision p   emin   largest     infinity   encoding bits
//   fp32     24            -126   2^128 -     yes        32
//   bf16      8            -126   3.39e38     yes        16
//   fp16     11             -14   65504       yes        16
//   e4m3      4              -6   448         no (NaN = S.1111.111)   8    (OCP 8-bit floating point, revision 1.0)
//   e5m2      3             -14   57344       yes         8
//
// Rounding is to nearest, ties to even, straight from the given double, never by way of another format. Overflow gives
// infinity, in e4m3 the largest number. Freestanding: device code includes this file, under nvcc, NVRTC and host
// compilers.
#pragma once

#ifdef __CUDACC__
#define FLASHPROOF_HD __host__ __device__
#else
#define FLASHPROOF_HD
#endif

namespace flashproof {

using int32 = int;
using uint32 = unsigned int;
using int64 = long;
using uint64 = unsigned long;
static_assert(sizeof(int64) == 8 && sizeof(uint32) == 4, "Flashproof needs an LP64 system");

enum class DType : int { fp32 = 0, bf16 = 1, fp16 = 2, e4m3 = 3, e5m2 = 4 };
constexpr int dtype_count = 5;

/// One binary format: values are +-significand * 2^exponent with `precision` significand bits and exponents from emin.
struct Format {
  int bits;           ///< width of the encoding
  int precision;      ///< significand bits, the leading one included
  int emin;           ///< exponent of the least normal number
  double largest;     ///< largest finite number
  bool has_infinity;  ///< false: overflow saturates
};

FLASHPROOF_HD constexpr Format format_of(DType dtype) {
  switch (dtype) {
    case DType::fp32:
      return {32, 24, -126, 0x1.fffffep127, true};
    case DType::bf16:
      return {16, 8, -126, 0x1.fep127, true};
    case DType::fp16:
      return {16, 11, -14, 65504.0, true};
    case DType::e4m3:
      return {8, 4, -6, 448.0, false};
    case DType::e5m2:
      return {8, 3, -14, 57344.0, true};
  }
  return {};
}

/// Encoding of the largest finite number, of infinity (the saturated number where there is none), and of the quiet NaN.
FLASHPROOF_HD constexpr uint32 largest_bits(DType dtype) {
  constexpr uint32 table[] = {0x7f7fffffu, 0x7f7fu, 0x7bffu, 0x7eu, 0x7bu};
  return table[int(dtype)];
}
FLASHPROOF_HD constexpr uint32 infinity_bits(DType dtype) {
  return largest_bits(dtype) + (format_of(dtype).has_infinity ? 1 : 0);
}
FLASHPROOF_HD constexpr uint32 nan_bits(DType dtype) {
  constexpr uint32 table[] = {0x7fc00000u, 0x7fc0u, 0x7e00u, 0x7fu, 0x7eu};
  return table[int(dtype)];
}

/// 2^exponent as a double, -1022 <= exponent <= 1023.
FLASHPROOF_HD constexpr double power_of_two(int exponent) {
  return __builtin_bit_cast(double, uint64(exponent + 1023) << 52);
}

/// The number that `bits` encodes, exactly; every NaN is the same one.
FLASHPROOF_HD constexpr double decode(DType dtype, uint32 bits) {
  const Format format = format_of(dtype);
  const int fraction_bits = format.precision - 1;
  const uint32 sign = bits >> (format.bits - 1) & 1;
  const uint32 magnitude = bits & (0xffffffffu >> (33 - format.bits));
  if (magnitude > infinity_bits(dtype)) return __builtin_bit_cast(double, 0x7ff8000000000000ul);
  double value;
  if (format.has_infinity && magnitude == infinity_bits(dtype)) {
    value = __builtin_bit_cast(double, 0x7ff0000000000000ul);
  } else {
    const uint32 field = magnitude >> fraction_bits;
    const uint32 fraction = magnitude & ((1u << fraction_bits) - 1);
    const uint32 significand = field == 0 ? fraction : fraction | 1u << fraction_bits;
    const int exponent = (field == 0 ? 1 : int(field)) - 1 + format.emin - fraction_bits;
    value = double(significand) * power_of_two(exponent);
  }
  return sign ? -value : value;
}

/// `x` rounded to `dtype`, as encoded bits; NaN becomes the format's positive quiet NaN.
FLASHPROOF_HD constexpr uint32 encode(DType dtype, double x) {
  const Format format = format_of(dtype);
  const int fraction_bits = format.precision - 1;
  const uint64 word = __builtin_bit_cast(uint64, x);
  const uint32 sign = uint32(word >> 63) << (format.bits - 1);
  const int field = int(word >> 52 & 0x7ff);
  if (field == 0x7ff) return (word << 12) != 0 ? nan_bits(dtype) : sign | infinity_bits(dtype);
  const int exponent = field - 1023;
  const int shift = 52 - fraction_bits + (exponent < format.emin ? format.emin - exponent : 0);
  if (field == 0 || shift > 53) return sign;  // below half the least subnormal of every format
  const uint64 significand = (word & 0xffffffffffffful) | 0x10000000000000ul;
  const uint64 half = 1ul << (shift - 1), rest = significand & (2 * half - 1);
  uint64 kept = significand >> shift;
  if (rest > half || (rest == half && (kept & 1))) ++kept;
  // A carry out of the significand moves into the exponent field, which is the correct neighbour.
  uint64 magnitude = kept;
  if (exponent >= format.emin) magnitude += uint64(exponent - format.emin) << fraction_bits;
  return sign | (magnitude > largest_bits(dtype) ? infinity_bits(dtype) : uint32(magnitude));
}

/// decode(encode(x)).
FLASHPROOF_HD constexpr double round_to(DType dtype, double x) { return decode(dtype, encode(dtype, x)); }

/// Distance between neighbouring numbers of the format at the magnitude of x (of its least normal number below that).
FLASHPROOF_HD constexpr double ulp(DType dtype, double x) {
  const Format format = format_of(dtype);
  const int exponent = int(__builtin_bit_cast(uint64, x) >> 52 & 0x7ff) - 1023;
  return power_of_two((exponent < format.emin ? format.emin : exponent) - format.precision + 1);
}

}  // namespace flashproof
