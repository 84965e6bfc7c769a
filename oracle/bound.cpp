// The loops over rows and keys that turn the bounds of one row (bound_rows, bound_gradients) into those of a result.
#include "oracle/bound.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>

#include "oracle/bound_gradients.h"
#include "reference/threads.h"

namespace flashproof {
namespace {

/// Bounds are computed in double with relative errors below 1e-7 (bound_rows.cpp); this factor keeps them bounds.
constexpr double slack = 1 + 1e-6;
constexpr int64_t keys_at_once = 32;

/// Where a format may overflow, 0 times infinity is no number: nothing is claimed.
double with_slack(double bound) { return std::isnan(bound) ? std::numeric_limits<double>::infinity() : bound * slack; }

/// dbias or dsink while rows are added: error of the terms, their magnitudes, their number.
struct SharedSum {
  std::vector<double> error, magnitude, count;
  bool overflow = false;
  explicit SharedSum(int64_t n) : error(n, 0), magnitude(n, 0), count(n, 0) {}
  /// fp32 additions in any order.
  double bound(int64_t n) const {
    if (overflow) return std::numeric_limits<double>::infinity();
    return error[n] + compounded(fp32_unit, count[n] + 1) * (magnitude[n] + error[n]) + flush * (count[n] + 1);
  }
};

bool any_known(const OutputValues& values, int64_t begin, int64_t count) {
  if (values.known.empty()) return false;
  const auto first = values.known.begin() + begin;
  return std::any_of(first, first + count, [](uint8_t known) { return known != 0; });
}

/// Everything about one query row.
struct FullRow {
  ScoreRow scores;
  WeightRow weights;
  LogSumBound l;
  OutputRow output;
};
FullRow full_row(const Inputs& in, const ErrorModel& model, const KeyPanel& panel, const HeadIndex& at, int64_t i) {
  FullRow row;
  row.scores = score_row(in, model, panel, at, i, visible_keys(in.problem.mask, at.seq_q, at.seq_k, i));
  row.weights = weight_row(in, model, row.scores);
  row.l = log_sum_bound(model, row.weights);
  row.output = output_row(in, model, panel, row.scores, row.weights);
  return row;
}

/// The work of one bound() call.
struct Pass {
  const Inputs& in;
  const ErrorModel model;
  const Values& values;
  const int threads;
  Bounds& bounds;
  SharedSum dsink, dbias;
  std::mutex shared;

  Pass(const Inputs& inputs, const Arithmetic& arithmetic, const Values& known, int thread_count, Bounds& result)
      : in(inputs),
        model(error_model(inputs.problem, arithmetic)),
        values(known),
        threads(thread_count),
        bounds(result),
        dsink(int64_t(inputs.sinks.size())),
        dbias(inputs.bias.size()) {}

  bool asked(OutputId id) const { return any_known(values[id], 0, int64_t(values[id].known.size())); }

  void store(OutputId id, int64_t index, double bound) {
    if (values[id].known.empty() || !values[id].known[index]) return;
    bounds.bound[int(id)][index] = with_slack(bound);
  }

  /// Why a row's bounds are infinite, if they are.
  void note_infinite(const FullRow& row) {
    const bool infinite = !std::isfinite(row.l.total()) ||
                          std::any_of(row.output.bound.begin(), row.output.bound.end(),
                                      [](const OutputBound& bound) { return !std::isfinite(bound.total()); });
    if (!infinite) return;
    const std::lock_guard lock(shared);
    if (row.weights.overflow || row.output.overflow) {
      bounds.overflow_possible = true;
      return;
    }
    bounds.score_error = std::max(bounds.score_error, row.weights.sink_kappa);
    for (const double kappa : row.weights.kappa) bounds.score_error = std::max(bounds.score_error, kappa);
  }

