// Check `exact_inputs`: inputs for which a correct kernel makes no rounding error, so that O is known bit for bit.
//
// q = 0 and neutral modifiers give scores 0, exp(0) = 1, every rescale 1; V holds integers of [-8, 8], and dropout of
// rate 1/2 doubles what it keeps. A row that sees n = 2^k keys has the row sum n, whose reciprocal is exact, and
//     O_i = (1/n) sum_j z_ij v_j,
// whose sums are integers below 16 n: exact in fp32 for n <= 2^20, in an fp8 tensor core's 13 fraction bits for n <=
// 2^9. One channel of one kv head is wider where the accumulator is said to hold fp32's 24 bits: integers of [-7, 7]
// times a unit, with 2^17 units at a key of the first half and -2^17 at one of the second, so that an accumulator of
// fewer bits loses what is left when they cancel; 2^17 + 7 n units are exact for n <= 2^20. Where
// P is normalised first, 1/n must be a number of P's format, times 2^k where P is (fp8: k = 8, n up to 2^17). Where O
// is kept normalised between tiles, there must be one tile. One rounding is left, that to the output's
// format, and it is known. A wrong key, a wrong tile edge, a wrong page or split changes the sum by at least 1/n.
// L = ln n is not exact, nor is what is computed from it: the check is forward only, leaves L to the check `bound`, and
// applies only to kernels that declare that they do not split the keys, as parts are combined by exp(L_part - L).
// Source: numerics.md 4.4.
#include <algorithm>
#include <cmath>

#include "oracle/checks/checks.h"
#include "reference/arithmetic.h"

