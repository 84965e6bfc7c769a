// Check `reject`: an illegal problem gets a clean refusal.
//
// One field of the flashproof_problem is spoiled; supports(), or else the call, must answer REJECTED: an OK would be a
// silent wrong answer, a crash or an ERROR no refusal. Which field, the data seed says: a campaign goes through all.
#include <cmath>
#include <limits>

#include "oracle/checks/checks.h"

namespace flashproof {
namespace {

bool applies(const Case&, const Subject&) { return true; }

std::vector<Run> plan(const Case& c, const Subject&) {
  const int mutations = illegal_mutation_count - 1;
  return {Run{.c = c, .placement = {}, .mutation = IllegalMutation(1 + int(c.recipe.seed % mutations))}};
}

Verdict judge(const Case&, const Subject&, std::span<const Run> runs, std::span<const RunResult> results) {
  Verdict v;
  v.check = "reject";
  for (size_t n = 0; n < runs.size(); ++n) {
    ++v.judged;
    if (results[n].status == RunStatus::rejected) continue;
    const std::string what = std::string("an illegal problem (") + name_of(runs[n].mutation) + ")";
    constexpr const char* answers[] = {"OK", "", "ERROR", "a crash", "a hang"};
    constexpr const char* kinds[] = {"accepted", "", "error", "crash", "timeout"};
    v.ratio = std::numeric_limits<double>::infinity();
    fail(v, kinds[int(results[n].status)],
         what + " got " + answers[int(results[n].status)] + " instead of REJECTED" +
             (results[n].message.empty() ? "" : ": " + results[n].message));
  }
  return v;
}

}  // namespace

const char* name_of(IllegalMutation mutation) {
  constexpr const char* names[illegal_mutation_count] = {
      "none",        "head_dim = 0",     "kv_heads = heads + 1", "dtype = 99",
      "scale = NaN", "window_left = -7", "dropout_rate = 1"};
  return names[int(mutation)];
}

void apply(IllegalMutation mutation, flashproof_problem& p) {
  switch (mutation) {
    case IllegalMutation::none:
      return;
    case IllegalMutation::head_dim_zero:
      p.head_dim = 0;
      return;
    case IllegalMutation::kv_heads_not_dividing:
      p.kv_heads = p.heads + 1;
      return;
    case IllegalMutation::unknown_dtype:
      p.dtype = 99;
      return;
    case IllegalMutation::scale_nan:
      p.scale = std::nanf("");
      return;
    case IllegalMutation::window_below_open:
      p.window_left = -7;
      return;
    case IllegalMutation::dropout_rate_one:
      p.dropout_rate = 1;
      return;
  }
}

const Check reject_check = {"reject", "exact: illegal problems are refused, never answered", applies, plan, judge};

}  // namespace flashproof
