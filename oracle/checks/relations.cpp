// Check `relations`: results of related problems must be related.
//
// exact     linearity    V 2^a and dO 2^b: O 2^a, L the same, dV 2^b, dQ and dK 2^(a + b)
//           scale        q 2^a and the scale 2^-a: O, L and dV the same
// bounded   shift        a bias c on every score: L + c, O the same
//           permutation  keys in another order: O and L the same
//           split        the keys in two parts, merged by their L: O and L of the whole
//           decode       the last query alone: the last row of the whole; bit for bit of a kernel that promises it
//                        (DETERMINISTIC_ROWS)
//
// One relation a case, chosen by the data seed among those that apply. Exact ones want equal bits of a deterministic
// kernel, and see what is far below any rounding bound. Bounded ones allow the sum of both runs' bounds, and use no
// exact value: they would see a mistake of the oracle's, too. Where the kernel refuses the related problem, or a format
// may overflow, there is no verdict.
#include <algorithm>

#include "oracle/checks/related_case.h"
#include "oracle/checks/relation.h"

namespace flashproof {
namespace {

constexpr const Relation* relations[] = {&linearity_relation,   &scale_relation, &shift_relation,
                                         &permutation_relation, &split_relation, &decode_relation};

/// Each relation has a number by the seed, and the least that applies wins: reducing a case seldom changes which it is.
const Relation* relation_of(const Case& c, const Subject& subject) {
  std::pair<uint64_t, const Relation*> by_number[std::size(relations)];
  for (size_t n = 0; n < std::size(relations); ++n) by_number[n] = {choose(c, 8 + n, UINT64_MAX), relations[n]};
  std::sort(std::begin(by_number), std::end(by_number));
  for (const auto& [number, relation] : by_number)
    if (relation->applies(c, subject)) return relation;
  return nullptr;
}

bool applies(const Case& c, const Subject& subject) { return relation_of(c, subject) != nullptr; }

std::vector<Run> plan(const Case& c, const Subject& subject) { return relation_of(c, subject)->plan(c); }

Verdict judge(const Case& c, const Subject& subject, std::span<const Run> runs, std::span<const RunResult> results) {
  const Relation& relation = *relation_of(c, subject);
  Verdict v = judge_status("relations", results);
  if (v.status == Status::fail) return v;
  v = {};
  v.check = "relations";
  v.assumed = undefined_conventions(subject);
  for (const RunResult& result : results) judge_memory(v, result.memory);
  const bool refused =
      std::any_of(results.begin(), results.end(), [](const RunResult& r) { return r.status == RunStatus::rejected; });
  if (!refused) relation.judge(v, c, subject, runs, results);
  if (v.status == Status::pass) v.why = std::string(relation.name) + ": holds";
  return unless_vacuous(v);
}

}  // namespace

const Check relations_check = {"relations",
                               "exact where provable, else within both bounds: related problems have related results",
                               applies, plan, judge};

}  // namespace flashproof