namespace flashproof {
namespace {

/// Whether sums may span 24 bits: fp32 accumulation, or a tensor core that aligns and keeps as many.
bool holds_24_bits(const Problem& p, const Accumulation& values) {
  if (values.kind == Accumulation::tensor_core) return std::min(values.align_bits, values.keep_bits) >= 23;
  const bool fp8 = p.dtype == DType::e4m3 || p.dtype == DType::e5m2;
  return values.kind != Accumulation::unknown || !fp8;
}

/// Largest count of visible keys for which all is exact.
int64_t most_keys(const Problem& p, const Arithmetic& arithmetic) {
  int64_t most = holds_24_bits(p, arithmetic.values) ? 1 << 20 : 1 << 9;
  // O is divided by counts that are no powers of two between tiles; what a kernel leaves undeclared it may do.
  const bool divided_once =
      arithmetic.normalized == Normalization::last || arithmetic.normalized == Normalization::first;
  if (!divided_once && max_used_length(p.k, p.batch) > arithmetic.tile_n) return 0;
  const Format format = format_of(arithmetic.p_format < 0 ? p.dtype : DType(arithmetic.p_format));
  const double largest_weight = p.dropout && arithmetic.dropout != DropoutFactor::output ? 2 : 1;
  if (std::ldexp(largest_weight, arithmetic.p_scale_log2) > format.largest) return 0;
  if (arithmetic.normalized != Normalization::last) {
    // 2^least is the least subnormal number of P's format, in units of P; fp32 ones may be flushed.
    const int least = std::max(format.emin - format.precision + 1, -126) - arithmetic.p_scale_log2;
    most = std::min(most, int64_t(1) << std::clamp(-least, 0, 20));
  }
  return most;
}

/// n is a power of two, small enough.
bool exact_count(int64_t n, int64_t most) { return n > 0 && n <= most && (n & (n - 1)) == 0; }

/// Rows of one head whose count of visible keys allows an exact answer.
bool any_exact_row(const Problem& p, int64_t most) {
  const Packing packing = packing_of(p);
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t i = 0; i < packing.seq_q(b); ++i) {
      const KeyRange keys = visible_keys(p.mask, packing.seq_q(b), packing.seq_k(b), i);
      if (exact_count(keys.end - keys.begin, most)) return true;
    }
  return false;
}

bool applies(const Case& c, const Subject& subject) {
  const Arithmetic arithmetic = parse_arithmetic(subject.arithmetic);
  return arithmetic.splits == 1 && any_exact_row(c.problem, most_keys(c.problem, arithmetic));
}

/// The unit of the wide channel as a power of two: 7 units and 2^17 units are numbers of the format, and so is twice
/// the latter.
int wide_unit_log2(DType dtype) {
  if (dtype == DType::e4m3 || dtype == DType::e5m2) return -9;
  return dtype == DType::fp16 ? -3 : 0;
}

/// Spreads the values of one channel of one kv head over 18 bits, which cancel but for a few.
void widen_a_channel(Case& c) {
  const Problem& p = c.problem;
  const Packing packing = packing_of(p);
  const int64_t channel = int64_t(c.recipe.seed % uint64_t(p.value_dim));
  const int64_t kv_head = int64_t(c.recipe.seed / 7 % uint64_t(p.kv_heads));
  const int unit = wide_unit_log2(p.dtype);
  for (int64_t b = 0; b < p.batch; ++b) {
    const int64_t n = packing.seq_k(b);
    if (n < 2) continue;
    const int64_t up = int64_t(c.recipe.seed / 11 % uint64_t(n / 2));
    const int64_t down = n / 2 + int64_t(c.recipe.seed / 13 % uint64_t(n - n / 2));
    for (int64_t j = 0; j < n; ++j) {
      const double units = j == up ? 0x1p17 : j == down ? -0x1p17 : double((j * 5 + b + 3) % 15 - 7);
      c.sets.push_back({Operand::v, b, j, kv_head, channel, encode(p.dtype, std::ldexp(units, unit))});
    }
  }
}

std::vector<Run> plan(const Case& c, const Subject& subject) {
  Run run{.c = neutral_case(c, Family::exact, true), .placement = {}};
  if (holds_24_bits(c.problem, parse_arithmetic(subject.arithmetic).values)) widen_a_channel(run.c);
  return {run};
}

/// O_i of a row that sees the keys: sums of integers, exact in double.
std::vector<double> exact_row(const Inputs& in, const Where& at, KeyRange keys) {
  const Problem& p = in.problem;
  const int64_t kv_head = at.head / (p.heads / p.kv_heads);
  std::vector<double> sum(p.value_dim, 0);
  for (int64_t j = keys.begin; j < keys.end; ++j) {
    if (!keeps(p, at.b, at.head, at.position, j)) continue;
    const int64_t row = (in.packing.k_begin[at.b] + j) * p.kv_heads + kv_head;
    for (int64_t c = 0; c < p.value_dim; ++c) sum[c] += in.v.at(row * p.value_dim + c);
  }
  for (double& x : sum) x *= (p.dropout ? 2.0 : 1.0) / double(keys.end - keys.begin);
  return sum;
}

Verdict judge(const Case&, const Subject& subject, std::span<const Run> runs, std::span<const RunResult> results) {
  if (Verdict status = judge_status("exact_inputs", results); !status.check.empty()) return status;
  Verdict v;
  v.check = "exact_inputs";
  judge_memory(v, results[0].memory);
  const Inputs in = make_inputs(runs[0].c);
  const Problem& p = in.problem;
  const int64_t most = most_keys(p, parse_arithmetic(subject.arithmetic));
  const Tensor& o = results[0].outputs.o;
  for (int64_t row = 0; row < o.size() / p.value_dim; ++row) {
    Where at = locate(p, OutputId::o, row * p.value_dim);
    const KeyRange keys = visible_keys(p.mask, in.packing.seq_q(at.b), in.packing.seq_k(at.b), at.position);
    if (!exact_count(keys.end - keys.begin, most)) continue;
    const std::vector<double> expected = exact_row(in, at, keys);
    for (int64_t c = 0; c < p.value_dim; ++c) {
      ++v.judged;
      const double right = round_to(o.dtype, expected[c]), result = o.at(row * p.value_dim + c);
      if (result == right || v.status == Status::fail) continue;
      at.channel = c;
      at.index = row * p.value_dim + c;
      fail_at(v, at, std::isfinite(result) ? "value" : "nan",
              print(at) + " is " + number_text(result) + ", must be exactly " + number_text(right) +
                  ": with q = 0 and integer V over " + std::to_string(keys.end - keys.begin) + " keys nothing rounds");
    }
  }
  return unless_vacuous(v);
}

}  // namespace

const Check exact_inputs_check = {"exact_inputs", "exact: q = 0 and integer V leave a correct kernel nothing to round",
                                  applies, plan, judge};

}  // namespace flashproof
