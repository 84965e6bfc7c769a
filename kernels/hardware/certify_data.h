// Operands on which the models of matrix instructions are compared with a GPU: a pure function of the instruction's
// number and the element's place, the same on host and device (Philox4x32-10).
//
//   normal      N(0, 1); the accumulator N(0, 1) 2^n, n in [-4, 7]
//   outliers    N(0, 1) + N(0, 100) Bernoulli(0.001), as in FlashAttention 3, section 4.3
//   cancelling  products in pairs (k, k xor 2^n), n by the instruction's number, that differ in sign, a quarter in the
//               last bit too, of sizes over 12 binades: what is left is what alignment and truncation lose
//   bits        any bits; the accumulator too, or of products' size, or zero; exceptional operands are rare
//   bottom      products near the least that formats hold, subnormal operands and accumulators
//   corners     zeros of both signs, least and largest subnormals and normals, 1, 1.5, infinities, NaN; of A every
//               eighth row is zeros, so that the accumulator is all there is
#pragma once
#include "reference/normal.h"
#include "reference/philox.h"

namespace flashproof {

enum class OperandFamily : int { normal, outliers, cancelling, bits, bottom, corners };
constexpr int operand_family_count = 6;
constexpr const char* name_of(OperandFamily family) {
  constexpr const char* names[] = {"normal", "outliers", "cancelling", "bits", "bottom", "corners"};
  return names[int(family)];
}

/// What is drawn for: an element of A (line is its row), of B (line is its column), or of C (index is its column).
enum class Operand : int { a, b, c };
struct Place {
  uint64 instruction;
  Operand operand;
  int line, index;
};

namespace draws {

FLASHPROOF_HD inline Philox words(OperandFamily family, const Place& p) {
  const Philox counter = {uint32(p.line) << 8 | uint32(p.index), uint32(p.operand), uint32(p.instruction),
                          uint32(p.instruction >> 32)};
  return philox4x32_10(counter, uint32(family), 0x666c7368u);
}

FLASHPROOF_HD inline double normal(uint32 high, uint32 low) {
  return normal_quantile((double(uint64(high) << 20 | low >> 12) + 0.5) * 0x1p-52);
}

/// One of the format's corners.
FLASHPROOF_HD inline uint32 corner(DType dtype, uint32 word) {
  const uint32 unit = 1u << (format_of(dtype).precision - 1);  // least normal number
  const uint32 one = encode(dtype, 1.0);
  const uint32 corners[] = {0,
                            0,
                            1,
                            unit - 1,
                            unit,
                            unit + 1,
                            one,
                            one,
                            one + unit / 2,
                            one + 1,
                            largest_bits(dtype),
                            largest_bits(dtype) - 1};
  const uint32 sign = (word >> 31) << (format_of(dtype).bits - 1);
  if (word % 64 == 0) return sign | infinity_bits(dtype);
  if (word % 64 == 1) return sign | nan_bits(dtype);
  return sign | corners[(word >> 6) % 12];
}

/// Any bits, but only one exceptional operand in 256 of them stays one.
FLASHPROOF_HD inline uint32 any(DType dtype, const Philox& w) {
  const uint32 bits = w.word[0] >> (32 - format_of(dtype).bits);
  const uint32 magnitude = bits & ((1u << (format_of(dtype).bits - 1)) - 1);
  return magnitude > largest_bits(dtype) && w.word[1] % 256 != 0 ? 0 : bits;
}

}  // namespace draws

/// Encoding of an operand of A or B, place.index being k; `products` of them make an instruction.
FLASHPROOF_HD inline uint32 draw_operand(DType dtype, OperandFamily family, Place place, int products) {
  using namespace draws;
  const int k = place.index, partner = int(place.instruction % 4) + (products == 32 && place.instruction % 8 == 7);
  if (family == OperandFamily::cancelling) place.index &= ~(1 << partner);
  const Philox w = words(family, place);
  switch (family) {
    case OperandFamily::normal:
      return encode(dtype, normal(w.word[0], w.word[1]));
    case OperandFamily::outliers: {
      const bool large = w.word[2] < 4294967u;  // 2^32 / 1000
      const Place other = {~place.instruction, place.operand, place.line, place.index};
      const Philox v = words(family, other);
      return encode(dtype, normal(w.word[0], w.word[1]) + (large ? 10 * normal(v.word[0], v.word[1]) : 0.0));
    }
    case OperandFamily::cancelling: {
      const uint32 bits = encode(dtype, normal(w.word[0], w.word[1]) * power_of_two(2 - int(w.word[2] % 12)));
      const bool second = k != place.index && place.operand == Operand::a;
      return bits ^ (second ? 1u << (format_of(dtype).bits - 1) | (w.word[3] % 4 == 0) : 0u);
    }
    case OperandFamily::bits:
      return any(dtype, w);
    case OperandFamily::bottom: {
      const int fraction_bits = format_of(dtype).precision - 1;
      // bf16: products of exponents from -160 to -142, or from -144 to -126; the others: subnormals and three binades.
      const uint32 lowest = place.instruction / 4 % 2 == 0 ? 47 : 55;
      const uint32 field = dtype == DType::bf16 ? lowest + w.word[1] % 10 : w.word[1] % 4;
      return (w.word[0] >> 31) << (format_of(dtype).bits - 1) | field << fraction_bits |
             (w.word[2] & ((1u << fraction_bits) - 1));
    }
    default: {
      const bool zeros = place.operand == Operand::a && (place.instruction + uint64(place.line)) % 8 == 0;
      return zeros ? (w.word[0] >> 31) << (format_of(dtype).bits - 1) : corner(dtype, w.word[0]);
    }
  }
}

/// An accumulator.
FLASHPROOF_HD inline float draw_accumulator(OperandFamily family, const Place& place) {
  using namespace draws;
  const Philox w = words(family, place);
  const uint32 sign_and_fraction = w.word[0] & 0x807fffffu;
  switch (family) {
    case OperandFamily::normal:
    case OperandFamily::outliers:
      return float(normal(w.word[0], w.word[1]) * power_of_two(int(w.word[2] % 12) - 4));
    case OperandFamily::cancelling:
      if (w.word[1] % 4 == 0) return 0;
      return float(normal(w.word[0], w.word[2]) * power_of_two(-int(w.word[3] % 24)));
    case OperandFamily::bits:
      if (w.word[1] % 8 == 0) return 0;
      if (w.word[1] % 8 == 1) return __builtin_bit_cast(float, w.word[0]);
      return __builtin_bit_cast(float, sign_and_fraction | (102 + w.word[2] % 50) << 23);
    case OperandFamily::bottom:
      if (w.word[1] % 2 == 0) return __builtin_bit_cast(float, w.word[0] & 0x80000000u);
      return __builtin_bit_cast(float, sign_and_fraction | w.word[2] % 4 << 23);
    default:
      return __builtin_bit_cast(float, corner(DType::fp32, w.word[0]));
  }
}

}  // namespace flashproof
