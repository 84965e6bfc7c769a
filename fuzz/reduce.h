// Makes a failing case small: a fixpoint of named passes over the problem's fields and the data, each of which keeps a
// change only if the same check still fails with the same kind and on the same output.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fuzz/generate.h"
#include "reference/case.h"

namespace flashproof {

/// Whether a candidate still shows the failure. Must be a pure function of its arguments.
using Interesting = std::function<bool(const Case&, const std::string& config)>;

struct Reduced {
  Case c;
  std::string config;
  int64_t runs = 0;  ///< candidates tried
  double seconds = 0;
  bool complete = false;  ///< a fixpoint was reached within the budget
};

/// `c` must be interesting. Stops after `seconds`. `tunables` are the kernel's (parse_tunables): with small tiles fewer
/// keys and rows are enough.
Reduced reduce(const Case& c, const std::string& config, const Interesting&, double seconds,
               const std::vector<Tunable>& tunables = {});

/// What reduction makes smaller: keys and rows first, then heads and dims, then features, then data.
double size_of(const Case&);

}  // namespace flashproof
