#include "fuzz/explain/causes.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "reference/threads.h"

namespace flashproof {
namespace {

/// One hypothesis on one run.
struct Count {
  int64_t wrong = 0, explained = 0, contradicted = 0;
  double distance = 0;  ///< sum of |seen - predicted| / tolerance over the explained elements
};

double fit(double wrong, double explained, double contradicted) {
  const double all = explained + contradicted + wrong;
  return all == 0 ? 1 : 2 * explained / all;
}

void count_output(const Observation& o, OutputId id, const std::vector<double>& predicted, Count& count) {
  const ObservedOutput& output = o[id];
  const int64_t width = row_width(o.in.problem, id);
  for (size_t n = 0; n < output.state.size(); ++n) {
    if (output.state[n] == ElementState::unjudged) continue;
    const double allowed = tolerance(output, tensor_of(o.outputs, id), predicted, width, int64_t(n));
    const bool agreed = agrees(output.seen[n], predicted[n], allowed);
    if (output.state[n] == ElementState::right) {
      count.contradicted += !agreed;
      continue;
    }
    ++count.wrong;
    // A prediction of the truth explains nothing, though its grown bound may reach what was seen.
    if (!agreed || agrees(predicted[n], output.truth[n], 1e-6 * output.bound[n])) continue;
    ++count.explained;
    if (std::isfinite(predicted[n]) && allowed > 0) count.distance += std::abs(output.seen[n] - predicted[n]) / allowed;
  }
}

Count count_run(const Observation& o, const Prediction& prediction) {
  Count count;
  for (int id = 0; id < output_count; ++id) {
    const std::vector<double>& values = prediction.values.output[id];
    count_output(o, OutputId(id), values.empty() ? o.output[id].truth : values, count);
  }
  return count;
}

/// The score and the counts of a hypothesis over all runs.
struct Scored {
  double score = -1;
  int64_t explained = 0, contradicted = 0, wrong = 0;
};
Scored scored(const std::vector<Count>& counts, Scope scope) {
  constexpr double price[] = {0, 0.04, 0.1};
  Scored scored;
  double sum = 0, distance = 0, weights = 0;
  for (const Count& count : counts) {
    const int64_t against = scope == Scope::failing_elements ? 0 : count.contradicted;
    scored.wrong += count.wrong, scored.explained += count.explained, scored.contradicted += against;
    distance += count.distance;
    if (count.wrong == 0 && against == 0) continue;
    const double weight = 1 - 1 / double(1 + count.wrong + against);
    sum += weight * fit(double(count.wrong), double(count.explained), double(against));
    weights += weight;
  }
  if (scored.explained == 0) return scored;
  scored.score = sum / weights - price[int(scope)] - 0.03 * distance / double(scored.explained);
  return scored;
}

/// Query rows in which O, L or dQ is wrong.
std::vector<bool> failing_query_rows(const Observation& o) {
  std::vector<bool> failing(o.in.packing.total_q() * o.in.problem.heads);
  for (const OutputId id : {OutputId::o, OutputId::lse, OutputId::dq}) {
    const int64_t width = row_width(o.in.problem, id);
    for (size_t n = 0; n < o[id].state.size(); ++n)
      if (o[id].state[n] == ElementState::wrong) failing[n / width] = true;
  }
  return failing;
}

/// The mistake made in the failing rows alone; nothing where all rows fail, or none does.
std::optional<Prediction> predict_in_rows(const Hypothesis& hypothesis, const Observation& o) {
  std::optional<Mistake> mistake = hypothesis.mistake ? hypothesis.mistake(o) : std::nullopt;
  if (!mistake) return std::nullopt;
  mistake->rows = failing_query_rows(o);
  return Prediction{sketch(o.in, *mistake), ""};
}

/// False where `stop` came before all runs were held against the hypothesis.
bool judge(const std::vector<Observation>& runs, const Hypothesis& hypothesis, const std::function<bool()>& stop,
           std::optional<Cause>& judged) {
  constexpr double beyond_doubt = 0.95;
  Cause cause{.id = hypothesis.id, .category = hypothesis.category, .sentence = hypothesis.sentence, .detail = ""};
  std::vector<Count> everywhere, in_rows;
  for (const Observation& o : runs) {
    if (stop()) return false;
    const std::optional<Prediction> prediction = hypothesis.predict(o);
    if (prediction && cause.detail.empty()) cause.detail = prediction->detail;
    everywhere.push_back(count_run(o, prediction ? *prediction : Prediction{}));
  }
  Scored best = scored(everywhere, Scope::everywhere);
  const auto improve = [&](const std::vector<Count>& counts, Scope scope) {
    const Scored other = scored(counts, scope);
    if (other.score > best.score) best = other, cause.scope = scope;
  };
  if (hypothesis.by_element) improve(everywhere, Scope::failing_elements);
  if (hypothesis.mistake && best.explained > 0 && best.score < beyond_doubt) {
    for (const Observation& o : runs) {
      if (stop()) return false;
      const std::optional<Prediction> prediction = predict_in_rows(hypothesis, o);
      in_rows.push_back(count_run(o, prediction ? *prediction : Prediction{}));
    }
    improve(in_rows, Scope::failing_rows);
  }
  if (best.score < 0) return true;
  cause.score = best.score - hypothesis.freedom;
  cause.wrong = best.wrong, cause.explained = best.explained, cause.contradicted = best.contradicted;
  judged = cause;
  return true;
}

}  // namespace

int64_t row_width(const Problem& p, OutputId id) {
  if (id == OutputId::dq || id == OutputId::dk) return p.head_dim;
  return id == OutputId::o || id == OutputId::dv ? p.value_dim : 1;
}

double tolerance(const ObservedOutput& output, const Tensor& tensor, const std::vector<double>& predicted,
                 int64_t width, int64_t index) {
  double truth = 0, wrong = 0;
  for (int64_t n = index / width * width; n < index / width * width + width; ++n) {
    if (std::isfinite(output.truth[n])) truth = std::max(truth, std::abs(output.truth[n]));
    if (std::isfinite(predicted[n])) wrong = std::max(wrong, std::abs(predicted[n]));
  }
  const double grown = truth > 0 ? output.bound[index] * std::max(1.0, wrong / truth) : 0;
  const double half_ulp =
      std::isfinite(predicted[index]) ? std::ldexp(std::abs(predicted[index]), -format_of(tensor.dtype).precision) : 0;
  return std::max(grown, 1.5 * half_ulp);
}

Ranking rank_causes(const std::vector<Observation>& runs, const Hypotheses& hypotheses,
                    const std::function<bool()>& stop) {
  std::vector<std::optional<Cause>> judged(hypotheses.size());
  std::atomic<int64_t> untried = 0;
  for_each_item(int64_t(hypotheses.size()), 0, [&](int64_t n) {
    if (!judge(runs, hypotheses[n], stop, judged[n])) ++untried;
  });
  Ranking ranking{.causes = {}, .untried = untried};
  for (const std::optional<Cause>& cause : judged)
    if (cause) ranking.causes.push_back(*cause);
  std::stable_sort(ranking.causes.begin(), ranking.causes.end(),
                   [](const Cause& a, const Cause& b) { return a.score > b.score; });
  return ranking;
}

}  // namespace flashproof
