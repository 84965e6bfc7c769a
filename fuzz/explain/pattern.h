// Where the wrong elements of an output lie: the simplest rule over (b, head, row or key, channel) that covers them and
// few others.
//
// A rule is a conjunction of at most four plain conditions, chosen greedily by F = 2 precision recall / (precision +
// recall).
#pragma once
#include <string>
#include <vector>

#include "fuzz/explain/observation.h"

namespace flashproof {

struct Pattern {
  OutputId output = OutputId::o;
  std::string rule;  ///< "all elements", "row mod 16 = 3, head 0"; "scattered" where no rule is good
  int64_t wrong = 0, judged = 0;
  double precision = 0;  ///< wrong elements among those that the rule names
  double recall = 0;     ///< those that it names among the wrong
};

/// One for each output that has wrong elements.
std::vector<Pattern> find_patterns(const Observation&);

}  // namespace flashproof
