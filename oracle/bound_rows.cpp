// Scores, weights, L and O of one row in double, each with its error bound: BOUNDS.md 2 to 6.
//
// Plain double is accurate enough: a score's own error here, d 2^-53 sum |q||k|, is below 2^-28 of the kernel's error
// for it, and the rest is below 1e-11 of terms that are at least u sum p |v|. The final factor of bound() covers both.
#include "oracle/bound_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace flashproof {
namespace {

constexpr double u = fp32_unit;
constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double fp32_range = 0x1p127;  // half the largest number: sums of rounded terms stay below 2^128
constexpr double log2_e = 1.4426950408889634;

/// p (e^kappa - 1) without inf * 0.
double grown(double log_p, double p, double kappa) {
  return kappa <= 0.01 ? p * growth(kappa) : std::exp(log_p + kappa) - p;
}

/// The scores' common factor scale t_q t_k: its value and what can go wrong with its products.
struct ScoreFactor {
  double value = 1, descale = 1;
  bool overflow = false, flushed = false;  ///< a partial product may leave fp32, or be flushed to zero
};
ScoreFactor score_factor(const Inputs& in, const HeadIndex& at) {
  const int64_t pair = at.b * at.kv_heads + at.kv_head;
  const double scale = std::abs(double(scale_of(in.problem))), tq = in.q_descale[pair], tk = in.k_descale[pair];
  ScoreFactor factor{scale_of(in.problem) * tq * tk, std::abs(tq * tk)};
  for (double part : {scale, scale * tq, scale * tk, tq * tk, scale * tq * tk}) {
    factor.overflow |= std::abs(part) * log2_e > fp32_range;
    factor.flushed |= part != 0 && std::abs(part) < 0x1p-125;
  }
  return factor;
}

/// 1 / (1 - rate).
double dropout_scale(const Problem& p) { return p.dropout ? 1 / (1 - double(p.dropout->rate)) : 1; }

/// BOUNDS 3: softcap, ALiBi and bias. Takes the scaled score s0; gives the score, s1/cap and the error.
struct Modified {
  double y, tangent = 0, error = 0, largest;
};
Modified modified(const Inputs& in, const ErrorModel& model, const HeadIndex& at, int64_t i, int64_t j, double s0,
                  double bias) {
  const Problem& problem = in.problem;
  Modified m{.y = s0, .largest = std::abs(s0)};
  if (problem.softcap != 0) {
    const double cap = problem.softcap;
    m.tangent = std::tanh(s0 / cap);
    m.y = cap * m.tangent;
    m.error =
        (4 * u + model.scale_product + model.tangent_relative) * std::abs(m.y) + cap * model.tangent_absolute + flush;
    m.largest = std::max(m.largest, std::abs(s0 / cap));
  } else if (problem.alibi != Alibi::none || problem.bias) {
    m.error = (u + model.scale_product) * std::abs(s0);
  }
  const double s1 = m.y;
  double shift = 0;
  if (problem.alibi != Alibi::none) {
    const int64_t distance = std::abs(i + alignment_offset(problem.mask, at.seq_q, at.seq_k) - j);
    shift = double(in.slopes[at.b * at.heads + at.h]) * double(distance);
    m.y -= shift;
    m.error += 3 * u * std::abs(shift);
  }
  if (problem.bias) {
    m.y += bias;
    m.error += 2 * u * std::abs(bias);
    if (problem.alibi != Alibi::none) m.error += u * (std::abs(s1) + std::abs(shift) + std::abs(bias));
  }
  if (problem.alibi != Alibi::none || problem.bias) m.error += u * std::abs(m.y) + 4 * flush;
  m.largest = std::max({m.largest, std::abs(s1) + std::abs(shift) + std::abs(bias)});
  return m;
}

void decode_row(const Tensor& tensor, int64_t row, int64_t n, float* out) {
  for (int64_t c = 0; c < n; ++c) out[c] = float(tensor.at(row * n + c));
}

void transpose(const std::vector<float>& rows, int64_t keys, int64_t n, std::vector<float>& columns) {
  columns.resize(rows.size());
  for (int64_t j = 0; j < keys; ++j)
    for (int64_t c = 0; c < n; ++c) columns[c * keys + j] = rows[j * n + c];
}

}  // namespace

