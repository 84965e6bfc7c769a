// Check `reject`: an illegal problem, and a legal one with a feature that the kernel says it lacks, get a clean refusal.
//
// The first run spoils one field of the flashproof_problem; supports(), or else the call, must answer REJECTED: an OK would be a
// silent wrong answer, a crash or an ERROR no refusal. The second asks for a feature that is missing in the kernel's feature
// bits, if one is. Which field and which feature, the data seed says: a campaign goes through all.
#include <cmath>
#include <limits>

#include "oracle/checks/checks.h"

namespace flashproof {
namespace {

struct Feature {
  uint64_t bit;
  void (*ask)(Problem&);
};

/// Features that any problem can be given.
constexpr Feature features[] = {
    {FLASHPROOF_FEATURE_CAUSAL, [](Problem& p) { p.mask.causal = true; }},
    {FLASHPROOF_FEATURE_WINDOW, [](Problem& p) { p.mask.window_left = 1; }},
    {FLASHPROOF_FEATURE_SOFTCAP, [](Problem& p) { p.softcap = 20; }},
    {FLASHPROOF_FEATURE_ALIBI, [](Problem& p) { p.alibi = Alibi::per_head; }},
    {FLASHPROOF_FEATURE_BIAS, [](Problem& p) { p.bias = Bias{.key = true}; }},
    {FLASHPROOF_FEATURE_SINK, [](Problem& p) { p.sink = true; }},
    {FLASHPROOF_FEATURE_DROPOUT, [](Problem& p) { p.dropout = Dropout{.rate = 0.25f, .seed = 1}; }},
    {FLASHPROOF_FEATURE_BACKWARD, [](Problem& p) { p.direction = Direction::backward; }},
};

bool applies(const Case&, const Subject&) { return true; }

std::vector<Run> plan(const Case& c, const Subject& subject) {
  const int mutations = illegal_mutation_count - 1;
  std::vector<Run> runs{Run{.c = c, .placement = {}, .mutation = IllegalMutation(1 + int(c.recipe.seed % mutations))}};
  std::vector<Feature> missing;
  for (const Feature& feature : features)
    if (!(subject.features & feature.bit)) missing.push_back(feature);
  if (!missing.empty()) {
    Run run{.c = c, .placement = {}};
    run.c.sets.clear();  // they may name an operand that the new problem has in another shape
    missing[c.recipe.seed % missing.size()].ask(run.c.problem);
    runs.push_back(run);
  }
  return runs;
}

Verdict judge(const Case&, const Subject&, std::span<const Run> runs, std::span<const RunResult> results) {
  Verdict v;
  v.check = "reject";
  for (size_t n = 0; n < runs.size(); ++n) {
    ++v.judged;
    if (results[n].status == RunStatus::rejected) continue;
    const std::string what = runs[n].mutation == IllegalMutation::none
                                 ? "a problem with a feature that the kernel lacks (" + print(runs[n].c.problem) + ")"
                                 : std::string("an illegal problem (") + name_of(runs[n].mutation) + ")";
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

const Check reject_check = {"reject", "exact: illegal or unsupported problems are refused, never answered", applies,
                            plan, judge};

}  // namespace flashproof
