// The power of the check `bound` on a case: which wrong answers it would reject.
//
// Each imposter is O and L of some query rows under a wrong rule, in plain double, held against the same bounds. An
// imposter that no judged row tells from the truth is one that this case cannot find by the bound; other data or other
// checks must.
#include <algorithm>
#include <cmath>

#include "oracle/bound_rows.h"
#include "oracle/checks/checks.h"
#include "reference/arithmetic.h"

namespace flashproof {
namespace {

constexpr int64_t most_rows = 8;
constexpr double log2_e = 1.4426950408889634;

/// The truth about one row, its bounds, and a place for imposters.
struct JudgedRow {
  const Inputs& in;
  const ErrorModel& model;
  const KeyPanel& panel;
  HeadIndex at;
  int64_t i;
  KeyRange keys;
  ScoreRow scores;
  OutputRow output;
  double l, l_bound;
};

/// O and L over `keys` with scores times `factor`.
struct Answer {
  std::vector<double> o;
  double l;
};
Answer answer(const JudgedRow& row, const Inputs& in, const KeyPanel& panel, KeyRange keys, double factor) {
  ScoreRow scores = score_row(in, row.model, panel, row.at, row.i, keys);
  for (double& y : scores.y) y *= factor;
  scores.largest *= factor;
  const WeightRow weights = weight_row(in, row.model, scores);
  return {output_row(in, row.model, panel, scores, weights).o, weights.l};
}
Answer answer(const JudgedRow& row, KeyRange keys, double factor) {
  return answer(row, row.in, row.panel, keys, factor);
}

bool rejects_o(const JudgedRow& row, const std::vector<double>& o) {
  for (size_t c = 0; c < o.size(); ++c)
    if (std::abs(o[c] - row.output.o[c]) > row.output.bound[c].total()) return true;
  return false;
}
bool rejects_l(const JudgedRow& row, double l) { return std::abs(l - row.l) > row.l_bound; }
bool rejects(const JudgedRow& row, bool has_l, const Answer& answer) {
  return rejects_o(row, answer.o) || (has_l && rejects_l(row, answer.l));
}

std::vector<double> mean_of_v(const JudgedRow& row) {
  std::vector<double> mean(row.output.o.size(), 0);
  for (int64_t j : row.scores.keys)
    for (size_t c = 0; c < mean.size(); ++c)
      mean[c] += row.panel.v_rows[j * row.panel.value_dim + int64_t(c)] / double(row.scores.keys.size());
  return mean;
}

/// `previous`: the same problem on other data, whose output may still lie in memory.
void judge_row(const JudgedRow& row, const Inputs& previous, bool has_l, std::vector<Imposter>& power) {
  const auto note = [&](const char* name, bool rejected) {
    auto found =
        std::find_if(power.begin(), power.end(), [&](const Imposter& imposter) { return imposter.name == name; });
    if (found == power.end()) found = power.insert(power.end(), Imposter{name, false});
    found->rejected |= rejected;
  };
  note("zeros", rejects_o(row, std::vector<double>(row.output.o.size(), 0)));
  note("mean of V", rejects_o(row, mean_of_v(row)));
  const KeyPanel previous_panel = key_panel(previous, row.model, row.at.b, row.at.kv_head);
  note("previous output", rejects(row, has_l, answer(row, previous, previous_panel, row.keys, 1)));
  if (row.keys.end - row.keys.begin > 1)
    note("one key dropped", rejects(row, has_l, answer(row, {row.keys.begin, row.keys.end - 1}, 1)));
  if (row.keys.end < row.panel.keys)
    note("mask off by one", rejects(row, has_l, answer(row, {row.keys.begin, row.keys.end + 1}, 1)));
  else if (row.keys.begin > 0)
    note("mask off by one", rejects(row, has_l, answer(row, {row.keys.begin - 1, row.keys.end}, 1)));
  note("scale 1 % off", rejects(row, has_l, answer(row, row.keys, 1.01)));
  if (has_l) note("base-2 L", rejects_l(row, row.l * log2_e));
}

}  // namespace

std::vector<Imposter> power_of(const Case& c, const Subject& subject) {
  Case earlier = c;
  ++earlier.recipe.seed;
  const Inputs in = make_inputs(c), previous = make_inputs(earlier);
  const Problem& p = in.problem;
  const ErrorModel model = error_model(p, parse_arithmetic(subject.arithmetic));
  const int64_t rows = in.packing.total_q() * p.heads, judged = std::min(rows, most_rows);
  std::vector<Imposter> power;
  for (int64_t n = 0; n < judged; ++n) {
    const Where where = locate(p, OutputId::lse, judged == 1 ? 0 : n * (rows - 1) / (judged - 1));
    const HeadIndex at = head_index(in, where.b, where.head);
    const KeyPanel panel = key_panel(in, model, at.b, at.kv_head);
    const KeyRange keys = visible_keys(p.mask, at.seq_q, at.seq_k, where.position);
    JudgedRow row{in, model, panel, at, where.position, keys, score_row(in, model, panel, at, where.position, keys),
                  {}, 0,     0};
    if (row.scores.keys.empty()) continue;
    const WeightRow weights = weight_row(in, model, row.scores);
    row.output = output_row(in, model, panel, row.scores, weights);
    row.l = weights.l;
    row.l_bound = log_sum_bound(model, weights).total();
    judge_row(row, previous, subject.conventions.lse_base != FLASHPROOF_LSE_NONE, power);
  }
  return power;
}

}  // namespace flashproof
