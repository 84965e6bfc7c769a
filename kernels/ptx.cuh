// Every hardware instruction that the GPU kernels name, one thin wrapper each (PTX ISA 8.0; sm_80 and later).
//
// Number formats are structs over their encoding, so that no library type stands in device code:
//   to_fp32(x)          the number that x encodes, exact
//   from_fp32<To>(x)    x rounded to nearest, ties to even; overflow gives infinity, NaN the quiet NaN (cvt.rn)
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

__device__ inline float to_fp32(float x) { return x; }

__device__ inline float to_fp32(Bf16 x) { return __uint_as_float(uint32(x.bits) << 16); }

__device__ inline float to_fp32(Fp16 x) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(x.bits));
  return result;
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

/// x of the lane whose number differs from the caller's in the bits of `mask`; all 32 lanes of the warp take part.
__device__ inline float lane_exchange(float x, int mask) {
  float result;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=f"(result) : "f"(x), "r"(mask));
  return result;
}

}  // namespace flashproof
