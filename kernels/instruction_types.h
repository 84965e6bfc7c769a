// The types that device code passes to hardware instructions (kernels/ptx.cuh): number formats over their encodings,
// words of several bytes, addresses of shared memory. Freestanding: nvcc, NVRTC and host compilers take the same text.
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

template <DType>
struct ElementType;
template <>
struct ElementType<DType::bf16> {
  using Type = Bf16;
};
template <>
struct ElementType<DType::fp16> {
  using Type = Fp16;
};
template <>
struct ElementType<DType::e4m3> {
  using Type = E4m3;
};
template <>
struct ElementType<DType::e5m2> {
  using Type = E5m2;
};
template <DType dtype>
using Element = typename ElementType<dtype>::Type;

struct alignas(8) Words2 {
  uint32 x, y;
};
struct alignas(16) Words4 {
  uint32 x, y, z, w;
};

using SharedAddress = uint32;  ///< in bytes

}  // namespace flashproof
