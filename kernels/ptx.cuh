// Every hardware instruction that the GPU kernels name, one thin wrapper each (PTX ISA 8.0; sm_80 and later).
//
// Number formats are structs over their encoding, so that no library type stands in device code:
//   to_fp32(x)          the number that x encodes, exact
//   from_fp32<To>(x)    x rounded to nearest, ties to even; overflow gives infinity, in e4m3 the largest number; NaN gives
//                       the quiet NaN (cvt.rn)
// The conversions of fp8 want sm_89, so they are made of integer operations here.
#pragma once
#include "reference/formats.h"

namespace flashproof {

struct Bf16 {
  static constexpr DType dtype = DType::bf16;
  unsigned short bits;
};
struct Fp16 {
  static constexpr DType dtype = DType::fp16;
  unsigned short bits;
};
struct E4m3 {
  static constexpr DType dtype = DType::e4m3;
  unsigned char bits;
};
struct E5m2 {
  static constexpr DType dtype = DType::e5m2;
  unsigned char bits;
};

__device__ inline float to_fp32(float x) { return x; }

__device__ inline float to_fp32(Bf16 x) { return __uint_as_float(uint32(x.bits) << 16); }

__device__ inline float to_fp32(Fp16 x) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(x.bits));
  return result;
}

/// e5m2 is fp16 cut to its upper byte.
__device__ inline float to_fp32(E5m2 x) { return to_fp32(Fp16{static_cast<unsigned short>(x.bits << 8)}); }

/// Exponent and fraction in the places of fp32's stand for a number 2^(127 - 7) times too small, subnormals included.
__device__ inline float to_fp32(E4m3 x) {
  const uint32 magnitude = x.bits & 0x7fu, sign = uint32(x.bits & 0x80u) << 24;
  const float number = __uint_as_float(magnitude << 20) * 0x1p120f;
  return __uint_as_float(sign | (magnitude == nan_bits(DType::e4m3) ? nan_bits(DType::fp32) : __float_as_uint(number)));
}

template <class To>
__device__ To from_fp32(float x);

template <>
__device__ inline float from_fp32<float>(float x) {
  return x;
}

template <>
__device__ inline Bf16 from_fp32<Bf16>(float x) {
  Bf16 result;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
  return result;
}

template <>
__device__ inline Fp16 from_fp32<Fp16>(float x) {
  Fp16 result;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
  return result;
}

template <>
__device__ inline E4m3 from_fp32<E4m3>(float x) {
  return {static_cast<unsigned char>(encode(DType::e4m3, x))};
}

/// x of the lane whose number differs from the caller's in the bits of `mask`; all 32 lanes of the warp take part.
__device__ inline float lane_exchange(float x, int mask) {
  float result;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=f"(result) : "f"(x), "r"(mask));
  return result;
}

}  // namespace flashproof
