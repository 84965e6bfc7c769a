// The steps of a tensor core (kernels/hardware/tensor_core.h) on operands that were decoded once, in ordinary fp32 and
// int32 instructions.
//
// With E = max e(t) in [-100, 100] a step is exact here: a product of two 11-bit significands is an fp32 number; times
// 2^(align_bits - E) it is below 2^27 and converts to int32 by truncation, which is the alignment; 16 of them (of fp8,
// below 2^15, 32) sum within int32, and the accumulator joins them in 64 bits. What is out of that range, and every
// infinity and NaN, is left to tensor_core::step.
#pragma once
#include "kernels/hardware/tensor_core.h"

namespace flashproof {

/// A number as a step reads it; the exponent of a subnormal is its format's least.
struct alignas(8) DecodedOperand {
  float value = 0;
  int32 exponent = exponent_of_zero;
};

/// `x` is a number of a format whose least normal exponent is `emin`.
FLASHPROOF_HD inline DecodedOperand decoded_operand(float x, int emin) {
  const int field = int(__builtin_bit_cast(uint32, x) >> 23 & 255), exponent = field - 127 > emin ? field - 127 : emin;
  return {x, x == 0 ? exponent_of_zero : field == 255 ? exponent_of_special : exponent};
}

/// The unit of one step: fp8 that goes by way of fp16 multiplies fp16 numbers.
FLASHPROOF_HD constexpr MatrixUnit unit_of_step(const MatrixUnit& unit) {
  return unit.run == 0 ? unit : MatrixUnit{DType::fp16, DType::fp16, 16, unit.align_bits, unit.keep_bits, 0};
}

/// The step by its definition, from encoded operands. Not inlined: it is rare and needs many registers.
__attribute__((noinline)) FLASHPROOF_HD inline float encoded_step(const MatrixUnit& unit, const DecodedOperand* a,
                                                                  const DecodedOperand* b, int64 b_stride, float c) {
  uint32 x[32], y[32];
  for (int n = 0; n < unit.products; ++n) {
    x[n] = encode(unit.a, a[n].value);
    y[n] = encode(unit.b, b[n * b_stride].value);
  }
  return tensor_core::step(unit, x, y, c, unit.products, unit.products);
}

/// c and the products a[n] b[n b_stride]; `products` is unit.products, of a unit that unit_of_step gave.
template <int products>
FLASHPROOF_HD inline float decoded_step(const MatrixUnit& unit, const DecodedOperand* a, const DecodedOperand* b,
                                        int64 b_stride, float c) {
  float product[products];
  int top = decoded_operand(c, -126).exponent;
  for (int n = 0; n < products; ++n) {
    const DecodedOperand x = a[n], y = b[n * b_stride];
    product[n] = x.value * y.value;
    top = x.exponent + y.exponent > top ? x.exponent + y.exponent : top;
  }
  if (top < exponent_of_zero / 2) return 0.0f;  // all terms are zero
  if (top < -100 || top > 100) return encoded_step(unit, a, b, b_stride, c);
  const float scale = __builtin_bit_cast(float, uint32(unit.align_bits - top + 127) << 23);
  int32 sum = 0;
  for (int n = 0; n < products; ++n) sum += int32(product[n] * scale);
  return tensor_core::truncated(int64(sum) + int32(c * scale), top - unit.align_bits, unit.keep_bits);
}

/// fused_step of one instruction, its operands in the steps' order.
FLASHPROOF_HD inline float decoded_instruction(const MatrixUnit& unit, const DecodedOperand* a, const DecodedOperand* b,
                                               int64 b_stride, float c) {
  const MatrixUnit step = unit_of_step(unit);
  if (step.products == 32) return decoded_step<32>(step, a, b, b_stride, c);
  if (unit.run == 0) return decoded_step<16>(step, a, b, b_stride, c);
  const float first = decoded_step<16>(step, a, b, b_stride, 0.0f);
  const float sum = c + decoded_step<16>(step, a + 16, b + 16 * b_stride, b_stride, first);
  return sum == sum ? sum : __builtin_bit_cast(float, 0x7fffffffu);
}

}  // namespace flashproof
