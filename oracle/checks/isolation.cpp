// Check `isolation`: what lies outside the problem, or is hidden from every row, changes no bit; nothing else is
// written.
//
// Two runs of one case. A: NaN in padding, unused page slots and stride gaps of the inputs. B: finite noise there,
// other poison in outputs and workspace, and the largest finite numbers (NaN where the kernel declares that it bears
// it) in keys that the mask hides from every row. Outputs must be the same bits (all NaN count as one); red zones and
// inputs untouched; every output element written; tails as the convention says. Gradients of a kernel that is not
// deterministic are not compared, nor what a hidden NaN of the case itself may reach (oracle/nonfinite.h).
#include <cmath>

#include "oracle/checks/checks.h"
#include "oracle/nonfinite.h"

namespace flashproof {
namespace {

bool applies(const Case&, const Subject&) { return true; }

std::vector<Run> plan(const Case& c, const Subject&) {
  return {Run{.c = c, .placement = {.nan_outside = true, .largest_hidden = false, .poison = 1}},
          Run{.c = c, .placement = {.nan_outside = false, .largest_hidden = true, .poison = 2}}};
}

/// The same number, or both NaN.
bool same(const Tensor& a, const Tensor& b, int64_t n) {
  return a.bits(n) == b.bits(n) || (std::isnan(a.at(n)) && std::isnan(b.at(n)));
}

void compare(Verdict& v, const Case& c, const Judgements& nonfinite, OutputId id, const Tensor& a, const Tensor& b) {
  for (int64_t n = 0; n < a.size(); ++n) {
    if (nonfinite.at(id, n) == Judgement::not_judged) continue;
    ++v.judged;
    if (same(a, b, n) || v.status == Status::fail) continue;
    const Where at = locate(c.problem, id, n);
    fail_at(v, at, "leak",
            print(at) + " is " + number_text(a.at(n)) + " with NaN outside the tensors and " + number_text(b.at(n)) +
                " with noise there and the largest numbers in hidden keys: something it must not read changed it");
  }
}

Verdict judge(const Case& c, const Subject& subject, std::span<const Run>, std::span<const RunResult> results) {
  if (Verdict status = judge_status("isolation", results); !status.check.empty()) return status;
  Verdict v;
  v.check = "isolation";
  v.assumed = undefined_conventions(subject);
  for (const RunResult& result : results) judge_memory(v, result.memory);
  const Judgements nonfinite = judge_nonfinite(make_inputs(c), subject.conventions.bears_hidden_nan != 0);
  for (int id = 0; id < output_count; ++id) {
    const bool gradient = id >= int(OutputId::dq);
    if (!is_judged(subject, c.problem, OutputId(id)) || (gradient && !subject.conventions.deterministic)) continue;
    compare(v, c, nonfinite, OutputId(id), tensor_of(results[0].outputs, OutputId(id)),
            tensor_of(results[1].outputs, OutputId(id)));
  }
  return v;
}

}  // namespace

const Check isolation_check = {"isolation", "exact: memory outside the problem changes no bit and is not written",
                               applies, plan, judge};

}  // namespace flashproof