double value_factor(const Inputs& in, const HeadIndex& at) {
  return std::max(1.0, std::abs(value_scale<double>(in, at))) * dropout_scale(in.problem);
}

bool value_factor_overflows(const Inputs& in, const HeadIndex& at) { return !(value_factor(in, at) < fp32_range); }

double size_of(double x, double floor) { return x == 0 ? 0 : std::max(std::abs(x), floor); }

KeyPanel key_panel(const Inputs& in, const ErrorModel& model, int64_t b, int64_t kv_head) {
  const Problem& p = in.problem;
  KeyPanel panel{.keys = in.packing.seq_k(b),
                 .head_dim = p.head_dim,
                 .value_dim = p.value_dim,
                 .k_columns = {},
                 .k_column_sizes = {},
                 .v_rows = {},
                 .v_sizes = {},
                 .k_rows = {},
                 .k_sizes = {},
                 .v_columns = {},
                 .v_column_sizes = {},
                 .k_sums = {},
                 .v_sums = {}};
  panel.k_rows.resize(panel.keys * p.head_dim);
  panel.v_rows.resize(panel.keys * p.value_dim);
  for (int64_t j = 0; j < panel.keys; ++j) {
    const int64_t row = (in.packing.k_begin[b] + j) * p.kv_heads + kv_head;
    decode_row(in.k, row, p.head_dim, &panel.k_rows[j * p.head_dim]);
    decode_row(in.v, row, p.value_dim, &panel.v_rows[j * p.value_dim]);
  }
  const auto sizes = [&](const std::vector<float>& x) {
    std::vector<float> result(x.size());
    for (size_t n = 0; n < x.size(); ++n) result[n] = float(size_of(x[n], model.operand_floor));
    return result;
  };
  const auto sums = [&](const std::vector<float>& x, int64_t n) {
    std::vector<double> result(panel.keys, 0.0);
    for (int64_t j = 0; j < panel.keys; ++j)
      for (int64_t c = 0; c < n; ++c) result[j] += std::abs(double(x[j * n + c]));
    return result;
  };
  panel.k_sizes = sizes(panel.k_rows);
  panel.v_sizes = sizes(panel.v_rows);
  panel.k_sums = sums(panel.k_rows, p.head_dim);
  panel.v_sums = sums(panel.v_rows, p.value_dim);
  transpose(panel.k_rows, panel.keys, p.head_dim, panel.k_columns);
  transpose(panel.k_sizes, panel.keys, p.head_dim, panel.k_column_sizes);
  if (has_backward(p)) {
    transpose(panel.v_rows, panel.keys, p.value_dim, panel.v_columns);
    transpose(panel.v_sizes, panel.keys, p.value_dim, panel.v_column_sizes);
  }
  return panel;
}

void dot_columns(const std::vector<double>& x, const std::vector<double>& x_sizes, const std::vector<float>& columns,
                 const std::vector<float>& column_sizes, int64_t keys, KeyRange range, std::vector<double>& dots,
                 std::vector<double>& sizes) {
  const int64_t n = std::max<int64_t>(range.end - range.begin, 0);
  dots.assign(n, 0);
  sizes.assign(n, 0);
  for (size_t c = 0; c < x.size(); ++c) {
    const float* column = columns.data() + c * keys + range.begin;
    const float* column_size = column_sizes.data() + c * keys + range.begin;
    const double value = x[c], size = x_sizes[c];
    for (int64_t j = 0; j < n; ++j) {
      dots[j] += value * column[j];
      sizes[j] += size * column_size[j];
    }
  }
}

