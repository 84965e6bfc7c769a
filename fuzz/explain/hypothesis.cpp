#include "fuzz/explain/hypothesis.h"

namespace flashproof {
namespace {

std::vector<int64_t> declared_or_usual(int declared) {
  if (declared > 0) return {declared};
  return {16, 32, 64, 128};
}

}  // namespace

std::vector<int64_t> key_tiles(const Observation& o) { return declared_or_usual(o.arithmetic.tile_n); }
std::vector<int64_t> row_tiles(const Observation& o) { return declared_or_usual(o.arithmetic.tile_m); }
int64_t key_parts(const Observation& o) { return o.arithmetic.splits > 0 ? o.arithmetic.splits : 1; }

void add_mistake_in(Phase phase, Hypotheses& list, const std::string& id, const std::string& category,
                    const std::string& sentence, const MistakeFor& mistake_for, double freedom) {
  const MistakeFor in_phase = [=](const Observation& o) -> std::optional<Mistake> {
    if (phase == in_backward && !has_backward(o.in.problem)) return std::nullopt;
    std::optional<Mistake> mistake = mistake_for(o);
    if (mistake) mistake->phases = phase;
    return mistake;
  };
  const auto predict = [in_phase](const Observation& o) -> std::optional<Prediction> {
    const std::optional<Mistake> mistake = in_phase(o);
    return mistake ? std::optional(Prediction{sketch(o.in, *mistake), ""}) : std::nullopt;
  };
  list.push_back({id, category, sentence, predict, in_phase, freedom, false});
}

void add_mistake(Hypotheses& list, const std::string& id, const std::string& category, const std::string& sentence,
                 const MistakeFor& mistake_for) {
  add_mistake_in(in_both, list, id, category, sentence, mistake_for);
  add_mistake_in(in_backward, list, id + ".backward", category, sentence + ", in the backward alone", mistake_for);
  const MistakeFor with_backward = [mistake_for](const Observation& o) {
    return has_backward(o.in.problem) ? mistake_for(o) : std::nullopt;
  };
  add_mistake_in(in_forward, list, id + ".forward", category, sentence + ", in the forward alone", with_backward);
}

Hypotheses all_hypotheses() {
  Hypotheses list;
  for (const auto add : {add_mask_hypotheses, add_key_hypotheses, add_stretch_hypotheses, add_score_hypotheses,
                         add_modifier_hypotheses, add_result_hypotheses, add_gradient_hypotheses, add_memory_hypotheses,
                         add_rounding_hypotheses, add_element_hypotheses})
    add(list);
  return list;
}

}  // namespace flashproof
