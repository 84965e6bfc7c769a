// Keys of a row left out, counted twice, or counted though hidden, whichever they are: a stretch [a, b) found from O
// and L.
//
// With p of the exact row and w the sum of p over a stretch of visible keys, leaving it out gives L + ln(1 - w) and (O
// - sum p v) / (1 - w); counting it twice, or a stretch of hidden keys with their own scores, gives the same with the
// other sign.
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "fuzz/explain/causes.h"
#include "fuzz/explain/hypothesis.h"

namespace flashproof {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr int64_t most_keys = 256;

enum class Stretch { left_out, twice, hidden };

/// exp(s - L) of all keys of a row, hidden ones as if they were visible, and running sums of them and of their values.
struct RunningRow {
  std::vector<double> sum;     ///< [keys + 1]
  std::vector<double> values;  ///< [keys + 1][dv]
};
RunningRow running_row(const Observation& o, const HeadIndex& at, int64_t i, double l, Stretch kind) {
  const int64_t dim = o.in.problem.value_dim;
  RunningRow row{std::vector<double>(at.seq_k + 1, 0), std::vector<double>((at.seq_k + 1) * dim, 0)};
  const double t_v = value_scale<double>(o.in, at);
  for (int64_t j = 0; j < at.seq_k; ++j) {
    const bool counts = sees(o.in, at.b, at.h, i, j) != (kind == Stretch::hidden);
    const double s = counts ? score<double>(o.in, at, i, j).s : -infinity;
    const double p = s == -infinity ? 0 : std::exp(s - l), z = dropout_factor<double>(o.in, at, i, j);
    row.sum[j + 1] = row.sum[j] + p;
    for (int64_t c = 0; c < dim; ++c)
      row.values[(j + 1) * dim + c] = row.values[j * dim + c] + t_v * p * z * o.in.v.at(at.key_row(j) * dim + c);
  }
  return row;
}

struct Found {
  int64_t begin = 0, end = 0;  ///< empty: none
  double l = 0;
  std::vector<double> o;
};

/// The shortest stretch that gives what was seen of O and L of a row.
Found find_stretch(const Observation& obs, const HeadIndex& at, int64_t i, Stretch kind) {
  const int64_t dim = obs.in.problem.value_dim, flat = at.query_row(i);
  const ObservedOutput &o = obs[OutputId::o], &l = obs[OutputId::lse];
  const double truth_l = l.truth.empty() ? softmax_row<double>(obs.in, at.b, at.h, i).l : l.truth[flat];
  Found found;
  if (!std::isfinite(truth_l) || at.seq_k > most_keys) return found;
  const RunningRow row = running_row(obs, at, i, truth_l, kind);
  const double sign = kind == Stretch::left_out ? -1 : 1;
  for (int64_t begin = 0; begin < at.seq_k; ++begin)
    for (int64_t end = begin + 1; end <= at.seq_k; ++end) {
      const double sum = 1 + sign * (row.sum[end] - row.sum[begin]);
      if (!(sum > 1e-6) || sum == 1 || (found.end > 0 && end - begin >= found.end - found.begin)) continue;
      Found here{begin, end, truth_l + std::log(sum), std::vector<double>(dim)};
      bool agreed = l.truth.empty() || agrees(l.seen[flat], here.l, l.bound[flat]);
      for (int64_t c = 0; c < dim && agreed; ++c) {
        here.o[c] = (o.truth[flat * dim + c] + sign * (row.values[end * dim + c] - row.values[begin * dim + c])) / sum;
        agreed = agrees(o.seen[flat * dim + c], here.o[c], std::max(1.0, 1 / sum) * o.bound[flat * dim + c]);
      }
      if (agreed) found = here;
    }
  return found;
}

bool row_fails(const Observation& o, int64_t flat) {
  const int64_t dim = o.in.problem.value_dim;
  bool fails = !o[OutputId::lse].state.empty() && o[OutputId::lse].state[flat] == ElementState::wrong;
  for (int64_t c = 0; c < dim; ++c) fails |= o[OutputId::o].state[flat * dim + c] == ElementState::wrong;
  return fails;
}

std::optional<Prediction> predict_stretches(const Observation& o, Stretch kind) {
  if (o[OutputId::o].state.empty()) return std::nullopt;
  const Problem& p = o.in.problem;
  Prediction prediction;
  prediction.values[OutputId::o] = o[OutputId::o].truth;
  prediction.values[OutputId::lse] = o[OutputId::lse].truth;
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t h = 0; h < p.heads; ++h) {
      const HeadIndex at = head_index(o.in, b, h);
      for (int64_t i = 0; i < at.seq_q; ++i) {
        if (!row_fails(o, at.query_row(i))) continue;
        const Found found = find_stretch(o, at, i, kind);
        if (found.end == 0) continue;
        if (prediction.detail.empty())
          prediction.detail = fmt::format("e.g. keys {} to {} of {} in row {} of entry {}, head {}", found.begin,
                                          found.end - 1, at.seq_k, i, b, h);
        std::copy(found.o.begin(), found.o.end(),
                  prediction.values[OutputId::o].begin() + at.query_row(i) * p.value_dim);
        if (!o[OutputId::lse].truth.empty()) prediction.values[OutputId::lse][at.query_row(i)] = found.l;
      }
    }
  return prediction.detail.empty() ? std::nullopt : std::optional(prediction);
}

}  // namespace

void add_stretch_hypotheses(Hypotheses& list) {
  struct Kind {
    const char *id, *category, *sentence;
    Stretch kind;
  };
  constexpr Kind kinds[] = {{"stretch-left-out", "TAIL", "a stretch of keys is left out", Stretch::left_out},
                            {"stretch-counted-twice", "TAIL", "a stretch of keys is counted twice", Stretch::twice},
                            {"stretch-shown", "MASK", "a stretch of hidden keys is counted", Stretch::hidden}};
  for (const Kind& kind : kinds)
    list.push_back({kind.id,
                    kind.category,
                    kind.sentence,
                    [kind](const Observation& o) { return predict_stretches(o, kind.kind); },
                    {},
                    0.12,
                    false});
}

}  // namespace flashproof