ScoreRow score_row(const Inputs& in, const ErrorModel& model, const KeyPanel& panel, const HeadIndex& at, int64_t i,
                   KeyRange range) {
  const Problem& problem = in.problem;
  ScoreRow row{.at = at,
               .i = i,
               .span = std::max<int64_t>(range.end - range.begin, 0),
               .keys = {},
               .y = {},
               .tangent = {},
               .z = {},
               .kappa = {}};
  row.largest = row.low = row.high = -infinity;
  const int64_t d = problem.head_dim;
  std::vector<double> q(d), q_sizes(d), dots, sizes;
  double q_sum = 0, q_largest = 0;
  for (int64_t c = 0; c < d; ++c) {
    q[c] = in.q.at(at.query_row(i) * d + c);
    q_sizes[c] = size_of(q[c], model.operand_floor);
    q_sum += std::abs(q[c]);
    q_largest = std::max(q_largest, std::abs(q[c]));
  }
  dot_columns(q, q_sizes, panel.k_columns, panel.k_column_sizes, panel.keys, range, dots, sizes);
  const ScoreFactor factor = score_factor(in, at);
  const double sigma = std::abs(factor.value), gamma = model.score_gamma(d);
  row.overflow = factor.overflow ||
                 (model.prescaled && q_largest * std::abs(double(scale_of(problem))) > 0.99 * model.prescale.largest);
  const bool modifiers = problem.softcap != 0 || problem.alibi != Alibi::none || problem.bias;
  for (int64_t n = 0; n < row.span; ++n) {
    const int64_t j = range.begin + n;
    const double bias = problem.bias ? bias_at(in, at.b, at.h, i, j) : 0;
    if (bias == -infinity) continue;
    const double s0 = factor.value * dots[n];
    const Modified m = modified(in, model, at, i, j, s0, bias);
    // BOUNDS 2: accumulation, products and operands flushed to zero, q rounded after scaling.
    double scores = gamma * sigma * sizes[n] + sigma * flush * (q_sum + panel.k_sums[j] + 2 * double(d));
    if (factor.flushed) scores += std::abs(s0);
    double stored = sigma * sizes[n] * model.prescale.relative +
                    factor.descale * panel.k_sums[j] * (model.prescaled ? model.prescale.absolute : 0);
    if (model.scores_stored)
      stored += model.stored.relative * (std::abs(s0) + (modifiers ? std::abs(m.y) : 0)) +
                model.stored.absolute * (std::max(1.0, sigma) + (modifiers ? 1 : 0));
    row.keys.push_back(j);
    row.y.push_back(m.y);
    row.tangent.push_back(m.tangent);
    row.z.push_back(dropout_factor<double>(in, at, i, j));
    row.kappa[kappa_scores].push_back(scores);
    row.kappa[kappa_stored].push_back(stored);
    row.kappa[kappa_modifiers].push_back(m.error);
    row.largest = std::max(row.largest, m.y);
    row.low = std::max(row.low, m.y - (scores + stored + m.error));
    row.high = std::max(row.high, m.y + (scores + stored + m.error));
    const double range_used = std::max(sizes[n] * (model.prescaled ? std::max(1.0, sigma) : 1), m.largest);
    row.overflow |=
        range_used * log2_e > fp32_range || (model.scores_stored && range_used > 0.99 * model.stored.largest);
  }
  return row;
}

