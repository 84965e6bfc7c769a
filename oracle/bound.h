// How far from the exact value a correct kernel may be: a rounding-error bound for each output element, from the
// declared Arithmetic, by term.
//
// The forward bound is the perturbation of a weighted mean: with per-key log-errors kappa_j shared by numerator and
// denominator, numerator-only errors a_j, denominator-only errors b_j,
//   |O_hat - O| <= 1/D { sum p (e^kappa - 1)|v - O| + sum p e^kappa (a |v| + b |O|) + absolute terms }
//                  + output rounding,
// D the least that the sum of computed weights may be. Every term is derived in oracle/BOUNDS.md and computed a priori
// from the inputs: nothing is fitted.
#pragma once
#include <string>
#include <vector>

#include "oracle/value.h"
#include "reference/arithmetic.h"

namespace flashproof {

/// Contributions to one element's bound; they add up to `total`.
struct BoundTerm {
  const char*
      name;  ///< "scores", "exponent argument", "exp", "P rounding", "row sum", "P V accumulation", "output", ...
  double amount;
};

struct Bounds {
  std::vector<double> bound[output_count];  ///< flat like the outputs; only where the values are known
  bool overflow_possible = false;           ///< scores, sums or outputs may leave the range of the kernel's formats
  double score_error = 0;  ///< most that a score may be off by in rows whose bounds are infinite for that alone
  std::string status = "derived";
};

/// Bounds for every element known in `values`. The arithmetic's unknown fields are taken at their worst.
Bounds bound(const Inputs&, const Arithmetic&, const Values& values, int threads = 0);

/// One element's bound by term (verbs `bound` and `explain`).
std::vector<BoundTerm> bound_terms(const Inputs&, const Arithmetic&, OutputId, int64_t index);

}  // namespace flashproof
