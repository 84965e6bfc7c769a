// The instructions of kernels/ptx.cuh on the simulated multiprocessor (simulate.h): what the GPU does, and a check of
// it.
//
// Every function that can be used wrongly ends with the place that names it, so that a SimulatedFault says the kernel's
// line. An address is a pointer to a registered region of global memory or a byte address in the block's shared memory.
#pragma once
#include <type_traits>

#include "kernels/hardware/convert.h"
#include "kernels/hardware/ex2.h"
#include "kernels/instruction_types.h"
#include "kernels/simulator/fragments.h"
#include "kernels/simulator/machine.h"

namespace flashproof {

inline int thread_index() { return simulator::machine().thread(); }
inline int block_index(int axis) { return simulator::machine().block(axis); }
inline int block_count(int axis) { return simulator::machine().blocks(axis); }
inline SharedAddress dynamic_shared() { return simulator::SharedMemory::first_address; }

/// Loads and stores have 1, 2, 4, 8 or 16 bytes, in shared memory at least 4, aligned to their size.
template <class T>
constexpr bool is_access_type = std::is_trivially_copyable_v<T> && sizeof(T) <= 16 &&
                                (sizeof(T) & (sizeof(T) - 1)) == 0;

template <class T>
T load_global(const T* from, SourcePlace where = SourcePlace::here()) {
  static_assert(is_access_type<T>);
  simulator::Machine& chip = simulator::machine();
  chip.global().read(from, sizeof(T), chip.lane(), where);
  return *from;
}

template <class T>
void store_global(T* to, T x, SourcePlace where = SourcePlace::here()) {
  static_assert(is_access_type<T>);
  simulator::Machine& chip = simulator::machine();
  chip.global().write(to, sizeof(T), chip.lane(), where);
  *to = x;
}

template <class T>
T load_shared(SharedAddress from, SourcePlace where = SourcePlace::here()) {
  static_assert(is_access_type<T> && sizeof(T) >= 4);
  simulator::Machine& chip = simulator::machine();
  T x;
  __builtin_memcpy(&x, chip.shared().read(from, sizeof(T), chip.lane(), where), sizeof(T));
  return x;
}

template <class T>
void store_shared(SharedAddress to, T x, SourcePlace where = SourcePlace::here()) {
  static_assert(is_access_type<T> && sizeof(T) >= 4);
  simulator::Machine& chip = simulator::machine();
  __builtin_memcpy(chip.shared().write(to, sizeof(T), chip.lane(), where), &x, sizeof(T));
}

/// cp.async of 16 bytes; not present: zeros, and `from` is not looked at.
inline void copy_async_16(SharedAddress to, const void* from, bool present, SourcePlace where = SourcePlace::here()) {
  simulator::Machine& chip = simulator::machine();
  chip.copies().issue(chip.shared(), chip.global(), chip.draws(), to, present ? from : nullptr, chip.lane(), where);
}

inline void copy_async_commit() { simulator::machine().copies().commit(); }

/// Until at most `pending` of the thread's latest groups are in flight.
template <int pending>
void copy_async_wait() {
  simulator::Machine& chip = simulator::machine();
  chip.copies().wait(chip.shared(), pending, chip.lane());
}

inline void block_barrier(SourcePlace where = SourcePlace::here()) {
  simulator::Machine& chip = simulator::machine();
  chip.barrier(0, chip.threads(), true, where);
}

inline void named_barrier(int id, int threads, SourcePlace where = SourcePlace::here()) {
  simulator::machine().barrier(id, threads, false, where);
}

inline void warp_barrier(SourcePlace where = SourcePlace::here()) { simulator::machine().warp_barrier(where); }

/// x of the lane whose number differs from the caller's in the bits of `mask`.
inline uint32 lane_exchange(uint32 x, int mask, SourcePlace where = SourcePlace::here()) {
  struct Operand {
    uint32 x, result;
    int mask;
  } mine{x, 0, mask};
  simulator::machine().meet("lane_exchange", mine, where, [](auto operand) {
    for (int lane = 0; lane < 32; ++lane) operand(lane).result = operand((lane ^ operand(lane).mask) & 31).x;
  });
  return mine.result;
}

inline float lane_exchange(float x, int mask, SourcePlace where = SourcePlace::here()) {
  return std::bit_cast<float>(lane_exchange(std::bit_cast<uint32>(x), mask, where));
}

/// True if x is true in any lane of the warp.
inline bool any_lane(bool x, SourcePlace where = SourcePlace::here()) {
  simulator::machine().meet("any_lane", x, where, [](auto operand) {
    bool any = false;
    for (int lane = 0; lane < 32; ++lane) any = any || operand(lane);
    for (int lane = 0; lane < 32; ++lane) operand(lane) = any;
  });
  return x;
}

/// Four 8 x 8 matrices of 16-bit numbers; `row` is the address of row l % 8 of matrix l / 8 in lane l, 16 bytes.
inline void load_matrix_x4(uint32 (&r)[4], SharedAddress row, SourcePlace where = SourcePlace::here()) {
  simulator::MatrixRegisters mine{row, r};
  simulator::load_matrices(mine, false, where);
}

inline void load_matrix_x4_transposed(uint32 (&r)[4], SharedAddress row, SourcePlace where = SourcePlace::here()) {
  simulator::MatrixRegisters mine{row, r};
  simulator::load_matrices(mine, true, where);
}

/// C += A B, 16 x 8 outputs; A and B are Bf16 or Fp16, both the same.
template <class A, class B>
void multiply_add_16x8x16(float (&c)[4], const uint32 (&a)[4], const uint32 (&b)[2],
                          SourcePlace where = SourcePlace::here()) {
  static_assert(A::dtype == B::dtype && (A::dtype == DType::bf16 || A::dtype == DType::fp16));
  simulator::ProductRegisters mine{c, a, b};
  simulator::multiply_add(mine, A::dtype, B::dtype, where);
}

/// C += A B, 16 x 8 outputs; A and B are E4m3 or E5m2.
template <class A, class B>
void multiply_add_16x8x32(float (&c)[4], const uint32 (&a)[4], const uint32 (&b)[2],
                          SourcePlace where = SourcePlace::here()) {
  static_assert(is_fp8(A::dtype) && is_fp8(B::dtype));
  simulator::ProductRegisters mine{c, a, b};
  simulator::multiply_add(mine, A::dtype, B::dtype, where);
}

inline float ex2(float x) { return ex2_approx(x); }                                // ex2.approx.ftz.f32
inline float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }  // fma.rn.f32
inline float divide(float a, float b) { return a / b; }                            // div.rn.f32