namespace {

/// What the kernel's row maximum may be, keys and sink together.
struct Maximum {
  double exact, high;  ///< exact; most that is computed
};

/// BOUNDS 4: kappa_j, for the keys and the sink.
void weigh(const Inputs& in, const ErrorModel& model, const Maximum& top, ScoreRow& scores, WeightRow& row) {
  const size_t n = scores.keys.size();
  // Normalised at each tile, a tile's weights are against its own maximum, and one more exponential moves them to the
  // row's.
  const double steps = double(1 + row.rescales + (model.each_tile ? 1 : 0));
  const double log_sum = row.l - top.exact, shift = std::abs(std::log(model.p_unit));
  // Where the keys are split, each part's L is rounded and enters the combination: its row sum is at most n + 1.
  const double part_log = model.log_error(std::log(double(n) + 1));
  // `lowest`: the computed score. Any reference taken on the way lies between it and the highest.
  const auto argument = [&](double y, double lowest) {
    const double distance = top.high - lowest, size = std::max(std::abs(lowest), std::abs(top.high));
    const double part = model.split ? u * (6 * size + std::abs(row.l) + 3 * (distance + log_sum)) + part_log : 0;
    return model.y * std::abs(y) + model.t * distance + model.top * size + (shift > 0 ? u * (size + 2 * shift) : 0) +
           part;
  };
  for (size_t k = 0; k < n; ++k) {
    const double lowest = scores.y[k] - scores.error(k), distance = top.high - lowest;
    const double of_argument = argument(scores.y[k], lowest), of_exp = model.exp * steps + model.exp_slope * distance;
    const double combination = model.exp + (model.exp_slope + 3 * u) * (distance + log_sum);
    scores.kappa[kappa_argument].push_back(of_argument);
    scores.kappa[kappa_exp].push_back(of_exp);
    row.log_p.push_back(scores.y[k] - row.l);
    row.p.push_back(std::exp(row.log_p.back()));
    row.kappa.push_back(scores.error(k) + of_argument + of_exp);
    row.apart.push_back(std::max(model.split ? 2 * combination : 0,
                                 model.normalized_first && row.rescales > 0 ? 2 * (of_argument + of_exp) : 0));
  }
  if (!in.problem.sink) return;
  const double sink = in.sinks[scores.at.h], error = 2 * u * std::abs(sink);
  // The maximum may leave the sink out, and then lie below it.
  const double distance = n == 0 ? 0 : std::max(top.high - sink, sink - scores.low) + error;
  row.sink_p = std::exp(sink - row.l);
  row.sink_kappa = error + argument(sink, top.high - distance) + model.exp * steps + model.exp_slope * distance;
  row.overflow |= n > 0 && sink - scores.largest > 80;  // exp(sink - max) overflows where the maximum leaves it out
}

/// BOUNDS 5: products, and divisions where O is kept normalised, between a tile's P v and the end. O is divided at
/// tiles of which the row sees nothing, too.
double rescale_error(const ErrorModel& model, const WeightRow& row, int64_t seq_k) {
  if (!model.each_tile) return compounded(u, double(row.rescales));
  const double tiles = std::ceil(double(seq_k) / std::max(model.tile_n, 1)) + 1;
  return (1 + compounded(u, 2 * tiles)) * (1 + compounded(model.division, tiles)) - 1;
}

/// BOUNDS 5: the numerators' own errors.
double numerator_error(const Inputs& in, const ErrorModel& model, const WeightRow& row, size_t keys) {
  double numerator = (1 + model.p.relative) * (1 + row.rescale);
  if (in.problem.dropout) numerator *= 1 + compounded(u, 3);
  if (model.normalized_first) numerator *= 1 + model.division;
  const double parts = std::min(double(keys), model.splits == 0 ? double(keys) : double(model.splits));
  if (model.split) numerator *= (1 + model.division) * (1 + compounded(u, 1 + parts));
  return numerator - 1;
}

/// How far the sum of computed weights may be from Z; `highest` is the most that the computed maximum may be.
void sum_weights(const ScoreRow& scores, double highest, WeightRow& row) {
  const bool sink = row.sink_p > 0;
  double risen = sink ? grown(std::log(row.sink_p), row.sink_p, row.sink_kappa) : 0;
  double fallen = row.sink_p * (sink ? std::min(row.sink_kappa, 1.0) : 0);
  for (size_t k = 0; k < row.p.size(); ++k) {
    risen += grown(row.log_p[k], row.p[k], row.kappa[k]);
    fallen += row.p[k] * std::min(row.kappa[k], 1.0);  // 1 - e^-kappa <= min(kappa, 1)
  }
  row.unit = std::exp(highest - row.l);
  fallen += double(row.p.size()) * flush * double(1 + row.rescales) * row.unit;
  row.least_sum = (1 - std::min(fallen, 1.0)) * (1 - std::min(row.row_sum, 1.0));
  const double up = std::log1p(risen) + std::log1p(row.row_sum);
  row.mean_error = std::max(up, row.least_sum > 0 ? -std::log(row.least_sum) : infinity);
  row.largest_sum = row.p.empty() ? 1 : std::exp(row.l - scores.largest) * (1 + risen);
}

}  // namespace

