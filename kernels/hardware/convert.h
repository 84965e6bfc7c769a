// cvt.rn[.satfinite].TYPE.f32 (PTX ISA, "cvt"): an fp32 number rounded to bf16, fp16, e4m3 or e5m2, ties to even.
//
//   overflow    without satfinite infinity; with it, and in e4m3 always, the largest finite number; infinity likewise
//   NaN         0x7fff (bf16, fp16), 0x7f (e4m3, e5m2), whatever the sign and payload
//
// Results below the least normal number are subnormal. The instructions of fp8 exist with satfinite only.
#pragma once
#include "reference/formats.h"

namespace flashproof {

/// The encoding of x in `to`, which is not fp32.
FLASHPROOF_HD constexpr uint32 convert_rn(DType to, float x, bool satfinite) {
  if (x != x) return to == DType::bf16 || to == DType::fp16 ? 0x7fffu : 0x7fu;
  const uint32 bits = encode(to, double(x)), sign_bit = 1u << (format_of(to).bits - 1);
  const bool overflow = (bits & ~sign_bit) > largest_bits(to);
  return satfinite && overflow ? (bits & sign_bit) | largest_bits(to) : bits;
}

}  // namespace flashproof
