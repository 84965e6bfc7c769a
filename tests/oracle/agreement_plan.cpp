// Which cases the oracles are compared on: features, the pairs that can meet, and draws that fill the emptiest pair.
#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <stdexcept>

#include "reference/safetensors.h"
#include "tests/oracle/agreement.h"

namespace flashproof::test {
namespace {

// ---- features

struct Feature {
  std::string name, group;  ///< of one group a case has at most one
  std::function<bool(const Case&)> has;
};

bool any_entry(const Problem& p, const std::function<bool(int64_t seq_q, int64_t seq_k)>& holds) {
  for (int64_t b = 0; b < p.batch; ++b)
    if (holds(used_length(p.q, b), used_length(p.k, b))) return true;
  return false;
}

std::vector<Feature> features_of_problem() {
  using C = const Case&;
  return {
      {"backward", "", [](C c) { return has_backward(c.problem); }},
      {"batch", "", [](C c) { return c.problem.batch > 1; }},
      {"kv heads", "", [](C c) { return c.problem.kv_heads > 1; }},
      {"grouped heads", "", [](C c) { return c.problem.heads > c.problem.kv_heads; }},
      {"packed queries", "", [](C c) { return !c.problem.q.packed.empty(); }},
      {"packed keys", "", [](C c) { return !c.problem.k.packed.empty(); }},
      {"used queries", "", [](C c) { return !c.problem.q.used.empty(); }},
      {"used keys", "", [](C c) { return !c.problem.k.used.empty(); }},
      {"Sq < Sk", "", [](C c) { return any_entry(c.problem, std::less<>()); }},
      {"Sq > Sk", "", [](C c) { return any_entry(c.problem, std::greater<>()); }},
      {"no keys", "", [](C c) { return any_entry(c.problem, [](int64_t, int64_t keys) { return keys == 0; }); }},
      {"value dim", "", [](C c) { return c.problem.value_dim != c.problem.head_dim; }},
      {"scale", "", [](C c) { return c.problem.scale.has_value(); }},
      {"causal", "", [](C c) { return c.problem.mask.causal; }},
      {"top-left", "", [](C c) { return c.problem.mask.top_left; }},
      {"window left", "", [](C c) { return c.problem.mask.window_left != open_window; }},
      {"window right", "", [](C c) { return c.problem.mask.window_right != open_window; }},
      {"softcap", "", [](C c) { return c.problem.softcap != 0; }},
      {"alibi", "alibi", [](C c) { return c.problem.alibi == Alibi::per_head; }},
      {"alibi=bh", "alibi", [](C c) { return c.problem.alibi == Alibi::per_batch_and_head; }},
      {"bias by entry", "", [](C c) { return c.problem.bias && c.problem.bias->batch; }},
      {"bias by head", "", [](C c) { return c.problem.bias && c.problem.bias->head; }},
      {"bias by query", "", [](C c) { return c.problem.bias && c.problem.bias->query; }},
      {"bias by key", "", [](C c) { return c.problem.bias && c.problem.bias->key; }},
      {"fp32 bias", "", [](C c) { return c.problem.bias && c.problem.bias->fp32; }},
      {"sink", "", [](C c) { return c.problem.sink; }},
      {"dropout", "", [](C c) { return c.problem.dropout.has_value(); }},
      {"descale", "", [](C c) { return c.problem.descale; }},
      {"paged", "", [](C c) { return c.problem.paging.has_value(); }},
      {"heads first", "", [](C c) { return c.problem.layout.heads_first; }},
      {"gap", "", [](C c) { return c.problem.layout.row_gap != 0; }},
  };
}

std::vector<Feature> all_features(bool real_data) {
  std::vector<Feature> features = features_of_problem();
  for (int n = 0; n < dtype_count; ++n)
    features.push_back(
        {safetensors_word(DType(n)), "dtype", [n](const Case& c) { return c.problem.dtype == DType(n); }});
  for (int n = 0; n < family_count; ++n)
    if (real_data || Family(n) != Family::file)
      features.push_back({name_of(Family(n)), "family", [n](const Case& c) { return c.recipe.family == Family(n); }});
  return features;
}

/// Pairs that no legal case has, beside those of one group.
bool can_meet(const Feature& a, const Feature& b) {
  constexpr const char* never[][2] = {{"descale", "F32"},
                                      {"descale", "BF16"},
                                      {"descale", "F16"},
                                      {"heads first", "packed queries"},
                                      {"heads first", "packed keys"},
                                      {"heads first", "paged"},
                                      {"packed keys", "paged"}};
  if (!a.group.empty() && a.group == b.group) return false;
  for (const auto& [x, y] : never)
    if ((a.name == x && b.name == y) || (a.name == y && b.name == x)) return false;
  return true;
}

// ---- draws

struct Draw {
  std::mt19937_64 random;
  int64_t upto(int64_t least, int64_t most) { return least + int64_t(random() % uint64_t(most - least + 1)); }
  /// Small more often: uniform up to a uniform limit.
  int64_t small(int64_t least, int64_t most) { return upto(least, upto(least, most)); }
  bool one_in(int64_t n) { return upto(1, n) == 1; }
};

Lengths draw_lengths(Draw& draw, int64_t batch, bool may_be_packed, int64_t least) {
  Lengths lengths;
  lengths.slot = draw.small(least, 24);
  const bool packed = may_be_packed && draw.one_in(3), used = draw.one_in(3);
  for (int64_t b = 0; b < batch; ++b) {
    if (packed) lengths.packed.push_back(draw.small(least, 24));
    if (used) lengths.used.push_back(draw.upto(std::min(least, slot_length(lengths, b)), slot_length(lengths, b)));
  }
  return lengths;
}

void draw_modifiers(Draw& draw, Problem& p) {
  if (draw.one_in(3)) p.scale = std::ldexp(float(draw.upto(-64, 64)), int(draw.upto(-9, -4)));
  p.mask.causal = draw.one_in(3);
  p.mask.top_left = draw.one_in(3);
  if (draw.one_in(3)) p.mask.window_left = draw.upto(0, 24);
  if (draw.one_in(3)) p.mask.window_right = draw.upto(0, 24);
  if (draw.one_in(3)) p.softcap = float(draw.small(1, 400)) / 8;
  p.alibi = Alibi(draw.upto(0, 2));
  if (draw.one_in(3)) p.bias = Bias{draw.one_in(2), draw.one_in(2), draw.one_in(2), draw.one_in(2), draw.one_in(2)};
  p.sink = draw.one_in(3);
  if (draw.one_in(3)) p.dropout = Dropout{float(draw.upto(0, 999)) / 1000, draw.random()};
  p.descale = format_of(p.dtype).bits == 8 && draw.one_in(2);
}

Problem draw_problem(Draw& draw) {
  Problem p;
  p.dtype = DType(draw.upto(0, dtype_count - 1));
  p.batch = draw.small(1, 3);
  p.kv_heads = draw.small(1, 3);
  p.heads = p.kv_heads * draw.small(1, 4);
  if (draw.one_in(4)) p.paging = Paging{draw.random(), draw.upto(1, 16)};
  p.layout.heads_first = !p.paging && draw.one_in(4);
  if (draw.one_in(4)) p.layout.row_gap = draw.upto(1, 8);
  p.q = draw_lengths(draw, p.batch, !p.layout.heads_first, 0);
  p.k = draw_lengths(draw, p.batch, !p.layout.heads_first && !p.paging, draw.one_in(3) ? 0 : 8);
  p.head_dim = draw.small(1, 16);
  p.value_dim = draw.one_in(2) ? p.head_dim : draw.small(1, 16);
  draw_modifiers(draw, p);
  p.direction = draw.one_in(3) ? Direction::forward : Direction::backward;
  return p;
}

Case draw_case(Draw& draw, const std::string& real_data) {
  Case c;
  c.problem = draw_problem(draw);
  c.recipe.family = Family(draw.upto(0, family_count - (real_data.empty() ? 2 : 1)));
  c.recipe.seed = draw.random();
  const Parameters parameters = default_parameters(c.recipe.family);
  if (parameters.count > 0 && draw.one_in(3)) c.recipe.a = parameters.a * double(draw.upto(1, 16)) / 4;
  if (parameters.count > 1 && draw.one_in(3)) c.recipe.b = parameters.b * double(draw.upto(1, 16)) / 4;
  if (c.recipe.family == Family::file) c.file = {real_data, "", draw.upto(0, 400), draw.upto(0, 400), draw.upto(0, 2)};
  return c;
}

int64_t outputs_of(const Problem& p) {
  const Outputs outputs = make_outputs(p);
  int64_t count = 0;
  for (int n = 0; n < output_count; ++n)
    if (const Tensor& tensor = tensor_of(outputs, OutputId(n)); !tensor.shape.empty()) count += tensor.size();
  return count;
}

// ---- pairs

struct PairCount {
  const Feature *first, *second;
  int64_t outputs = 0;
  bool in(const Case& c) const { return first->has(c) && second->has(c); }
};

std::vector<PairCount> pairs_of(const std::vector<Feature>& features) {
  std::vector<PairCount> pairs;
  for (size_t a = 0; a < features.size(); ++a)
    for (size_t b = a + 1; b < features.size(); ++b)
      if (can_meet(features[a], features[b])) pairs.push_back({&features[a], &features[b]});
  return pairs;
}

const PairCount& emptiest(const std::vector<PairCount>& pairs) {
  return *std::min_element(pairs.begin(), pairs.end(), [](auto& a, auto& b) { return a.outputs < b.outputs; });
}

Case draw_with(Draw& draw, const PairCount& pair, const std::string& real_data) {
  for (int n = 0; n < 1000000; ++n)
    if (Case c = draw_case(draw, real_data); pair.in(c) && outputs_of(c.problem) > 0) return c;
  throw std::logic_error("no draw has both \"" + pair.first->name + "\" and \"" + pair.second->name + "\"");
}

}  // namespace

Plan plan_cases(const PlanSettings& settings) {
  const std::vector<Feature> features = all_features(!settings.real_data.empty());
  std::vector<PairCount> pairs = pairs_of(features);
  Draw draw{std::mt19937_64(settings.seed)};
  Plan plan;
  for (int64_t outputs = 0; outputs < settings.outputs || emptiest(pairs).outputs < settings.pair_outputs;) {
    Case c = plan.cases.size() % 2 == 0 ? draw_with(draw, emptiest(pairs), settings.real_data)
                                        : draw_case(draw, settings.real_data);
    const int64_t count = outputs_of(c.problem);
    outputs += count;
    for (PairCount& pair : pairs)
      if (pair.in(c)) pair.outputs += count;
    plan.cases.push_back(std::move(c));
  }
  plan.features = std::ssize(features);
  plan.pairs = std::ssize(pairs);
  plan.emptiest = emptiest(pairs).first->name + " with " + emptiest(pairs).second->name;
  plan.emptiest_outputs = emptiest(pairs).outputs;
  return plan;
}

}  // namespace flashproof::test
