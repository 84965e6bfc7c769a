// Why a case fails: which of its fields matter, where its wrong elements lie, and which named mistake would give just
// these.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fuzz/execute.h"
#include "fuzz/explain/causes.h"
#include "fuzz/explain/fields.h"
#include "fuzz/explain/pattern.h"
#include "oracle/bound.h"

namespace flashproof {

/// A bound's term, and how many times it would have to grow for the bound to reach the error, the other terms as they
/// are.
struct GrownTerm {
  std::string name;
  double amount = 0, times = 0;
};

struct Explanation {
  Job job;
  Judgement judgement;             ///< of the case as given
  std::optional<Verdict> failure;  ///< what is explained; none: the case does not fail
  Reduced reduced;
  Fields fields;
  std::vector<Pattern> patterns;
  std::vector<Cause> causes;  ///< best first; those that fit have at least fitting_score
  Where worst;                ///< the element whose terms are shown; index -1: none is finite
  std::vector<GrownTerm> terms;
  std::string seen_in;        ///< the case in which patterns and terms were seen
  int64_t observed_runs = 0;  ///< runs that causes were held against
  int64_t untried = 0;        ///< causes for which there was no time
  bool fits() const { return !causes.empty() && causes.front().score >= fitting_score && !tied(); }
  /// Whether fewer than five wrong elements are all that the first cause has, and another fits them nearly as well.
  bool tied() const;
};

/// `seconds`: for reduction and for the causes, each; the fields and the runs in which causes are looked for have half
/// of it each. `interrupted` is asked between hypotheses and ends them; runs end by what RunOnce throws. Throws as
/// execute does.
Explanation explain(
    const RunOnce&, const LoadedKernel&, const Job&, const std::vector<Tunable>&, double seconds,
    const std::function<bool()>& interrupted = [] { return false; });

/// Causes of kinds of failure that name themselves (a red zone, a crash, ...); nothing for wrong values.
std::optional<Cause> cause_of_kind(const Verdict&);

}  // namespace flashproof
