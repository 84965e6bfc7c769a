// A case's tensors as the slow oracle's own problem, so that it can judge the first oracle. Nothing is computed here.
#pragma once
#include "oracle/slow.h"
#include "reference/inputs.h"

namespace flashproof {

slow::Problem slow_problem(const Inputs&);

/// One output of the slow oracle's result; flat like the tensor.
const std::vector<slow::Value>& values_of(const slow::Result&, OutputId);

/// Whether the number lies in [mid - radius, mid + radius], decided exactly: a radius of 0 asks for equality, L =
/// -infinity is enclosed by mid = -infinity alone. Never true for a NaN. mid +- radius must not leave the range of
/// double.
bool encloses(double mid, double radius, const slow::Value&);

}  // namespace flashproof
