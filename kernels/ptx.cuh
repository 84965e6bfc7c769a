// Every hardware instruction that the GPU kernels name, one thin wrapper each (PTX ISA 8.0; sm_80 and later, fp8
// sm_89). Nothing else in a kernel is particular to the hardware.
//
// Where the compiler is not a CUDA compiler, kernels/simulator/instructions.h has the same functions, carried out by
// models of the hardware; each takes the place in the source that calls it, so that a violation names the kernel's
// line.
//
// Number formats are structs over their encoding, so that no library type stands in device code:
//   to_fp32(x)          the number that x encodes, exact
//   from_fp32<To>(x)    x rounded to nearest, ties to even; overflow gives infinity, in e4m3 the largest number; NaN
//                       gives the quiet NaN (cvt.rn); for the plain CUDA of standard.cu, not in the simulator
#pragma once
#include "kernels/instruction_types.h"

#ifndef __CUDACC__
#include "kernels/simulator/instructions.h"
#define FLASHPROOF_DEVICE inline

namespace flashproof {

inline float to_fp32(float x) { return x; }
template <class From>
float to_fp32(From x) {
  return float(decode(From::dtype, x.bits));
}

}  // namespace flashproof
#else
#define FLASHPROOF_DEVICE __device__ __forceinline__

namespace flashproof {

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

/// By integer operations: the instruction wants sm_89.
template <>
__device__ inline E4m3 from_fp32<E4m3>(float x) {
  return {static_cast<unsigned char>(encode(DType::e4m3, x))};
}

// ---- threads

FLASHPROOF_DEVICE int thread_index() { return int(threadIdx.x); }
FLASHPROOF_DEVICE int block_index(int axis) {
  return int(axis == 0 ? blockIdx.x : axis == 1 ? blockIdx.y : blockIdx.z);
}
FLASHPROOF_DEVICE int block_count(int axis) { return int(axis == 0 ? gridDim.x : axis == 1 ? gridDim.y : gridDim.z); }

FLASHPROOF_DEVICE void block_barrier() { asm volatile("bar.sync 0;" ::: "memory"); }
/// Barrier `id` (1 to 15) of so many threads of the block, whole warps.
FLASHPROOF_DEVICE void named_barrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
FLASHPROOF_DEVICE void warp_barrier() { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }

/// x of the lane whose number differs from the caller's in the bits of `mask`; all 32 lanes of the warp take part.
FLASHPROOF_DEVICE uint32 lane_exchange(uint32 x, int mask) {
  uint32 result;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=r"(result) : "r"(x), "r"(mask));
  return result;
}
FLASHPROOF_DEVICE float lane_exchange(float x, int mask) {
  return __uint_as_float(lane_exchange(__float_as_uint(x), mask));
}
/// Whether any lane of the warp says so; all 32 take part.
FLASHPROOF_DEVICE bool any_lane(bool condition) {
  uint32 result;
  asm volatile(
      "{ .reg .pred in, out; setp.ne.b32 in, %1, 0; vote.sync.any.pred out, in, 0xffffffff; selp.b32 %0, 1, 0, out; }"
      : "=r"(result)
      : "r"(uint32(condition)));
  return result != 0;
}

// ---- memory; T has 1, 2, 4, 8 or 16 bytes and lies aligned to its size

template <class T>
FLASHPROOF_DEVICE T load_global(const T* from) {
  return *from;
}
template <class T>
FLASHPROOF_DEVICE void store_global(T* to, T value) {
  *to = value;
}

/// Where the block's dynamic shared memory begins, aligned to 1024 bytes.
FLASHPROOF_DEVICE SharedAddress dynamic_shared() {
  extern __shared__ __align__(1024) unsigned char memory[];
  return SharedAddress(__cvta_generic_to_shared(memory));
}

template <class T>
FLASHPROOF_DEVICE T load_shared(SharedAddress from) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16, "a shared load has 4, 8 or 16 bytes");
  if constexpr (sizeof(T) == 4) {
    uint32 x;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x) : "r"(from) : "memory");
    return __builtin_bit_cast(T, x);
  } else if constexpr (sizeof(T) == 8) {
    Words2 x;
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(x.x), "=r"(x.y) : "r"(from) : "memory");
    return __builtin_bit_cast(T, x);
  } else {
    Words4 x;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "r"(from)
                 : "memory");
    return __builtin_bit_cast(T, x);
  }
}
template <class T>
FLASHPROOF_DEVICE void store_shared(SharedAddress to, T value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16, "a shared store has 4, 8 or 16 bytes");
  if constexpr (sizeof(T) == 4) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(__builtin_bit_cast(uint32, value)) : "memory");
  } else if constexpr (sizeof(T) == 8) {
    const Words2 x = __builtin_bit_cast(Words2, value);
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(to), "r"(x.x), "r"(x.y) : "memory");
  } else {
    const Words4 x = __builtin_bit_cast(Words4, value);
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w)
                 : "memory");
  }
}