/// max.f32: a number goes before NaN, +0 before -0.
inline float maximum(float a, float b) {
  if (a != a) return b == b ? b : std::bit_cast<float>(0x7fffffffu);
  if (b != b) return a;
  if (a == b) return std::bit_cast<float>(std::bit_cast<uint32>(a) & std::bit_cast<uint32>(b));
  return a < b ? b : a;
}

/// cvt.rn.bf16x2.f32, cvt.rn.f16x2.f32, cvt.rn.satfinite.e4m3x2.f32, cvt.rn.satfinite.e5m2x2.f32 (in the lower 16
/// bits).
template <class To>
uint32 pack_pair(float low, float high) {
  constexpr bool fp8 = is_fp8(To::dtype);
  return convert_rn(To::dtype, low, fp8) | convert_rn(To::dtype, high, fp8) << format_of(To::dtype).bits;
}

/// Byte n of the result is byte (selector >> 4 n) mod 8 of the eight bytes b:a, a the lower four (prmt.b32).
inline uint32 permute_bytes(uint32 a, uint32 b, uint32 selector) {
  const uint64 bytes = uint64(b) << 32 | a;
  uint32 result = 0;
  for (int n = 0; n < 4; ++n) result |= uint32(bytes >> 8 * (selector >> 4 * n & 7) & 0xff) << 8 * n;
  return result;
}

}  // namespace flashproof
