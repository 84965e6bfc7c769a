// What NaN and infinity in the inputs do to each output element: which are judged, which must be NaN, which are not
// judged.
//
// For a row i that sees a key, what stands further down going before what stands above it:
//   NaN in a visible v_jc              O_ic must be NaN, even where dropout or underflow makes z or p 0 (`bound` does
//                                      not ask it where all scores of the row may overflow)
//   NaN in q_i or a visible k_j        O_i and L_i must be NaN
//   infinity in a visible v_jc         O_ic is not judged
//   infinity in q_i or a visible k_j   O_i and L_i are not judged
//   NaN or infinity at a key j < Sk of the row's kv head that the mask or the bias hides
//                                      O_i and L_i are not judged, unless the kernel declares that it bears them
// A row that sees no key is judged whatever q_i and dO_i hold. Gradients are judged only where everything they read is
// finite: dQ_i by q_i, dO_i and the keys and values of row i as above; dK and dV of a kv head by all rows and keys of
// its entry's group; dsink_h by all rows of head h; dbias by all rows.
#pragma once
#include <cstdint>
#include <vector>

#include "reference/inputs.h"

namespace flashproof {

enum class Judgement : uint8_t { judged, must_be_nan, not_judged };

/// By output and element, flat like the tensors. All empty: every input is finite, everything is judged.
struct Judgements {
  std::vector<Judgement> output[output_count];
  Judgement at(OutputId id, int64_t index) const {
    const std::vector<Judgement>& of = output[int(id)];
    return of.empty() ? Judgement::judged : of[index];
  }
};

/// `bears_hidden`: the kernel declares that NaN and infinity at hidden keys do not reach its results.
/// Time O(rows keys) where something is not finite, else one pass over the inputs.
Judgements judge_nonfinite(const Inputs&, bool bears_hidden = false);

}  // namespace flashproof