  void add_bias_row(const FullRow& row, const PairRow& pairs) {
    const std::lock_guard lock(shared);
    dbias.overflow |= pairs.overflow;
    for (size_t k = 0; k < row.scores.keys.size(); ++k) {
      const int64_t n = bias_index(in, row.scores.at.b, row.scores.at.h, row.scores.i, row.scores.keys[k]);
      // The kernel may add dS before or after it is rounded for the matrix products.
      dbias.error[n] +=
          pairs.ds_error[k] + model.ds.relative * (std::abs(pairs.ds[k]) + pairs.ds_error[k]) + model.ds.absolute;
      dbias.magnitude[n] += std::abs(pairs.ds[k]);
      dbias.count[n] += 1;
    }
  }

  void query_row(const KeyPanel& panel, const HeadIndex& at, int64_t i, RowState* state) {
    const Problem& p = in.problem;
    const int64_t row_index = at.query_row(i);
    const FullRow row = full_row(in, model, panel, at, i);
    note_infinite(row);
    store(OutputId::lse, row_index, row.l.total());
    for (int64_t c = 0; c < p.value_dim; ++c)
      store(OutputId::o, row_index * p.value_dim + c, row.output.bound[c].total());
    if (state == nullptr) return;
    *state = row_state(in, model, panel, row.scores, row.weights, row.output, row.l);
    const bool dq = any_known(values[OutputId::dq], row_index * p.head_dim, p.head_dim), bias = asked(OutputId::dbias);
    if (state->empty) {  // dQ is a factor times an empty sum
      for (int64_t c = 0; state->overflow && c < p.head_dim; ++c)
        store(OutputId::dq, row_index * p.head_dim + c, std::numeric_limits<double>::infinity());
      return;
    }
    if (!dq && !bias) return;
    const PairRow pairs = pair_row(in, model, panel, row.scores, *state);
    if (bias) add_bias_row(row, pairs);
    if (!dq) return;
    const std::vector<GradientBound> gradient = query_gradient(in, model, panel, row.scores, pairs, Detail::total);
    for (int64_t c = 0; c < p.head_dim; ++c) store(OutputId::dq, row_index * p.head_dim + c, gradient[c].sum());
  }

  void key_chunk(const KeyPanel& panel, int64_t b, int64_t kv_head, KeyRange keys,
                 const std::vector<RowState>& states) {
    const KeyGradients gradients = key_gradients(in, model, panel, b, kv_head, keys, states, Detail::total);
    for (int64_t j = keys.begin; j < keys.end; ++j) {
      const int64_t row = (in.packing.k_begin[b] + j) * in.problem.kv_heads + kv_head, n = j - keys.begin;
      for (int64_t c = 0; c < panel.head_dim; ++c)
        store(OutputId::dk, row * panel.head_dim + c, gradients.dk[n * panel.head_dim + c].sum());
      for (int64_t c = 0; c < panel.value_dim; ++c)
        store(OutputId::dv, row * panel.value_dim + c, gradients.dv[n * panel.value_dim + c].sum());
    }
  }

  std::vector<KeyRange> known_chunks(int64_t b, int64_t kv_head) const {
    std::vector<KeyRange> chunks;
    const Problem& p = in.problem;
    for (int64_t j = 0; j < in.packing.seq_k(b); ++j) {
      const int64_t row = (in.packing.k_begin[b] + j) * p.kv_heads + kv_head;
      if (!any_known(values[OutputId::dk], row * p.head_dim, p.head_dim) &&
          !any_known(values[OutputId::dv], row * p.value_dim, p.value_dim))
        continue;
      if (chunks.empty() || chunks.back().end != j || j - chunks.back().begin >= keys_at_once) chunks.push_back({j, j});
      chunks.back().end = j + 1;
    }
    return chunks;
  }

