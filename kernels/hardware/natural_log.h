// ln x in fp32 with fixed operations, so that every machine gives the same bits.
//
//   x = 2^k m with m in [2/3, 4/3), f = m - 1:  ln x = k ln 2 + f - f^2/2 + f^3 P(f), P of degree 6, Horner with fma.
//
// Arguments are normal numbers, [2^-126, inf). Exceptional inputs: +infinity gives itself, arguments below 2^-126 in magnitude
// -infinity, other negative ones and NaN 0x7fffffff.
#pragma once
#include "reference/formats.h"

namespace flashproof {

FLASHPROOF_HD inline float fused_multiply_add(float a, float b, float c) {
#ifdef __CUDA_ARCH__
  return __fmaf_rn(a, b, c);
#else
  return __builtin_fmaf(a, b, c);
#endif
}

/// ln x
FLASHPROOF_HD inline float natural_log(float x) {
  const uint32 bits = __builtin_bit_cast(uint32, x);
  if ((bits & 0x7fffffffu) < 0x00800000u) return __builtin_bit_cast(float, 0xff800000u);
  if (bits == 0x7f800000u) return x;
  if (bits > 0x7f800000u) return __builtin_bit_cast(float, 0x7fffffffu);
  const int k = int(bits - 0x3f2aaaabu) >> 23;  // 0x3f2aaaab is 2/3 rounded up
  const float f = __builtin_bit_cast(float, bits - (uint32(k) << 23)) - 1.0f;
  float p = -0.130310059f;
  p = fused_multiply_add(p, f, 0.140869141f);
  p = fused_multiply_add(p, f, -0.121483512f);
  p = fused_multiply_add(p, f, 0.139814854f);
  p = fused_multiply_add(p, f, -0.166846126f);
  p = fused_multiply_add(p, f, 0.200120345f);
  p = fused_multiply_add(p, f, -0.249996200f);
  p = fused_multiply_add(p, f, 0.333331972f);
  p = fused_multiply_add(p, f, -0.5f);
  const float low = fused_multiply_add(p, f * f, f);
  return fused_multiply_add(float(k), 0x1.62e430p-1f, low);
}

}  // namespace flashproof
