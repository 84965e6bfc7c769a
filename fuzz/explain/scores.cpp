// SCALE and softcap: the factor of the scores, its base, and what tanh is applied to.
#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "fuzz/explain/hypothesis.h"

namespace flashproof {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double ln_2 = 0x1.62e42fefa39efp-1;
constexpr size_t most_fitted_rows = 16;

/// Scores made with the products times `factor`.
Mistake scaled_by(double factor) {
  Mistake mistake;
  mistake.scores = [factor](const Inputs& in, RowSketch& row) {
    for (Pair& pair : row.pairs) pair.product *= factor;
    score_again(in, row);
  };
  return mistake;
}

void add_wrong_scale(Hypotheses& list, const std::string& id, const std::string& sentence,
                     const std::function<double(const Problem&)>& scale) {
  add_mistake(list, id, "SCALE", sentence, [scale](const Observation& o) -> std::optional<Mistake> {
    const double wrong = scale(o.in.problem), right = scale_of(o.in.problem);
    if (right == 0 || !std::isfinite(wrong) || std::abs(wrong - right) <= 1e-7 * std::abs(right)) return std::nullopt;
    return scaled_by(wrong / right);
  });
}

int64_t padded_dim(int64_t dim) {
  for (const int64_t padded : {32, 64, 96, 128, 160, 192, 256})
    if (dim <= padded) return padded;
  return dim;
}

void add_known_scales(Hypotheses& list) {
  add_wrong_scale(list, "scale-missing", "the scores are not scaled", [](const Problem&) { return 1.0; });
  add_wrong_scale(list, "scale-twice", "the scale is applied twice",
                  [](const Problem& p) { return double(scale_of(p)) * scale_of(p); });
  add_wrong_scale(list, "scale-default", "the scale that is given is ignored: 1 / sqrt(head dim) is taken",
                  [](const Problem& p) { return 1 / std::sqrt(double(p.head_dim)); });
  add_wrong_scale(list, "scale-of-value-dim", "the scale is that of the value dim",
                  [](const Problem& p) { return 1 / std::sqrt(double(p.value_dim)); });
  add_wrong_scale(list, "scale-of-padded-dim", "the scale is that of the head dim padded to the kernel's",
                  [](const Problem& p) { return 1 / std::sqrt(double(padded_dim(p.head_dim))); });
  add_wrong_scale(list, "scale-without-log2e", "log2 e is missing: exp2 of natural scores",
                  [](const Problem& p) { return ln_2 * scale_of(p); });
  add_wrong_scale(list, "scale-log2e-twice", "log2 e is applied twice",
                  [](const Problem& p) { return scale_of(p) / ln_2; });
  add_wrong_scale(list, "scale-inverse", "the scale is divided by",
                  [](const Problem& p) { return 1 / double(scale_of(p)); });
  add_wrong_scale(list, "scale-negative", "the scale has the other sign",
                  [](const Problem& p) { return -double(scale_of(p)); });
}

/// L of a row whose products are multiplied by `factor`, and its derivative in the factor (without softcap).
struct SlopedL {
  double l, slope;
};
SlopedL l_at(const Observation& o, const HeadIndex& at, int64_t i, double factor) {
  const Row<double> row = softmax_row<double>(o.in, at.b, at.h, i);
  double top = o.in.problem.sink ? double(o.in.sinks[at.h]) : -infinity, sum = 0, slope = 0;
  std::vector<double> s, s0;
  const double cap = o.in.problem.softcap;
  for (const int64_t j : row.keys) {
    s0.push_back(scaled_product<double>(o.in, at, i, j));
    const double x = factor * s0.back();
    s.push_back(shifted<double>(o.in, at, i, j, cap == 0 ? x : cap * std::tanh(x / cap)));
    top = std::max(top, s.back());
  }
  if (o.in.problem.sink) sum = std::exp(o.in.sinks[at.h] - top);
  for (size_t n = 0; n < s.size(); ++n) {
    const double weight = std::exp(s[n] - top), t = cap == 0 ? 0 : std::tanh(factor * s0[n] / cap);
    sum += weight;
    slope += weight * s0[n] * (1 - t * t);
  }
  return {top + std::log(sum), slope / sum};
}

/// The factor of the scores that makes L what was seen, by Newton's method from 1; 0 where it does not settle.
double factor_of_row(const Observation& o, const Where& row, double seen) {
  const HeadIndex at = head_index(o.in, row.b, row.head);
  double factor = 1;
  for (int step = 0; step < 20; ++step) {
    const SlopedL now = l_at(o, at, row.position, factor);
    if (!(std::abs(now.slope) > 1e-3)) return 0;
    const double change = (seen - now.l) / now.slope;
    factor += std::clamp(change, -0.3, 0.3);
    if (std::abs(change) < 1e-12) return factor;
  }
  return 0;
}

/// The median factor over some rows whose L is wrong.
std::optional<double> fitted_factor(const Observation& o) {
  const ObservedOutput& l = o[OutputId::lse];
  std::vector<double> factors;
  for (size_t n = 0; n < l.state.size() && factors.size() < most_fitted_rows; ++n) {
    if (l.state[n] != ElementState::wrong || !std::isfinite(l.seen[n]) || !std::isfinite(l.truth[n])) continue;
    const double factor = factor_of_row(o, locate(o.in.problem, OutputId::lse, int64_t(n)), l.seen[n]);
    if (factor != 0) factors.push_back(factor);
  }
  if (factors.empty()) return std::nullopt;
  std::nth_element(factors.begin(), factors.begin() + factors.size() / 2, factors.end());
  return factors[factors.size() / 2];
}

void add_fitted_scale(Hypotheses& list) {
  const MistakeFor mistake = [](const Observation& o) -> std::optional<Mistake> {
    const std::optional<double> factor = fitted_factor(o);
    return factor && *factor != 1 ? std::optional(scaled_by(*factor)) : std::nullopt;
  };
  const auto predict = [](const Observation& o) -> std::optional<Prediction> {
    const std::optional<double> factor = fitted_factor(o);
    if (!factor || *factor == 1) return std::nullopt;
    return Prediction{sketch(o.in, scaled_by(*factor)),
                      fmt::format("{:.4g} % too {}", 100 * std::abs(*factor - 1), *factor > 1 ? "large" : "small")};
  };
  list.push_back({"scale-off", "SCALE", "the scale of the scores is off by a factor", predict, mistake, 0.02, false});
}

/// s1 from s0 by another rule, with ds1 / ds0.
using Cap = std::function<double(double s0, double cap)>;
void add_cap(Hypotheses& list, const char* id, const char* sentence, const Cap& s1) {
  add_mistake(list, id, "SCOREMOD", sentence, [s1](const Observation& o) -> std::optional<Mistake> {
    if (o.in.problem.softcap == 0) return std::nullopt;
    Mistake mistake;
    mistake.scores = [s1](const Inputs& in, RowSketch& row) {
      const double scale = score_scale<double>(in, row.at), cap = in.problem.softcap;
      for (Pair& pair : row.pairs) {
        const double s0 = scale * pair.product, step = 1e-6 * std::max(1.0, std::abs(s0));
        pair.s = shifted<double>(in, row.at, row.i, pair.j, s1(s0, cap));
        pair.slope = (s1(s0 + step, cap) - s1(s0 - step, cap)) / (2 * step);
      }
    };
    return mistake;
  });
}

/// Keys that the row does not see count with the score that `score` gives them.
void add_hidden_counts(Hypotheses& list, const char* id, const char* sentence, bool needs_cap,
                       const std::function<double(const Inputs&)>& score) {
  add_mistake(list, id, "SCOREMOD", sentence, [=](const Observation& o) -> std::optional<Mistake> {
    if (needs_cap && o.in.problem.softcap == 0) return std::nullopt;
    Mistake mistake;
    mistake.scores = [score](const Inputs& in, RowSketch& row) {
      for (Pair& pair : row.pairs) {
        if (pair.visible) continue;
        pair.visible = true;
        pair.s = score(in);
        pair.slope = 0;
      }
    };
    return mistake;
  });
}

void add_softcap(Hypotheses& list) {
  add_mistake_in(in_backward, list, "softcap-slope-of-shifted", "GRAD",
                 "the softcap's factor in dS is made of the score with ALiBi and bias added",
                 [](const Observation& o) -> std::optional<Mistake> {
                   const Problem& p = o.in.problem;
                   if (p.softcap == 0 || (!p.bias && p.alibi == Alibi::none)) return std::nullopt;
                   Mistake mistake;
                   mistake.scores = [](const Inputs& in, RowSketch& row) {
                     const double cap = in.problem.softcap;
                     for (Pair& pair : row.pairs) pair.slope = 1 - pair.s / cap * (pair.s / cap);
                   };
                   return mistake;
                 });
  add_cap(list, "softcap-ignored", "softcap is ignored", [](double s0, double) { return s0; });
  add_cap(list, "softcap-undivided", "softcap without dividing by the cap: cap tanh(s)",
          [](double s0, double cap) { return cap * std::tanh(s0); });
  add_cap(list, "softcap-unmultiplied", "softcap without multiplying by the cap: tanh(s / cap)",
          [](double s0, double cap) { return std::tanh(s0 / cap); });
  add_cap(list, "softcap-clips", "softcap clips instead of tanh",
          [](double s0, double cap) { return std::clamp(s0, -cap, cap); });
  add_hidden_counts(list, "softcap-after-mask", "softcap comes after the mask: hidden keys count with score -cap", true,
                    [](const Inputs& in) { return -double(in.problem.softcap); });
  add_hidden_counts(list, "hidden-scores-zero", "hidden keys count with score 0", false,
                    [](const Inputs&) { return 0.0; });
  add_mistake(list, "softcap-before-scale", "SCOREMOD", "softcap is applied before the scale",
              [](const Observation& o) -> std::optional<Mistake> {
                if (o.in.problem.softcap == 0) return std::nullopt;
                Mistake mistake;
                mistake.scores = [](const Inputs& in, RowSketch& row) {
                  const double scale = score_scale<double>(in, row.at), cap = in.problem.softcap;
                  for (Pair& pair : row.pairs) {
                    const double ratio = std::tanh(pair.product / cap);
                    pair.s = shifted<double>(in, row.at, row.i, pair.j, scale * cap * ratio);
                    pair.slope = 1 - ratio * ratio;
                  }
                };
                return mistake;
              });
  add_mistake(list, "softcap-after-shift", "SCOREMOD", "softcap is applied after ALiBi and bias",
              [](const Observation& o) -> std::optional<Mistake> {
                const Problem& p = o.in.problem;
                if (p.softcap == 0 || (p.alibi == Alibi::none && !p.bias)) return std::nullopt;
                Mistake mistake;
                mistake.scores = [](const Inputs& in, RowSketch& row) {
                  const double scale = score_scale<double>(in, row.at), cap = in.problem.softcap;
                  for (Pair& pair : row.pairs) {
                    const double s = shifted<double>(in, row.at, row.i, pair.j, scale * pair.product);
                    const double ratio = std::tanh(s / cap);
                    pair.s = cap * ratio;
                    pair.slope = 1 - ratio * ratio;
                  }
                };
                return mistake;
              });
}

}  // namespace

void add_score_hypotheses(Hypotheses& list) {
  add_known_scales(list);
  add_fitted_scale(list);
  add_softcap(list);
}

}  // namespace flashproof
