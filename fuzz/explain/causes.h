// Which named mistake would explain what was seen: each hypothesis is computed and held against the wrong and the right
// elements.
//
// A hypothesis explains an element if what was seen lies within the bound of what it predicts, the truth's bound grown
// with the predicted row. With W wrong elements, E explained ones and C right ones that it would have made wrong, its
// fit on a run is F = 2 E / (E + C + W): 1 iff it explains all and contradicts none. Where only some rows are wrong,
// the mistake is also tried as made in these rows alone, at a price. The score is the mean of F over the runs, which
// weigh 1 - 1 / (1 + C + W), less the hypothesis's freedom; a run without wrong elements that it would have made wrong
// counts as F = 0.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "fuzz/explain/hypothesis.h"

namespace flashproof {

enum class Scope { everywhere, failing_rows, failing_elements };

struct Cause {
  std::string id, category, sentence, detail;
  double score = 0;
  int64_t wrong = 0, explained = 0, contradicted = 0;  ///< elements over all runs, in the scope
  Scope scope = Scope::everywhere;
};

/// A cause fits from this score on.
constexpr double fitting_score = 0.75;

struct Ranking {
  std::vector<Cause> causes;  ///< those that explain at least some element, the best first
  int64_t untried = 0;        ///< hypotheses that `stop` came before
};

/// `stop` is asked before each run of each hypothesis, by several threads; it must not throw.
Ranking rank_causes(const std::vector<Observation>&, const Hypotheses&, const std::function<bool()>& stop);

/// How far from the prediction an element may be.
double tolerance(const ObservedOutput&, const Tensor&, const std::vector<double>& predicted, int64_t width,
                 int64_t index);
/// Elements of one row of an output: its channels.
int64_t row_width(const Problem&, OutputId);

}  // namespace flashproof
