// The tile operations of reference/tile_ops.h as a chip carries them out: tensor cores, ex2, conversions and a fixed
// logarithm by the models of kernels/hardware, the rest in fp32, each operation rounded to nearest.
//
//   multiply_add   instruction after instruction in ascending inner index, from C
//   exponent       fl(fl(s - m) c), c = fl(log2 e); where scores are not scaled fma(s, c, -fl(m c)), c = fl(scale
//                  log2 e); correction fl(fl(m_before - m) c), exp 2^x
//   row_sum        four lanes, key j of a tile in lane (j mod 8) / 2 as an m16n8 fragment holds it, added in ascending
//                  j; the total is (l_0 + l_2) + (l_1 + l_3)
//   tanh_ratio     1 - 2 / (1 + 2^(s k)), k = 2 log2 e / cap rounded once
//   round_p        of 2^k p, as it enters the tensor core: the value factor takes 2^-k
//   finish         fl(O w) + 0, w = fl(fl(1 / l) g), or 0 where l is 0. The sum makes -0 +0: an instruction of zeros
//                  does so to O and changes nothing else
//   lse            fma(m, unit, ln l), the unit of scores being scale where c has it, else 1
#pragma once
#include "kernels/hardware/convert.h"
#include "kernels/hardware/ex2.h"
#include "kernels/hardware/natural_log.h"
#include "kernels/hardware/tensor_core.h"
#include "reference/arithmetic.h"
#include "reference/head_of_inputs.h"

namespace flashproof {

/// The partial sums of a row, as four threads hold them.
struct FourLanes {
  float lane[4];
  FLASHPROOF_HD explicit FourLanes(float first) : lane{first, 0, 0, 0} {}
};
FLASHPROOF_HD inline FourLanes operator*(FourLanes sum, float factor) {
  for (float& lane : sum.lane) lane = lane * factor;
  return sum;
}

struct HardwareOps : ExactOps<float> {
  using RowSum = FourLanes;

  MatrixUnit scores, values;
  Argument argument = Argument::base2_fma;    ///< of exp: base2_fma or base2_subtract
  float exponent_factor = 0, score_unit = 1;  ///< c; what a score is in natural units
  float softcap_factor = 0;                   ///< k
  DType p_format = DType::bf16, output_format = DType::bf16;
  int p_scale_log2 = 0;

  FLASHPROOF_HD static float minus_infinity() { return -__builtin_huge_valf(); }
  void multiply_add(Array array, View<float> c, View<const float> a, View<const float> b) const {
    multiply_add_tile(array == Array::s ? scores : values, c.rows, c.columns, b.rows, a.data, a.row_stride,
                      a.column_stride, b.data, b.row_stride, c.data, c.row_stride);
  }
  FLASHPROOF_HD FourLanes row_sum(const float* x, int64 n, FourLanes sum) const {
    for (int64 j = 0; j < n; ++j) sum.lane[j % 8 / 2] += x[j];
    return sum;
  }
  FLASHPROOF_HD float total(const FourLanes& sum) const {
    return (sum.lane[0] + sum.lane[2]) + (sum.lane[1] + sum.lane[3]);
  }
  FLASHPROOF_HD float exponent(float s, float reference) const {
    return argument == Argument::base2_fma ? fused_multiply_add(s, exponent_factor, -(reference * exponent_factor))
                                           : (s - reference) * exponent_factor;
  }
  FLASHPROOF_HD float correction(float before, float reference) const { return (before - reference) * exponent_factor; }
  FLASHPROOF_HD float exp(float x) const { return ex2_approx(x); }
  FLASHPROOF_HD float log(float x) const { return natural_log(x); }
  FLASHPROOF_HD float tanh_ratio(float s, float) const { return 1 - 2 / (1 + ex2_approx(s * softcap_factor)); }
  FLASHPROOF_HD float lse(float maximum, float log_sum) const {
    return fused_multiply_add(maximum, score_unit, log_sum);
  }
  FLASHPROOF_HD float round_p(float p) const {
    return converted(p_format, p * float(power_of_two(p_scale_log2)), is_fp8(p_format));
  }
  FLASHPROOF_HD float finish(float accumulator, float sum, float factor) const {
    return accumulator * (sum == 0 ? 0.0f : 1 / sum * factor) + 0.0f;
  }
  FLASHPROOF_HD float round_output(float x) const { return converted(output_format, x, false); }

 private:
  FLASHPROOF_HD static float converted(DType format, float x, bool satfinite) {
    return float(decode(format, convert_rn(format, x, satfinite)));
  }
};

/// The operations that an Arithmetic declares which leaves nothing open (`unpredictable` in oracle/bits.h).
HardwareOps hardware_ops(const Problem&, const Arithmetic&);

/// The factors of a rule as the kernel forms them: no scale where the exponent has it; t_v 2^-k / (1 - rate), the last
/// quotient in double and rounded once.
template <class Biases>
void set_factors(const Inputs& in, const Arithmetic& a, const HeadIndex& at, ScoreRule<float, Biases>& rule) {
  if (a.scaled == Tristate::no) rule.scale = 1;
  const auto& dropout = in.problem.dropout;
  const float dropout_factor = dropout ? float(1 / (1 - double(dropout->rate))) : 1.0f;
  rule.value_factor = value_scale<float>(in, at) * dropout_factor * float(power_of_two(-a.p_scale_log2));
}

}  // namespace flashproof
