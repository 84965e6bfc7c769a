// Check `bits`: every bit of O and L equals the prediction of oracle/bits.h.
//
// It applies where the declared Arithmetic leaves nothing open, every part of it has a model, O does not saturate, and
// a GPU that runs the kernel is certified to compute what the models do (oracle/bits_evidence.h).
// All NaN count as one. What no check judges (non-finite inputs, oracle/nonfinite.h; what the conventions leave
// undefined) is not judged here either; L of a row without keys is what the convention says.
// Large cases are predicted on a GPU where there is one (oracle/large_cases.h); where it differs from this host, the
// verdict is a failure of kind `predictors`, which is ours and not the kernel's.
#include "oracle/bits.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "oracle/bits_evidence.h"
#include "oracle/checks/checks.h"
#include "oracle/large_cases.h"
#include "oracle/nonfinite.h"

namespace flashproof {
namespace {

bool is_predicted(const Subject& subject, const Problem& p, OutputId id) {
  if (id != OutputId::o && id != OutputId::lse) return false;
  return is_judged(subject, p, id) && (id == OutputId::o || subject.conventions.lse_base == FLASHPROOF_LSE_NATURAL);
}

std::string unfit(const Case& c, const Subject& subject) {
  if (!is_judged(subject, c.problem, OutputId::o)) return "only O and L are predicted, and no forward runs";
  if (subject.conventions.saturates) return "the kernel's O saturates, which the prediction does not";
  const std::string reason = unpredictable(c.problem, parse_arithmetic(subject.arithmetic));
  return reason.empty() ? "" : reason + "; bits are predicted where each word of the arithmetic has a model";
}

std::string missing(const Case& c, const Subject& subject) {
  return unfit(c, subject).empty() ? uncertified(c.problem, parse_arithmetic(subject.arithmetic), subject) : "";
}

bool applies(const Case& c, const Subject& subject) { return unfit(c, subject).empty() && missing(c, subject).empty(); }

std::vector<Run> plan(const Case& c, const Subject&) { return {Run{.c = c, .placement = {}}}; }

std::string encoded_text(const Tensor& tensor, int64_t index) {
  return bits_text(tensor, index) + " (" + number_text(tensor.at(index)) + ")";
}

/// Elements that differ from the prediction: the first of them, how many, and the largest distance.
struct Difference {
  Where first;
  std::string what;  ///< of the first
  int64_t count = 0;
  double most_ulps = 0;

  void add(const Problem& p, OutputId id, const Tensor& result, const Tensor& expected, int64_t index) {
    const double x = result.at(index), y = expected.at(index), distance = std::abs(x - y) / ulp(expected.dtype, y);
    if (count++ == 0) {
      first = locate(p, id, index);
      what = print(first) + " is " + encoded_text(result, index) + ", predicted " + encoded_text(expected, index);
    }
    most_ulps = std::max(most_ulps, std::isfinite(distance) ? distance : std::numeric_limits<double>::infinity());
  }
};

/// The prediction of one output, with the conventions' L of rows without keys, and which elements are not judged.
struct Expected {
  Tensor tensor;
  std::vector<uint8_t> skipped;
};
Expected expected_of(const Inputs& in, const Subject& subject, const Outputs& predicted, const Judgements& nonfinite,
                     OutputId id) {
  Expected expected{tensor_of(predicted, id), {}};
  expected.skipped.assign(expected.tensor.size(), 0);
  const int64_t width = id == OutputId::o ? in.problem.value_dim : 1;
  const std::optional<double> lse = empty_lse(subject);
  for (int64_t index = 0; index < expected.tensor.size(); ++index) {
    expected.skipped[index] = nonfinite.at(id, index) == Judgement::not_judged;
    if (in.problem.sink || predicted.lse.at(index / width) != -std::numeric_limits<double>::infinity()) continue;
    if (!sees_no_key(in, locate(in.problem, id, index))) continue;
    if (id == OutputId::lse && lse) expected.tensor.set_bits(index, encode(DType::fp32, *lse));
    expected.skipped[index] |= id == OutputId::lse ? !lse : !empty_o_defined(subject);
  }
  return expected;
}

void compare(Verdict& v, const Problem& p, OutputId id, const Tensor& result, const Expected& expected,
             Difference& difference) {
  for (int64_t index = 0; index < result.size(); ++index) {
    if (expected.skipped[index]) continue;
    ++v.judged;
    const bool both_nan = std::isnan(result.at(index)) && std::isnan(expected.tensor.at(index));
    if (result.bits(index) != expected.tensor.bits(index) && !both_nan)
      difference.add(p, id, result, expected.tensor, index);
  }
}

Verdict judge(const Case& c, const Subject& subject, std::span<const Run>, std::span<const RunResult> results) {
  return judge_bits(c, subject, results, cuda_oracle);
}

}  // namespace

Verdict judge_bits(const Case& c, const Subject& subject, std::span<const RunResult> results, const GpuOracle& gpu) {
  if (Verdict status = judge_status("bits", results); !status.check.empty()) return status;
  Verdict v;
  v.check = "bits";
  v.assumed = evidence_text(subject);
  if (const std::string undefined = undefined_conventions(subject); !undefined.empty()) v.assumed += "; " + undefined;
  judge_memory(v, results[0].memory);
  const CasePrediction prediction = predict_case(c, parse_arithmetic(subject.arithmetic), gpu);
  if (!prediction.difference.empty()) {
    fail(v, "predictors", "an error of Flashproof, not of the kernel: " + prediction.difference);
    return v;
  }
  if (prediction.on_gpu) v.assumed += prediction.compared ? "; predicted by GPU and host" : "; predicted on the GPU";
  const Judgements nonfinite = judge_nonfinite(prediction.in, subject.conventions.bears_hidden_nan != 0);
  Difference difference;
  for (const OutputId id : {OutputId::o, OutputId::lse})
    if (is_predicted(subject, c.problem, id))
      compare(v, c.problem, id, tensor_of(results[0].outputs, id),
              expected_of(prediction.in, subject, prediction.outputs, nonfinite, id), difference);
  if (difference.count > 0)
    fail_at(v, difference.first, "bits",
            difference.what + "; " + std::to_string(difference.count) + " of " + std::to_string(v.judged) +
                " elements differ from the declared arithmetic, by at most " + number_text(difference.most_ulps) +
                " ulp");
  return unless_vacuous(v);
}

const Check bits_check = {
    "bits", "exact: every bit of O and L is that of the declared arithmetic", applies, plan, judge, missing, unfit};

}  // namespace flashproof