WeightRow weight_row(const Inputs& in, const ErrorModel& model, ScoreRow& scores) {
  WeightRow row;
  row.overflow = scores.overflow;
  const size_t n = scores.keys.size();
  const bool has_sink = in.problem.sink;
  const double sink = has_sink ? double(in.sinks[scores.at.h]) : -infinity;
  const Maximum top{std::max(scores.largest, sink), std::max(scores.high, sink + 2 * u * std::abs(sink))};
  row.shape = model.shape(int64_t(n), scores.span, scores.at.seq_k, model.tile_n, model.splits);
  row.rescales = row.shape.tiles - 1 + (model.split ? 1 : 0);
  if (top.exact == -infinity) {  // no key, or none whose score is a number: nothing of such a row is known
    row.l = -infinity;
    scores.keys.clear();
    return row;
  }
  double z = has_sink ? std::exp(sink - top.exact) : 0;
  for (size_t k = 0; k < n; ++k) z += std::exp(scores.y[k] - top.exact);
  row.l = top.exact + std::log(z);
  const double low = n == 0 ? sink : scores.low;  // of the computed maximum, with or without the sink
  row.reference = std::max(std::abs(low), std::abs(top.high));
  // A weight is above 1 by no more than the rounding of its reference.
  const double largest_p =
      model.p_unit * std::exp(model.top * row.reference) * (model.dropout_on_weights ? dropout_scale(in.problem) : 1);
  row.overflow |= largest_p > 0.9 * model.p.largest;
  row.log_sum = std::max(std::abs(row.l - low), std::abs(row.l - top.high));
  weigh(in, model, top, scores, row);
  row.row_sum = compounded(u, double(model.row_sum_depth(row.shape) + row.rescales + (has_sink ? 1 : 0) +
                                     (model.each_tile ? row.shape.tiles : 0)));
  row.rescale = rescale_error(model, row, scores.at.seq_k);
  row.p_error = numerator_error(in, model, row, n);
  sum_weights(scores, top.high, row);
  return row;
}

LogSumBound log_sum_bound(const ErrorModel& model, const WeightRow& row) {
  LogSumBound bound;
  if (row.l == -infinity) return bound;
  if (row.overflow) {
    bound.weights = infinity;
    return bound;
  }
  bound.weights = row.mean_error;
  bound.reference = model.reference * (row.reference + std::abs(std::log(model.p_unit)));
  bound.logarithm = model.log_error(row.log_sum) + model.log_relative * row.mean_error;
  if (model.split) bound.logarithm += model.log_error(row.log_sum) + u * (std::abs(row.l) + row.reference);
  bound.output = u * (std::abs(row.l) + bound.weights + bound.reference + bound.logarithm) + 2 * flush;
  return bound;
}

namespace {

/// BOUNDS 6: relative error of all that follows the sum over the keys.
double last_roundings(const Inputs& in, const ErrorModel& model, const WeightRow& row) {
  double last = u;  // the last product, or none
  if (model.divided_last) last = model.division;
  if (in.problem.descale) last = (1 + last) * (1 + u) - 1;
  if (in.problem.dropout) last = (1 + last) * (1 + compounded(u, 3)) - 1;
  if (model.split)
    last = (1 + last) * (1 + model.division + u * (std::abs(row.l) + row.reference) + model.log_error(row.log_sum)) - 1;
  return (1 + model.output.relative) * (1 + last) - 1;
}

}  // namespace