/// Starts a copy of 16 bytes, aligned to 16 on both sides; where nothing is `present`, 16 zero bytes arrive and `from`
/// is not read.
FLASHPROOF_DEVICE void copy_async_16(SharedAddress to, const void* from, bool present) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(__cvta_generic_to_global(from)),
               "r"(present ? 16 : 0)
               : "memory");
}
/// Ends a group of the thread's copies.
FLASHPROOF_DEVICE void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits until at most `pending` of the thread's latest groups are under way.
template <int pending>
FLASHPROOF_DEVICE void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

// ---- 8x8 matrices of 16-bit elements: lane n gives the address of row n % 8 of matrix n / 8, 16 bytes aligned to 16

/// Lane 4 g + q gets elements 2 q and 2 q + 1 of row g of each matrix.
FLASHPROOF_DEVICE void load_matrix_x4(uint32 (&r)[4], SharedAddress row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}
/// Lane 4 g + q gets elements g of rows 2 q and 2 q + 1 of each matrix.
FLASHPROOF_DEVICE void load_matrix_x4_transposed(uint32 (&r)[4], SharedAddress row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}

// ---- tensor core: c + a b, fragments as the PTX ISA lays out mma.m16n8k16 and m16n8k32 (row.col, fp32 accumulator)

#define FLASHPROOF_MULTIPLY_ADD(name, A, B, shape, types)                                     \
  template <>                                                                                 \
  FLASHPROOF_DEVICE void name<A, B>(float(&c)[4], const uint32(&a)[4], const uint32(&b)[2]) { \
    asm("mma.sync.aligned." shape ".row.col.f32." types                                       \
        ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                \
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                      \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                  \
  }

template <class A, class B>
__device__ void multiply_add_16x8x16(float (&c)[4], const uint32 (&a)[4], const uint32 (&b)[2]);
FLASHPROOF_MULTIPLY_ADD(multiply_add_16x8x16, Bf16, Bf16, "m16n8k16", "bf16.bf16")
FLASHPROOF_MULTIPLY_ADD(multiply_add_16x8x16, Fp16, Fp16, "m16n8k16", "f16.f16")

template <class A, class B>
__device__ void multiply_add_16x8x32(float (&c)[4], const uint32 (&a)[4], const uint32 (&b)[2]);
FLASHPROOF_MULTIPLY_ADD(multiply_add_16x8x32, E4m3, E4m3, "m16n8k32", "e4m3.e4m3")
FLASHPROOF_MULTIPLY_ADD(multiply_add_16x8x32, E4m3, E5m2, "m16n8k32", "e4m3.e5m2")
FLASHPROOF_MULTIPLY_ADD(multiply_add_16x8x32, E5m2, E4m3, "m16n8k32", "e5m2.e4m3")
FLASHPROOF_MULTIPLY_ADD(multiply_add_16x8x32, E5m2, E5m2, "m16n8k32", "e5m2.e5m2")
#undef FLASHPROOF_MULTIPLY_ADD

// ---- arithmetic

/// 2^x, relative error at most 2^-22.7; subnormal arguments and results are zeros (ex2.approx.ftz).
FLASHPROOF_DEVICE float ex2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
/// a b + c, rounded once.
FLASHPROOF_DEVICE float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
/// The other one where one is NaN.
FLASHPROOF_DEVICE float maximum(float a, float b) { return fmaxf(a, b); }
FLASHPROOF_DEVICE float divide(float a, float b) { return __fdiv_rn(a, b); }

/// Two numbers rounded to nearest, `low` in the lower bits of 32, or in fp8 of 16; in fp8 what is too large saturates.
template <class To>
__device__ uint32 pack_pair(float low, float high);
template <>
FLASHPROOF_DEVICE uint32 pack_pair<Bf16>(float low, float high) {
  uint32 result;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
  return result;
}
template <>
FLASHPROOF_DEVICE uint32 pack_pair<Fp16>(float low, float high) {
  uint32 result;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
  return result;
}
template <>
FLASHPROOF_DEVICE uint32 pack_pair<E4m3>(float low, float high) {
  unsigned short result;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(result) : "f"(high), "f"(low));
  return result;
}
template <>
FLASHPROOF_DEVICE uint32 pack_pair<E5m2>(float low, float high) {
  unsigned short result;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(result) : "f"(high), "f"(low));
  return result;
}

/// Byte n of the result is byte (selector >> 4 n) mod 8 of the eight bytes b:a, a the lower four.
FLASHPROOF_DEVICE uint32 permute_bytes(uint32 a, uint32 b, uint32 selector) { return __byte_perm(a, b, selector); }

}  // namespace flashproof
#endif
