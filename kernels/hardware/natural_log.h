// ln x in fp32 with fixed operations, so that every machine gives the same bits.
//
//   x = 2^k m with m in [2/3, 4/3), f = m - 1:   ln x = k ln 2 + (f + f^2 P(f)), P of degree 9 by Horner's rule
//
// P is the minimax fit of (ln(1 + f) - f) / f^2 to the relative error of ln, coefficients rounded to fp32 from the
// first on, the others fitted anew after each: 2^-30.1. Over all 2,130,706,432 normal arguments the result is at most
// 0.9029 ulp from ln x (at 0x402c2318), correctly rounded for 96.6 %, monotone, and ln 1 = 0.
//
// Arguments: [2^-126, inf). Exceptional inputs: +infinity gives itself, zeros and subnormals -infinity, other negative
// numbers and NaN 0x7fffffff.
#pragma once
#include "reference/formats.h"

namespace flashproof {

/// a b + c, rounded once.
FLASHPROOF_HD inline float fused_multiply_add(float a, float b, float c) {
#ifdef __CUDA_ARCH__
  return __fmaf_rn(a, b, c);
#else
  return __builtin_fmaf(a, b, c);
#endif
}

/// ln x, x in [2^-126, inf).
FLASHPROOF_HD inline float natural_log(float x) {
  const uint32 bits = __builtin_bit_cast(uint32, x);
  if ((bits & 0x7fffffffu) < 0x00800000u) return __builtin_bit_cast(float, 0xff800000u);
  if (bits == 0x7f800000u) return x;
  if (bits > 0x7f800000u) return __builtin_bit_cast(float, 0x7fffffffu);
  const int k = int(bits - 0x3f2aaaabu) >> 23;  // 0x3f2aaaab is 2/3 rounded up
  const float f = __builtin_bit_cast(float, bits - (uint32(k) << 23)) - 1.0f;
  float p = 0x1.e9d1bp-4f;
  p = fused_multiply_add(p, f, -0x1.06c2c4p-3f);
  p = fused_multiply_add(p, f, 0x1.b91ef6p-4f);
  p = fused_multiply_add(p, f, -0x1.f3b02ap-4f);
  p = fused_multiply_add(p, f, 0x1.24eb6ep-3f);
  p = fused_multiply_add(p, f, -0x1.55978cp-3f);
  p = fused_multiply_add(p, f, 0x1.9997eep-3f);
  p = fused_multiply_add(p, f, -0x1.ffff18p-3f);
  p = fused_multiply_add(p, f, 0x1.555556p-2f);
  p = fused_multiply_add(p, f, -0.5f);
  const float low = fused_multiply_add(p, f * f, f);
  return fused_multiply_add(float(k), 0x1.62e430p-1f, low);
}

}  // namespace flashproof
