// The arithmetic of NVIDIA's tensor cores with an fp32 accumulator, bit for bit: C + sum_k a_k b_k in fused steps.
//
// A step adds `products` products to the accumulator:
//   terms      t_0 = C and t_k = a_k b_k, exact. An operand is +-significand 2^e with significand in [1, 2), or with
//              significand < 1 and e = emin where it is subnormal; e(t_k) = e(a_k) + e(b_k), whatever |t_k|.
//   alignment  E = max e(t) over the terms that are not zero, and at least least_exponent; every term is truncated
//              toward zero to a multiple of 2^(E - align_bits).
//   sum        exact, then truncated toward zero to keep_bits fraction bits and to a multiple of 2^-149; from 2^128
//              infinity; what is zero then is +0.
//   NaN        a NaN, inf * 0 or inf - inf gives 0x7fffffff; else infinity gives infinity.
// An instruction's k products are steps in ascending k, each on the result of the one before.
//
// fp8 through mma.sync on sm_90 is converted to fp16: `run` > 0. Of an instruction's 32 products those of even k / run
// make a first step from C = 0, the others a second one on its result t; then C = fl(C + t) to nearest. As operands lie
// in registers run = 2; where a kernel permutes keys so that a lane's are neighbours, run = 8.
//
// Sources: Xie et al., MMA-Sim, arXiv 2511.10909; Khattak and Mikaitis, arXiv 2512.07004, figure 5; for sm_90 an H200,
// whose certificate is in tests/certificates. The two papers differ on the least E of fp32 sums; the H200 does as the
// second says, -133. Of fp8 through mma.sync: the machine code of ptxas 13.0, which unpacks the two lower bytes of each
// register, then the two upper ones, for two HMMA.16816 and adds C by an FADD. sm_80 and sm_89 are from MMA-Sim, table 4,
// and not measured here. `flashproof certify` compares with the GPU at hand.
#pragma once
#include "reference/formats.h"

namespace flashproof {

enum class Architecture : int { sm_80, sm_89, sm_90 };
enum class MatrixInstruction : int { mma_sync, wgmma };

struct MatrixUnit {
  DType a = DType::bf16, b = DType::bf16;
  int products = 0;                    ///< summed in one step; 0: the architecture has no such instruction
  int align_bits = 0, keep_bits = 23;  ///< fraction bits of the aligned terms and of the result
  int run = 0;                         ///< 0: plain steps; else fp8 by way of fp16, in two groups by alternating runs
  int least_exponent = -133;           ///< E is at least this; only products of bf16 are smaller
};

FLASHPROOF_HD constexpr bool is_fp8(DType dtype) { return dtype == DType::e4m3 || dtype == DType::e5m2; }

/// Products of one instruction for one output: mma.sync m16n8k16 or m16n8k32, wgmma k16 or k32.
FLASHPROOF_HD constexpr int products_an_instruction(const MatrixUnit& unit) { return is_fp8(unit.a) ? 32 : 16; }

/// Which product of an instruction stands at position n of its steps' order.
FLASHPROOF_HD constexpr int product_at(const MatrixUnit& unit, int n) {
  if (unit.run == 0) return n;
  const int group = n / 16, m = n % 16;
  return m / unit.run * 2 * unit.run + group * unit.run + m % unit.run;
}

// Where operands are decoded ahead of a step: exponents that say more than a number's size, and keep saying it in a sum
// of two.
constexpr int exponent_of_zero = -10000, exponent_of_special = 30000;

/// The unit that carries out the instruction. bf16 and fp16 do not mix, the fp8 formats do.
FLASHPROOF_HD constexpr MatrixUnit matrix_unit(Architecture chip, MatrixInstruction instruction, DType a, DType b) {
  const bool fp8 = is_fp8(a) && is_fp8(b);
  const bool sixteen_bits = a == b && (a == DType::bf16 || a == DType::fp16);
  if (!fp8 && !sixteen_bits) return {a, b, 0, 0, 0, 0};
  if (instruction == MatrixInstruction::wgmma) {
    if (chip != Architecture::sm_90) return {a, b, 0, 0, 0, 0};
    return fp8 ? MatrixUnit{a, b, 32, 13, 13, 0} : MatrixUnit{a, b, 16, 25, 23, 0};
  }
  if (chip == Architecture::sm_90) return {a, b, 16, 25, 23, fp8 ? 2 : 0};
  if (!fp8) return {a, b, 8, 24, 23, 0};
  return chip == Architecture::sm_89 ? MatrixUnit{a, b, 16, 13, 13, 0} : MatrixUnit{a, b, 0, 0, 0, 0};
}

namespace tensor_core {

/// A number: significand 2^(exponent - fraction bits of its format); exponents of subnormals are emin.
struct Operand {
  int significand, exponent;
  bool infinite, nan;
};

/// Reads numbers of one format.
struct Reader {
  int bits, fraction_bits, emin;
  uint32 infinity;  ///< the least magnitude that is no finite number; in e4m3 it is NaN
  bool has_infinity;