  void kv_head(int64_t b, int64_t kv_head) {
    const Problem& p = in.problem;
    const int64_t group = p.heads / p.kv_heads, seq_q = in.packing.seq_q(b);
    const std::vector<KeyRange> chunks = known_chunks(b, kv_head);
    const bool every_row = !chunks.empty() || asked(OutputId::dsink) || asked(OutputId::dbias);
    std::vector<int64_t> rows;  // h * Sq + i
    for (int64_t n = 0; n < group * seq_q; ++n) {
      const int64_t row = head_index(in, b, kv_head * group + n / seq_q).query_row(n % seq_q);
      if (every_row || any_known(values[OutputId::o], row * p.value_dim, p.value_dim) ||
          any_known(values[OutputId::lse], row, 1) || any_known(values[OutputId::dq], row * p.head_dim, p.head_dim))
        rows.push_back(n);
    }
    if (rows.empty() && chunks.empty()) return;
    const KeyPanel panel = key_panel(in, model, b, kv_head);
    std::vector<RowState> states(has_backward(p) ? group * seq_q : 0);
    for_each_item(int64_t(rows.size()), threads, [&](int64_t item) {
      const int64_t n = rows[item];
      query_row(panel, head_index(in, b, kv_head * group + n / seq_q), n % seq_q,
                states.empty() ? nullptr : &states[n]);
    });
    for_each_item(int64_t(chunks.size()), threads,
                  [&](int64_t item) { key_chunk(panel, b, kv_head, chunks[item], states); });
    if (!asked(OutputId::dsink)) return;
    for (int64_t n = 0; n < group * seq_q; ++n) {
      const int64_t h = kv_head * group + n / seq_q;
      dsink.error[h] += states[n].sink_error;
      dsink.magnitude[h] += std::abs(states[n].sink_p * states[n].d);
      dsink.count[h] += 1;
      dsink.overflow |= states[n].overflow;
    }
  }

