// What a kernel returned in one run, beside the exact values and the bounds: which elements are wrong.
//
// An element is wrong where |seen - truth| > bound, or where it is not finite and the truth is. This is the rule of the
// check `bound` in plain double: an element that lies on its bound to 15 digits may fall on either side here.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "fuzz/memory_plan.h"
#include "oracle/check.h"
#include "reference/arithmetic.h"
#include "reference/inputs.h"

namespace flashproof {

enum class ElementState : uint8_t { unjudged, right, wrong };

/// One output, flat like its tensor; empty where it is not judged. L is natural whatever base the kernel stores.
struct ObservedOutput {
  std::vector<double> seen, truth, bound;
  std::vector<ElementState> state;
};

struct Observation {
  Run run;
  Subject subject;
  Inputs in;
  Arithmetic arithmetic;
  Outputs outputs;
  std::shared_ptr<const MemoryPlan> memory;  ///< where the inputs stood, on the host
  ObservedOutput output[output_count];
  int64_t wrong = 0;
  const ObservedOutput& operator[](OutputId id) const { return output[int(id)]; }
};

/// `result` must be ok. `exact`: O and the gradients of the run are exact numbers of their formats, so that half an ulp
/// is the bound (check exact_inputs).
Observation observe(const Run&, const Subject&, const flashproof_kernel&, const RunResult&, bool exact);

/// Whether `seen` is `expected` within `tolerance`; infinities and NaN equal themselves.
bool agrees(double seen, double expected, double tolerance);
/// Whether an element holds a signalling NaN: poison, which no arithmetic makes (fuzz/memory_plan.h), so it was never
/// written.
bool is_poison(const Tensor&, int64_t index);
/// Whether a judged output holds poison.
bool holds_poison(const Observation&, OutputId);
/// Work of the problem's passes in multiply-adds, which each hypothesis costs; rows without keys cost as one key.
double observing_work(const Problem&);

}  // namespace flashproof