  FLASHPROOF_HD constexpr explicit Reader(DType dtype)
      : bits(format_of(dtype).bits),
        fraction_bits(format_of(dtype).precision - 1),
        emin(format_of(dtype).emin),
        infinity(largest_bits(dtype) + 1),
        has_infinity(format_of(dtype).has_infinity) {}

  FLASHPROOF_HD constexpr Operand read(uint32 word) const {
    const uint32 magnitude = word & ((1u << (bits - 1)) - 1), fraction = magnitude & ((1u << fraction_bits) - 1);
    const uint32 field = magnitude >> fraction_bits;
    const int size = int(field == 0 ? fraction : fraction | 1u << fraction_bits);
    return {word >> (bits - 1) & 1 ? -size : size, (field == 0 ? 1 : int(field)) - 1 + emin,
            has_infinity && magnitude == infinity, magnitude >= infinity + has_infinity};
  }
};

/// Where exceptional operands lead.
struct Exceptions {
  bool nan = false, plus = false, minus = false;

  FLASHPROOF_HD constexpr void add(bool is_nan, bool infinite, int sign) {
    nan = nan || is_nan || (infinite && sign == 0);
    plus = plus || (infinite && sign > 0);
    minus = minus || (infinite && sign < 0);
  }
  FLASHPROOF_HD constexpr bool any() const { return nan || plus || minus; }
  FLASHPROOF_HD constexpr float result() const {
    return __builtin_bit_cast(float, nan || (plus && minus) ? 0x7fffffffu : plus ? 0x7f800000u : 0xff800000u);
  }
};

/// significand 2^shift, truncated toward zero.
FLASHPROOF_HD constexpr int64 shifted(int64 significand, int shift) {
  if (significand == 0 || shift < -62) return 0;
  if (shift >= 0) return significand * (1l << shift);
  return significand < 0 ? -(-significand >> -shift) : significand >> -shift;
}

/// sum 2^scale truncated toward zero to 1 + keep_bits significant bits, to a multiple of 2^-149, and to fp32.
FLASHPROOF_HD constexpr float truncated(int64 sum, int scale, int keep_bits) {
  if (sum == 0) return 0.0f;
  // |sum| < 2^53, so that the double is exact and its leading bits are those of the sum.
  const uint64 word = __builtin_bit_cast(uint64, double(sum < 0 ? -sum : sum)) & ~0ul << (52 - keep_bits);
  const double magnitude = __builtin_bit_cast(double, word) * power_of_two(scale);
  uint32 bits = 0x7f800000u;
  if (magnitude < 0x1p-126)
    bits = uint32(magnitude * 0x1p149);
  else if (magnitude < 0x1p128)
    bits = __builtin_bit_cast(uint32, float(magnitude));
  return __builtin_bit_cast(float, bits | (sum < 0 && bits != 0 ? 0x80000000u : 0u));
}

/// One step: c and unit.products products; position n holds operand (n / run) stride + n % run of a and of b.
FLASHPROOF_HD inline float step(const MatrixUnit& unit, const uint32* a, const uint32* b, float c, int run,
                                int stride) {
  const Reader a_reader(unit.a), b_reader(unit.b);
  const Operand accumulator = Reader(DType::fp32).read(__builtin_bit_cast(uint32, c));
  Exceptions exceptions;
  exceptions.add(accumulator.nan, accumulator.infinite, accumulator.significand);
  int top = unit.least_exponent;
  if (accumulator.significand != 0 && accumulator.exponent > top) top = accumulator.exponent;
  int product[32], exponent[32];
  for (int n = 0, k = 0; n < unit.products; k += stride)
    for (int m = 0; m < run; ++m, ++n) {
      const Operand x = a_reader.read(a[k + m]), y = b_reader.read(b[k + m]);
      product[n] = x.significand * y.significand;
      exponent[n] = x.exponent + y.exponent;
      exceptions.add(x.nan || y.nan, x.infinite || y.infinite, product[n]);
      if (product[n] != 0 && exponent[n] > top) top = exponent[n];
    }
  if (exceptions.any()) return exceptions.result();
  const int scale = top - unit.align_bits;
  int64 sum = shifted(accumulator.significand, accumulator.exponent - 23 - scale);
  const int fraction_bits = a_reader.fraction_bits + b_reader.fraction_bits;
  for (int n = 0; n < unit.products; ++n) sum += shifted(product[n], exponent[n] - fraction_bits - scale);
  return truncated(sum, scale, unit.keep_bits);
}

}  // namespace tensor_core

/// One instruction for one output: c + sum_k a_k b_k over its 16 (bf16, fp16) or 32 (fp8) products, k ascending,
/// encoded in the unit's formats. unit.products > 0.
FLASHPROOF_HD inline float fused_step(const MatrixUnit& unit, const uint32* a, const uint32* b, float c) {
  if (unit.run == 0) {
    for (int first = 0; first < products_an_instruction(unit); first += unit.products)
      c = tensor_core::step(unit, a + first, b + first, c, unit.products, unit.products);
    return c;
  }
  // Exact: fp16 holds every fp8 number, and its emin is e5m2's; subnormals of e4m3 become normal numbers of fp16.
  uint32 x[32], y[32];
  for (int k = 0; k < 32; ++k) {
    x[k] = unit.a == DType::e5m2 ? a[k] << 8 : encode(DType::fp16, decode(unit.a, a[k]));
    y[k] = unit.b == DType::e5m2 ? b[k] << 8 : encode(DType::fp16, decode(unit.b, b[k]));
  }
  const MatrixUnit fp16{DType::fp16, DType::fp16, 16, unit.align_bits, unit.keep_bits, 0};
  const float first = tensor_core::step(fp16, x, y, 0.0f, unit.run, 2 * unit.run);
  const float sum = c + tensor_core::step(fp16, x + unit.run, y + unit.run, first, unit.run, 2 * unit.run);
  return sum == sum ? sum : __builtin_bit_cast(float, 0x7fffffffu);
}

/// C += A B, instruction after instruction in ascending inner index; inner is padded with zeros to whole instructions.
/// Element (i, k) of A is a[i a_row_stride + k a_column_stride], (k, j) of B is b[k b_row_stride + j], (i, j) of C is
/// c[i c_row_stride + j]; strides in elements. a and b hold numbers of the unit's formats exactly. Every element of C
/// gets the bits that fused_step gives. Throws std::invalid_argument where the architecture has no such instruction.
void multiply_add_tile(const MatrixUnit&, int64 rows, int64 columns, int64 inner, const float* a, int64 a_row_stride,
                       int64 a_column_stride, const float* b, int64 b_row_stride, float* c, int64 c_row_stride);

}  // namespace flashproof
