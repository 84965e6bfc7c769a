// Sorting and adding in exact dyadic numbers; the theorem is in value_tie.h.
#include "oracle/value_tie.h"

#include <algorithm>
#include <boost/multiprecision/mpfr.hpp>

#include "reference/attention.h"

namespace flashproof {
namespace {

// Scores are sums of products of five fp32 numbers, bits 2^-745 to 2^(640 + log2 d), and of smaller terms: exact in 500
// digits = 1,661 bits.
using Exact =
    boost::multiprecision::number<boost::multiprecision::mpfr_float_backend<500, boost::multiprecision::allocate_stack>,
                                  boost::multiprecision::et_off>;

/// A score as (what softcap caps, what is added to it); without softcap all of it is in the second.
using ExactScore = std::pair<Exact, Exact>;

ExactScore exact_score(const Inputs& in, const HeadIndex& at, int64_t i, int64_t j) {
  const Exact s0 = scaled_product<Exact>(in, at, i, j);
  if (in.problem.softcap == 0) return {0, shifted<Exact>(in, at, i, j, s0)};
  return {s0, shifted<Exact>(in, at, i, j, 0)};
}

}  // namespace

std::vector<ScoreGroup> equal_scores(const Inputs& in, int64_t b, int64_t h, int64_t i) {
  constexpr int64_t sink = -1;
  const HeadIndex at = head_index(in, b, h);
  std::vector<std::pair<ExactScore, int64_t>> members;
  if (in.problem.sink) members.push_back({{0, Exact(in.sinks[h])}, sink});
  for (int64_t j = 0; j < at.seq_k; ++j)
    if (sees(in, b, h, i, j)) members.emplace_back(exact_score(in, at, i, j), j);
  std::sort(members.begin(), members.end());
  std::vector<ScoreGroup> groups;
  for (size_t n = 0; n < members.size(); ++n) {
    if (n == 0 || members[n].first != members[n - 1].first) groups.emplace_back();
    if (members[n].second == sink)
      groups.back().sink = true;
    else
      groups.back().keys.push_back(members[n].second);
  }
  return groups;
}

// Multiplied by 1 - rate, so that z = 1 / (1 - rate) needs no division: t_v sum kept v = r (1 - rate) n.
bool o_equals(const Inputs& in, const std::vector<ScoreGroup>& groups, int64_t b, int64_t h, int64_t i, int64_t c,
              double r) {
  const HeadIndex at = head_index(in, b, h);
  const Exact target = Exact(r) * (in.problem.dropout ? Exact(1) - Exact(in.problem.dropout->rate) : Exact(1));
  for (const ScoreGroup& group : groups) {
    Exact sum = 0;
    for (int64_t j : group.keys)
      if (keeps(in.problem, b, h, i, j)) sum += Exact(in.v.at(at.key_row(j) * in.problem.value_dim + c));
    if (value_scale<Exact>(in, at) * sum != target * Exact(group.keys.size() + group.sink)) return false;
  }
  return true;
}

bool l_equals(const Inputs& in, const std::vector<ScoreGroup>& groups, int64_t b, int64_t h, int64_t i, double r) {
  if (groups.size() != 1 || groups[0].keys.size() + groups[0].sink != 1) return false;
  if (groups[0].sink) return double(in.sinks[h]) == r;
  return exact_score(in, head_index(in, b, h), i, groups[0].keys[0]) == ExactScore(0, Exact(r));
}

}  // namespace flashproof
