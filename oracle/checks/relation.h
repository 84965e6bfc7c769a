// One relation between the results of two or three related runs (check `relations`).
#pragma once
#include "oracle/checks/checks.h"

namespace flashproof {

struct Relation {
  const char* name;  ///< the kind of its failures
  bool (*applies)(const Case&, const Subject&);
  std::vector<Run> (*plan)(const Case&);  ///< the first run is the case, forward at least
  /// Adds to the verdict. All results are there.
  void (*judge)(Verdict&, const Case&, const Subject&, std::span<const Run>, std::span<const RunResult>);
};

extern const Relation linearity_relation, scale_relation;                                     // exact_relations.cpp
extern const Relation shift_relation, permutation_relation, split_relation, decode_relation;  // bounded_relations.cpp

}  // namespace flashproof
