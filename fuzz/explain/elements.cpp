// ELEMENT and STATE: single wrong stores, copies of other elements, rows off by a factor, and outputs that hold what
// their buffers held.
//
// These look at what was seen before they predict, so they carry a freedom: a mistake that needs no look wins over
// them.
#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "fuzz/explain/hypothesis.h"

namespace flashproof {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

/// Predicts `value` of each wrong element for which it has one; the truth elsewhere. Nothing where no element has one.
using ElementRule = std::function<std::optional<double>(const Observation&, OutputId, int64_t index)>;
std::optional<Prediction> predict_elements(const Observation& o, const ElementRule& value) {
  Prediction prediction;
  bool any = false;
  for (int id = 0; id < output_count; ++id) {
    const ObservedOutput& output = o.output[id];
    prediction.values.output[id] = output.truth;
    for (size_t n = 0; n < output.state.size(); ++n) {
      if (output.state[n] != ElementState::wrong) continue;
      const std::optional<double> predicted = value(o, OutputId(id), int64_t(n));
      if (predicted) prediction.values.output[id][n] = *predicted, any = true;
    }
  }
  return any ? std::optional(prediction) : std::nullopt;
}

void add_element_rule(Hypotheses& list, const std::string& id, const char* category, const std::string& sentence,
                      double freedom, const ElementRule& value) {
  list.push_back({id,
                  category,
                  sentence,
                  [value](const Observation& o) { return predict_elements(o, value); },
                  {},
                  freedom,
                  true});
}

void add_buffers(Hypotheses& list) {
  add_element_rule(list, "unwritten", "STATE", "elements are never written: they hold what the buffer held", 0.05,
                   [](const Observation& o, OutputId id, int64_t n) -> std::optional<double> {
                     return is_poison(tensor_of(o.outputs, id), n) ? std::optional(nan) : std::nullopt;
                   });
  add_mistake_in(in_forward, list, "dead-rows-unwritten", "EMPTY", "rows that see no key are never written",
                 [](const Observation& o) -> std::optional<Mistake> {
                   if (!holds_poison(o, OutputId::o) && !holds_poison(o, OutputId::lse)) return std::nullopt;
                   Mistake mistake;
                   mistake.result = [](const Inputs&, RowSketch& row) {
                     if (row.l != -infinity) return;
                     row.o.assign(row.o.size(), nan);
                     row.l = row.stored = nan;
                   };
                   return mistake;
                 });
  for (const OutputId id : {OutputId::o, OutputId::dq, OutputId::dk, OutputId::dv, OutputId::dsink, OutputId::dbias})
    list.push_back({fmt::format("{}-added-to-buffer", name_of(id)),
                    "STATE",
                    fmt::format("{} is added to what its buffer held (a NaN here)", name_of(id)),
                    [id](const Observation& o) -> std::optional<Prediction> {
                      const ObservedOutput& output = o[id];
                      if (holds_poison(o, id)) return std::nullopt;
                      Prediction prediction;
                      prediction.values[id].assign(output.truth.size(), nan);
                      return prediction;
                    },
                    {},
                    0,
                    false});
}

int64_t extent(const Problem& p, OutputId id) {
  return id == OutputId::dk || id == OutputId::dv ? p.kv_heads : p.heads;
}

/// Flat index of the element `offset` rows, heads and channels on, inside the entry; -1 where there is none.
struct Shift {
  const char* words;
  int64_t rows, heads, channels;
};
int64_t shifted_index(const Observation& o, OutputId id, int64_t index, const Shift& shift) {
  if (id == OutputId::dsink || id == OutputId::dbias) return -1;
  const Problem& p = o.in.problem;
  const Where at = locate(p, id, index);
  const bool keys = id == OutputId::dk || id == OutputId::dv;
  const std::vector<int64_t>& begin = keys ? o.in.packing.k_begin : o.in.packing.q_begin;
  const int64_t heads = extent(p, id), row = at.position + shift.rows, head = at.head + shift.heads,
                channel = at.channel + shift.channels;
  const int64_t channels = o[id].seen.size() / std::max<int64_t>(1, begin.back() * heads);
  if (row < 0 || row >= begin[at.b + 1] - begin[at.b] || head < 0 || head >= heads || channel < 0 ||
      channel >= channels)
    return -1;
  return ((begin[at.b] + row) * heads + head) * channels + channel;
}

void add_copies(Hypotheses& list) {
  constexpr Shift shifts[] = {{"the row before", -1, 0, 0},      {"the next row", 1, 0, 0},
                              {"the head before", 0, -1, 0},     {"the next head", 0, 1, 0},
                              {"the channel before", 0, 0, -1},  {"the next channel", 0, 0, 1},
                              {"8 rows before", -8, 0, 0},       {"8 rows on", 8, 0, 0},
                              {"16 rows before", -16, 0, 0},     {"16 rows on", 16, 0, 0},
                              {"64 rows before", -64, 0, 0},     {"64 rows on", 64, 0, 0},
                              {"2 channels before", 0, 0, -2},   {"2 channels on", 0, 0, 2},
                              {"8 channels before", 0, 0, -8},   {"8 channels on", 0, 0, 8},
                              {"16 channels before", 0, 0, -16}, {"16 channels on", 0, 0, 16}};
  for (const Shift& shift : shifts)
    add_element_rule(list, fmt::format("copy-of{:+}{:+}{:+}", shift.rows, shift.heads, shift.channels), "ELEMENT",
                     fmt::format("elements hold those of {}", shift.words), 0.08,
                     [shift](const Observation& o, OutputId id, int64_t n) -> std::optional<double> {
                       const int64_t from = shifted_index(o, id, n, shift);
                       return from < 0 ? std::nullopt : std::optional(o[id].truth[from]);
                     });
  add_element_rule(list, "copy-of-entry-0", "ELEMENT", "elements hold those of entry 0", 0.08,
                   [](const Observation& o, OutputId id, int64_t n) -> std::optional<double> {
                     const Where at = locate(o.in.problem, id, n);
                     if (at.b == 0 || id == OutputId::dsink || id == OutputId::dbias) return std::nullopt;
                     const bool keys = id == OutputId::dk || id == OutputId::dv;
                     const std::vector<int64_t>& begin = keys ? o.in.packing.k_begin : o.in.packing.q_begin;
                     const int64_t rows = int64_t(o[id].seen.size()) / std::max<int64_t>(1, begin.back());
                     return at.position >= begin[1] ? std::nullopt : std::optional(o[id].truth[n - begin[at.b] * rows]);
                   });
  add_element_rule(list, "zeroed", "ELEMENT", "elements are 0", 0.1,
                   [](const Observation& o, OutputId id, int64_t n) -> std::optional<double> {
                     return o[id].seen[n] == 0 ? std::optional(0.0) : std::nullopt;
                   });
  add_element_rule(
      list, "negated", "ELEMENT", "elements have the other sign", 0.1,
      [](const Observation& o, OutputId id, int64_t n) -> std::optional<double> { return -o[id].truth[n]; });
}

/// The median of seen / truth over the wrong elements of O that are large enough to tell.
std::optional<double> common_factor(const ObservedOutput& o) {
  std::vector<double> factors;
  for (size_t n = 0; n < o.state.size(); ++n)
    if (o.state[n] == ElementState::wrong && std::abs(o.truth[n]) > 8 * o.bound[n] && std::isfinite(o.seen[n]))
      factors.push_back(o.seen[n] / o.truth[n]);
  if (factors.size() < 2) return std::nullopt;
  std::nth_element(factors.begin(), factors.begin() + factors.size() / 2, factors.end());
  return factors[factors.size() / 2];
}

/// Rows of O that hold a wrong element are `factor` times the truth; in L too: L is off by -ln factor there.
std::optional<Prediction> predict_divisor(const Observation& o, bool in_l) {
  const ObservedOutput &out = o[OutputId::o], &l = o[OutputId::lse];
  const std::optional<double> factor = common_factor(out);
  if (!factor || !(*factor > 0)) return std::nullopt;
  const int64_t dim = o.in.problem.value_dim;
  Prediction prediction;
  prediction.detail =
      fmt::format("by a sum {:.3g} % too {}", 100 * std::abs(1 / *factor - 1), *factor < 1 ? "large" : "small");
  prediction.values[OutputId::o] = out.truth;
  prediction.values[OutputId::lse] = l.truth;
  for (size_t row = 0; row * dim < out.state.size(); ++row) {
    const auto wrong = [&](size_t n) { return out.state[n] == ElementState::wrong; };
    bool any = in_l && row < l.state.size() && l.state[row] == ElementState::wrong;
    for (int64_t c = 0; c < dim; ++c) any |= wrong(row * dim + c);
    if (!any) continue;
    for (int64_t c = 0; c < dim; ++c) prediction.values[OutputId::o][row * dim + c] *= *factor;
    if (in_l && row < l.truth.size()) prediction.values[OutputId::lse][row] -= std::log(*factor);
  }
  return prediction;
}

void add_factors(Hypotheses& list) {
  for (const bool in_l : {false, true})
    list.push_back(
        {in_l ? "row-sum-off" : "divisor-off",
         "LSE",
         in_l ? "the row sum is off by a factor, in O and in L" : "O is divided by a wrong sum; L has the right one",
         [in_l](const Observation& o) { return predict_divisor(o, in_l); },
         {},
         0.08,
         false});
  list.push_back({"l-shifted",
                  "LSE",
                  "L is off by a constant",
                  [](const Observation& o) -> std::optional<Prediction> {
                    const ObservedOutput& l = o[OutputId::lse];
                    std::vector<double> shifts;
                    for (size_t n = 0; n < l.state.size(); ++n)
                      if (l.state[n] == ElementState::wrong && std::isfinite(l.seen[n]) && std::isfinite(l.truth[n]))
                        shifts.push_back(l.seen[n] - l.truth[n]);
                    if (shifts.size() < 2) return std::nullopt;
                    std::nth_element(shifts.begin(), shifts.begin() + shifts.size() / 2, shifts.end());
                    Prediction prediction;
                    prediction.detail = fmt::format("{:+.4g}", shifts[shifts.size() / 2]);
                    prediction.values[OutputId::lse] = l.truth;
                    for (double& x : prediction.values[OutputId::lse]) x += shifts[shifts.size() / 2];
                    return prediction;
                  },
                  {},
                  0.12,
                  false});
}

/// An output as a whole times a constant, as where a factor is forgotten or applied twice.
void add_output_factors(Hypotheses& list) {
  for (const OutputId id : {OutputId::o, OutputId::dq, OutputId::dk, OutputId::dv, OutputId::dsink, OutputId::dbias})
    list.push_back({fmt::format("{}-times-constant", name_of(id)),
                    "GRAD",
                    fmt::format("{} is off by a constant factor", name_of(id)),
                    [id](const Observation& o) -> std::optional<Prediction> {
                      const std::optional<double> factor = common_factor(o[id]);
                      if (!factor) return std::nullopt;
                      Prediction prediction;
                      prediction.detail = fmt::format("{:.6g}", *factor);
                      prediction.values[id] = o[id].truth;
                      for (double& x : prediction.values[id]) x *= *factor;
                      return prediction;
                    },
                    {},
                    0.12,
                    false});
}

}  // namespace

void add_element_hypotheses(Hypotheses& list) {
  add_buffers(list);
  add_copies(list);
  add_factors(list);
  add_output_factors(list);
}

}  // namespace flashproof