OutputRow output_row(const Inputs& in, const ErrorModel& model, const KeyPanel& panel, const ScoreRow& scores,
                     const WeightRow& row) {
  const int64_t dv = panel.value_dim;
  const size_t n = scores.keys.size();
  OutputRow result{std::vector<double>(dv, 0), std::vector<OutputBound>(dv)};
  const bool factor_overflows = value_factor_overflows(in, scores.at);
  if (n == 0) {
    result.overflow = factor_overflows;  // times an empty sum
    if (result.overflow) std::fill(result.bound.begin(), result.bound.end(), OutputBound{.output = infinity});
    return result;
  }
  for (size_t k = 0; k < n; ++k) {
    const float* v = panel.v_rows.data() + scores.keys[k] * dv;
    const double weight = row.p[k] * scores.z[k];
    for (int64_t c = 0; c < dv; ++c) result.o[c] += weight * v[c];
  }
  // BOUNDS 6. Sums over the keys of: p (e^kappa - 1) |z v - O| and what numerator and denominator do not share, p
  // e^kappa z |v|, the same of the sizes, z |v|, z of the sizes.
  std::vector<double> deviation(dv, 0), magnitude(dv, 0), sized(dv, 0), plain(dv, 0), plain_sized(dv, 0);
  const double sink_gain = row.sink_p > 0 ? grown(std::log(row.sink_p), row.sink_p, row.sink_kappa) : 0;
  double risen = 1 + sink_gain;
  for (size_t k = 0; k < n; ++k) {
    const double z = scores.z[k], gain = grown(row.log_p[k], row.p[k], row.kappa[k]), raised = row.p[k] + gain;
    const double apart = raised * growth(row.apart[k]), numerator = raised + apart;
    risen += gain;
    const float* v = panel.v_rows.data() + scores.keys[k] * dv;
    const float* size = panel.v_sizes.data() + scores.keys[k] * dv;
    for (int64_t c = 0; c < dv; ++c) {
      const double value = z * v[c];
      deviation[c] += gain * std::abs(value - result.o[c]) + apart * std::abs(value);
      magnitude[c] += numerator * std::abs(value);
      sized[c] += numerator * z * size[c];
      plain[c] += std::abs(value);
      plain_sized[c] += z * size[c];
    }
  }
  const int64_t pair = scores.at.b * scores.at.kv_heads + scores.at.kv_head;
  const double t_v = std::abs(double(in.v_descale[pair]));
  const double steps = double(3 + row.rescales + (model.each_tile ? 3 * row.shape.tiles : 0));
  const double gamma = model.value_gamma(row.shape), a = row.p_error, b = row.row_sum;
  const double unit = std::max(row.unit, model.normalized_first ? 1.0 : 0),
               unit_of_sums = std::max(unit, model.each_tile ? 1.0 : 0);
  const double products = 2 * double(n) * dropout_scale(in.problem);
  const double final_rounding = last_roundings(in, model, row);
  for (int64_t c = 0; c < dv; ++c) {
    const double o = std::abs(result.o[c]), scale = t_v / row.least_sum;
    OutputBound& bound = result.bound[c];
    bound.weights = scale * (deviation[c] + sink_gain * o);
    bound.p_rounding = scale * (a * magnitude[c] + model.p.absolute / model.p_unit * unit * plain[c]);
    bound.row_sum = scale * b * risen * o;
    bound.accumulation = scale * gamma * ((1 + a) * sized[c] + model.p_floor * unit * plain_sized[c]);
    bound.underflow = scale * flush * unit_of_sums * (steps * (plain[c] + double(n) * o) + products + steps);
    const double before = bound.before_output(), exact = t_v * o;
    bound.output = final_rounding * (exact + before) + model.output.absolute + flush;
    result.o[c] *= in.v_descale[pair];
    // The accumulator holds weights against the maximum so far: at most 1 each, or Z in all where there is one tile.
    const double unnormalised = (row.rescales == 0 ? row.largest_sum * magnitude[c] : plain[c]) * model.p_unit;
    const double accumulator = std::max(magnitude[c], model.divided_last || model.each_tile ? unnormalised : 0);
    const double factor = std::max(1.0, t_v);
    if (!row.overflow && !factor_overflows && accumulator * factor < fp32_range &&
        exact + bound.total() <= model.output.largest)
      continue;
    bound.output = infinity;
    // Weights are at most 1 each: beyond sum |z v| it is their errors that are large.
    result.overflow |= row.overflow || factor_overflows || !(plain[c] * model.p_unit * factor < fp32_range) ||
                       !(plain[c] * t_v <= model.output.largest);
  }
  return result;
}

}  // namespace flashproof
