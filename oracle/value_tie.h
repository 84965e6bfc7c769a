// Whether an element of O or L equals a given number exactly: the only case in which no precision decides its rounding.
//
// Without softcap the scores s_j (and the sink) are rational. Group equal scores: O_ic = r means
//   sum_g e^(s_g) sum_{j in g} (t_v z_j v_jc - r) = 0,
// and e to distinct rational powers are linearly independent over the rationals (Lindemann and Weierstrass), so O_ic =
// r iff each group's sum is 0; a sink is a member with value 0. L = r means sum_g n_g e^(s_g) = e^r: one group, n = 1,
// s = r.
//
// With softcap, s = cap tanh(s0 / cap) + shift with rational s0 and shift; group equal pairs (s0, shift), of which s0 =
// 0 is rational too. Sums of 0 still prove O_ic = r, and decide it where there is one group; no theorem says that they
// are needed where there are more. For L: cap tanh(s0 / cap) is transcendental unless s0 = 0, so one key ties only
// there.
#pragma once
#include <vector>

#include "reference/inputs.h"

namespace flashproof {

/// One row's visible keys, grouped by equal score; `sink` marks the group that the sink is a member of.
struct ScoreGroup {
  std::vector<int64_t> keys;
  bool sink = false;
};
/// Compares scores exactly (every product and sum of the inputs is a dyadic number of less than 1,600 bits).
std::vector<ScoreGroup> equal_scores(const Inputs&, int64_t b, int64_t h, int64_t i);

/// O of row (b, h, i), channel c, is exactly r; with softcap, false also where that is not known.
bool o_equals(const Inputs&, const std::vector<ScoreGroup>&, int64_t b, int64_t h, int64_t i, int64_t c, double r);
/// L of row (b, h, i) is exactly r.
bool l_equals(const Inputs&, const std::vector<ScoreGroup>&, int64_t b, int64_t h, int64_t i, double r);

}  // namespace flashproof
