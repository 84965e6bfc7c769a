// Named mistakes as counterfactual computations: what a kernel that makes one would have returned for a run.
//
// The names follow the categories in which the public correctness bugs of attention kernels fall: MASK, TAIL (keys at
// the end), SCALE, SCOREMOD (softcap, ALiBi, bias, sink, dropout), GQA, LSE, EMPTY (rows without keys), PAGED, STRIDE,
// FP8, PREC (rounding), GRAD, STATE (what buffers held), OVF (indices that wrap), ELEMENT (single wrong stores).
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fuzz/explain/observation.h"
#include "fuzz/explain/sketch.h"

namespace flashproof {

/// Builds the mistake for one problem; nothing where it does not apply.
using MistakeFor = std::function<std::optional<Mistake>(const Observation&)>;

/// Outputs under a hypothesis, flat like the tensors. An output left empty is the truth.
struct Prediction {
  Sketch values;
  std::string detail;  ///< what was fitted, "" = nothing
};

struct Hypothesis {
  std::string id, category, sentence;
  std::function<std::optional<Prediction>(const Observation&)> predict;  ///< nothing: does not apply to this problem
  MistakeFor mistake;  ///< for those that are a mistake in the sketch: it may be made at some rows alone
  /// What is taken off the score: 0 for a mistake without free numbers, more for one that was fitted to what was seen.
  double freedom = 0;
  /// May hold at single elements of a row and not at their neighbours.
  bool by_element = false;
};

using Hypotheses = std::vector<Hypothesis>;
/// Adds the mistake as made in both passes, in the forward alone and in the backward alone.
void add_mistake(Hypotheses&, const std::string& id, const std::string& category, const std::string& sentence,
                 const MistakeFor&);
/// Adds it as made in these passes alone.
void add_mistake_in(Phase, Hypotheses&, const std::string& id, const std::string& category, const std::string& sentence,
                    const MistakeFor&, double freedom = 0);

void add_mask_hypotheses(Hypotheses&);
void add_key_hypotheses(Hypotheses&);
void add_stretch_hypotheses(Hypotheses&);
void add_score_hypotheses(Hypotheses&);
void add_modifier_hypotheses(Hypotheses&);
void add_result_hypotheses(Hypotheses&);
void add_gradient_hypotheses(Hypotheses&);
void add_memory_hypotheses(Hypotheses&);
void add_rounding_hypotheses(Hypotheses&);
void add_element_hypotheses(Hypotheses&);
Hypotheses all_hypotheses();

/// Tile sizes of keys (or rows) that may be in force: the declared one, else the usual ones.
std::vector<int64_t> key_tiles(const Observation&);
std::vector<int64_t> row_tiles(const Observation&);
/// Parts that the keys are split into, as declared; 1 where unknown.
int64_t key_parts(const Observation&);

}  // namespace flashproof