  void run() {
    for (int id = 0; id < output_count; ++id) bounds.bound[id].assign(values.output[id].known.size(), 0);
    for (int64_t b = 0; b < in.problem.batch; ++b)
      for (int64_t h = 0; h < in.problem.kv_heads; ++h) kv_head(b, h);
    for (size_t h = 0; h < dsink.error.size(); ++h) store(OutputId::dsink, int64_t(h), dsink.bound(int64_t(h)));
    for (size_t n = 0; n < dbias.error.size(); ++n)
      if (dbias.count[n] > 0) store(OutputId::dbias, int64_t(n), dbias.bound(int64_t(n)));
    const bool infinite = std::any_of(std::begin(bounds.bound), std::end(bounds.bound), [](const auto& of) {
      return std::any_of(of.begin(), of.end(), [](double x) { return std::isinf(x); });
    });
    if (!infinite) bounds.score_error = 0;
    bounds.overflow_possible = infinite && (bounds.overflow_possible || bounds.score_error == 0);
  }
};

/// `amount` in proportion to the parts of kappa, weighted by `weight` of each key; the sink's goes to the argument.
void share(std::vector<BoundTerm>& terms, const ScoreRow& scores, const std::vector<double>& weight, double amount) {
  constexpr const char* names[kappa_parts] = {"scores", "stored scores", "modifiers", "exponent argument", "exp"};
  double parts[kappa_parts] = {}, sum = 0;
  for (int part = 0; part < kappa_parts; ++part)
    for (size_t k = 0; k < weight.size(); ++k) parts[part] += weight[k] * scores.kappa[part][k];
  for (double part : parts) sum += part;
  if (sum == 0) parts[kappa_argument] = sum = 1;
  for (int part = 0; part < kappa_parts; ++part) terms.push_back({names[part], amount * parts[part] / sum});
}

std::vector<BoundTerm> output_terms(const Inputs& in, const KeyPanel& panel, const FullRow& row, int64_t channel) {
  const OutputBound& bound = row.output.bound[channel];
  const double t_v = value_scale<double>(in, row.scores.at);
  std::vector<double> weight;
  for (size_t k = 0; k < row.scores.keys.size(); ++k) {
    const double value = t_v * row.scores.z[k] * panel.v_rows[row.scores.keys[k] * panel.value_dim + channel];
    weight.push_back(row.weights.p[k] * std::abs(value - row.output.o[channel]));
  }
  std::vector<BoundTerm> terms;
  share(terms, row.scores, weight, bound.weights);
  for (const BoundTerm& term : {BoundTerm{"P rounding", bound.p_rounding}, BoundTerm{"row sum", bound.row_sum},
                                BoundTerm{"P V accumulation", bound.accumulation},
                                BoundTerm{"underflow", bound.underflow}, BoundTerm{"output", bound.output}})
    terms.push_back(term);
  return terms;
}

std::vector<BoundTerm> log_sum_terms(const FullRow& row) {
  const double row_sum = std::min(row.l.weights, row.weights.row_sum);
  std::vector<BoundTerm> terms;
  share(terms, row.scores, row.weights.p, row.l.weights - row_sum);
  for (const BoundTerm& term : {BoundTerm{"row sum", row_sum}, BoundTerm{"reference", row.l.reference},
                                BoundTerm{"log", row.l.logarithm}, BoundTerm{"output", row.l.output}})
    terms.push_back(term);
  return terms;
}

std::vector<BoundTerm> gradient_terms(const GradientBound& bound) {
  return {{"weights", bound.terms[part_weights]},
          {"dO v products", bound.terms[part_value_products]},
          {"D", bound.terms[part_d]},
          {"softcap slope", bound.terms[part_tangent]},
          {"rounding of P and dS", bound.terms[part_rounding]},
          {"accumulation", bound.accumulation},
          {"underflow", bound.terms[part_underflow]},
          {"output", bound.output}};
}

/// Values that know one element and no more.
Values only(const Inputs& in, OutputId id, int64_t index) {
  Values values;
  values[id].known.assign(tensor_of(make_outputs(in.problem), id).size(), 0);
  values[id].known[index] = 1;
  return values;
}

std::vector<BoundTerm> row_terms(const Inputs& in, const ErrorModel& model, OutputId id, int64_t index) {
  const Problem& p = in.problem;
  const bool by_key = id == OutputId::dk || id == OutputId::dv;
  const int64_t width = id == OutputId::lse ? 1 : id == OutputId::o || id == OutputId::dv ? p.value_dim : p.head_dim;
  const int64_t heads = by_key ? p.kv_heads : p.heads, token = index / width / heads, h = index / width % heads;
  const std::vector<int64_t>& begins = by_key ? in.packing.k_begin : in.packing.q_begin;
  const int64_t b = std::upper_bound(begins.begin(), begins.end(), token) - begins.begin() - 1;
  const int64_t position = token - begins[b], group = p.heads / p.kv_heads, channel = index % width;
  const KeyPanel panel = key_panel(in, model, b, by_key ? h : h / group);
  if (!by_key) {
    const FullRow row = full_row(in, model, panel, head_index(in, b, h), position);
    if (id == OutputId::o) return output_terms(in, panel, row, channel);
    if (id == OutputId::lse) return log_sum_terms(row);
    const RowState state = row_state(in, model, panel, row.scores, row.weights, row.output, row.l);
    if (state.empty) return {};
    return gradient_terms(query_gradient(in, model, panel, row.scores, pair_row(in, model, panel, row.scores, state),
                                         Detail::parts)[channel]);
  }
  std::vector<RowState> states(group * in.packing.seq_q(b));
  for_each_item(int64_t(states.size()), 0, [&](int64_t n) {
    const HeadIndex at = head_index(in, b, h * group + n / in.packing.seq_q(b));
    const FullRow row = full_row(in, model, panel, at, n % in.packing.seq_q(b));
    states[n] = row_state(in, model, panel, row.scores, row.weights, row.output, row.l);
  });
  const KeyGradients gradients = key_gradients(in, model, panel, b, h, {position, position + 1}, states, Detail::parts);
  return gradient_terms((id == OutputId::dk ? gradients.dk : gradients.dv)[channel]);
}

}  // namespace

Bounds bound(const Inputs& in, const Arithmetic& arithmetic, const Values& values, int threads) {
  Bounds bounds;
  Pass(in, arithmetic, values, threads, bounds).run();
  return bounds;
}

std::vector<BoundTerm> bound_terms(const Inputs& in, const Arithmetic& arithmetic, OutputId id, int64_t index) {
  std::vector<BoundTerm> terms;
  if (id == OutputId::dsink || id == OutputId::dbias)
    terms = {{"sum of its terms", bound(in, arithmetic, only(in, id, index)).bound[int(id)][index] / slack}};
  else
    terms = row_terms(in, error_model(in.problem, arithmetic), id, index);
  for (BoundTerm& term : terms) term.amount = with_slack(term.amount);
  return terms;
}

}  // namespace flashproof
