// Error bounds of dQ, dK, dV, dsink and dbias: BOUNDS.md 7. The parts of a gradient's error are kept apart all the way,
// so that a bound and its list of terms are the same numbers.
#include "oracle/bound_gradients.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace flashproof {
namespace {

constexpr double u = fp32_unit;
constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double fp32_range = 0x1p127;

/// p e^kappa and p (e^kappa - 1) without inf * 0.
double raised(double log_p, double kappa) { return std::exp(log_p + kappa); }
double grown(double log_p, double p, double kappa) {
  return kappa <= 0.01 ? p * growth(kappa) : raised(log_p, kappa) - p;
}

double sigma_of(const Inputs& in, const HeadIndex& at) { return std::abs(score_scale<double>(in, at)); }

std::vector<double> gradient_of_output(const Inputs& in, const HeadIndex& at, int64_t i) {
  const int64_t n = in.problem.value_dim;
  std::vector<double> row(n);
  for (int64_t c = 0; c < n; ++c) row[c] = in.d_o.at(at.query_row(i) * n + c);
  return row;
}

/// Error of ln of a recomputed weight exp(y - L), score errors and that of L aside. The argument's parts: y and L times
/// log2 e, each a rounded constant and a product (and y's factor scale log2 e), the subtraction, and base e to base 2.
double recomputed(const ErrorModel& model, double y, double l) {
  const double distance = std::abs(y - l);
  return (3 * u + model.scale_product) * std::abs(y) + 2 * u * std::abs(l) + 4 * u * distance + model.exp +
         model.exp_slope * distance;
}

/// The end of a gradient: scale and descales in fp32, then the output's format.
double output_error(const Problem& problem, const ErrorModel& model, double value, double error) {
  const double products = compounded(u, problem.descale ? 3 : 1);
  return ((1 + model.output.relative) * (1 + products) - 1) * (std::abs(value) + error) + model.output.absolute + flush;
}

GradientError scaled(const GradientError& e, double factor) {
  GradientError result;
  for (int part = 0; part < gradient_parts; ++part) result[part] = e[part] * factor;
  return result;
}

/// Sums of errors times magnitudes over n channels (of several keys), by part; a part that is never added to stays
/// empty.
struct PartSums {
  int64_t size;
  std::vector<double> sums[gradient_parts];

  void add(const GradientError& error, const float* x, int64_t offset, int64_t n) {
    for (int part = 0; part < gradient_parts; ++part) {
      if (error[part] == 0) continue;
      if (sums[part].empty()) sums[part].assign(size, 0);
      for (int64_t c = 0; c < n; ++c) sums[part][offset + c] += error[part] * std::abs(x[c]);
    }
  }
  GradientError at(int64_t n, double factor) const {
    GradientError result = {};
    for (int part = 0; part < gradient_parts; ++part)
      if (!sums[part].empty()) result[part] = factor * sums[part][n];
    return result;
  }
};

GradientError folded(const GradientError& e, Detail detail) {
  return detail == Detail::parts ? e : GradientError{total(e)};
}

/// The output's part of a bound, or infinity where a format may overflow.
void finish(GradientBound& bound, const Problem& problem, const ErrorModel& model, double value, bool overflow) {
  const double before = bound.sum();
  bound.output = output_error(problem, model, value, before);
  if (overflow || !(std::abs(value) + bound.sum() <= model.output.largest)) bound.output = infinity;
}

/// One row of q or dO, with its sizes (bound_rows.h).
struct Vector {
  std::vector<float> values, sizes;
};
Vector vector_of(const Tensor& tensor, int64_t row, int64_t n, const ErrorModel& model) {
  Vector x{std::vector<float>(n), std::vector<float>(n)};
  for (int64_t c = 0; c < n; ++c) {
    x.values[c] = float(tensor.at(row * n + c));
    x.sizes[c] = float(size_of(x.values[c], model.operand_floor));
  }
  return x;
}

/// dK or dV of some keys while rows are added.
struct GradientSums {
  int64_t width;
  std::vector<double> value, magnitude;
  std::vector<double> sizes;      ///< by key: sum of the weights' sizes
  std::vector<double> subnormal;  ///< by key: what a subnormal q adds to each channel
  PartSums errors;

  GradientSums(int64_t keys, int64_t channels)
      : width(channels),
        value(keys * channels, 0),
        magnitude(keys * channels, 0),
        sizes(keys, 0),
        subnormal(keys, 0),
        errors{keys * channels, {}} {}

  void add(int64_t key, const GradientError& error, double weight, double size, const Vector& x) {
    errors.add(error, x.values.data(), key * width, width);
    sizes[key] += size;
    double* to_value = value.data() + key * width;
    double* to_magnitude = magnitude.data() + key * width;
    for (int64_t c = 0; c < width; ++c) {
      to_value[c] += weight * x.values[c];
      to_magnitude[c] += size * x.sizes[c];
    }
  }

  /// `rows` seen by each key, of all rows of the group.
  std::vector<GradientBound> bounds(double factor, const Inputs& in, const ErrorModel& model,
                                    const std::vector<int64_t>& rows, int64_t all_rows,
                                    const std::vector<bool>& overflow) const {
    std::vector<GradientBound> result(value.size());
    const int64_t group = in.problem.heads / in.problem.kv_heads;
    for (size_t j = 0; j < rows.size(); ++j) {
      if (rows[j] == 0 && !overflow[j]) continue;  // exactly 0
      SumShape shape = model.shape(rows[j], all_rows, all_rows, model.tile_m, 1);
      if (model.tile_m > 0) shape.tiles = std::min(all_rows, all_rows / model.tile_m + group);
      const double gamma = model.gradient_gamma(shape);
      for (int64_t n = int64_t(j) * width; n < (int64_t(j) + 1) * width; ++n) {
        result[n].terms = errors.at(n, factor);
        result[n].accumulation = factor * gamma * magnitude[n] +
                                 std::max(factor, 1.0) * flush * (3 * double(shape.terms + shape.tiles) + sizes[j]);
        result[n].terms[part_underflow] += subnormal[j];
        finish(result[n], in.problem, model, factor * value[n],
               overflow[j] || !(magnitude[n] * std::max(factor, 1.0) < fp32_range));
      }
    }
    return result;
  }
};

/// Half the least subnormal number of P's format, where the backward may read the P that the forward stored.
double stored_underflow(const ErrorModel& model) {
  return model.normalized_first ? model.p.absolute / model.p_unit : 0;
}

/// P recomputed from L, and z g = z t_v <dO_i, v_j>, over a row's visible keys, with errors.
struct Recomputed {
  std::vector<double> log_p, kappa, zg, zg_error;
  bool overflow = false;
};

Recomputed recompute(const Inputs& in, const ErrorModel& model, const KeyPanel& panel, const ScoreRow& scores,
                     const RowState& state) {
  const KeyRange range{scores.keys.empty() ? 0 : scores.keys.front(), scores.keys.empty() ? 0 : scores.keys.back() + 1};
  const std::vector<double> d_o = gradient_of_output(in, scores.at, scores.i);
  std::vector<double> d_o_sizes(d_o.size()), dots, sizes;
  double d_o_sum = 0;
  for (size_t c = 0; c < d_o.size(); ++c) {
    d_o_sizes[c] = size_of(d_o[c], model.operand_floor);
    d_o_sum += std::abs(d_o[c]);
  }
  dot_columns(d_o, d_o_sizes, panel.v_columns, panel.v_column_sizes, panel.keys, range, dots, sizes);
  const double t_v = value_scale<double>(in, scores.at), gamma = model.score_gamma(int64_t(d_o.size()));
  // z g: the factor t_v, dropout's 1 / (1 - rate) (BOUNDS 6), and the format that a materialising kernel stores dP in.
  const double factors = compounded(u, (in.problem.descale ? 1 : 0) + (in.problem.dropout ? 3 : 0)) +
                         (model.scores_stored ? model.stored.relative : 0);
  Recomputed r;
  for (size_t k = 0; k < scores.keys.size(); ++k) {
    const int64_t n = scores.keys[k] - range.begin;
    const double z = scores.z[k], zg = z * t_v * dots[n];
    const double products =
        z * std::abs(t_v) *
        (gamma * sizes[n] + flush * (d_o_sum + panel.v_sums[scores.keys[k]] + 2 * double(d_o.size())));
    r.log_p.push_back(scores.y[k] - state.l);
    double kappa = scores.error(k) + recomputed(model, scores.y[k], state.l) + state.l_error;
    // P as stored, divided by the row sum; a relative error e is a log-error of at most -ln(1 - e).
    if (model.normalized_first) kappa += model.division - std::log1p(-model.p.relative);
    r.kappa.push_back(kappa);
    r.zg.push_back(zg);
    r.zg_error.push_back((1 + factors) * products + factors * std::abs(zg) +
                         (model.scores_stored ? z * model.stored.absolute : 0));
    r.overflow |= !(sizes[n] * value_factor(in, scores.at) < fp32_range) ||
                  (model.scores_stored && std::abs(zg) > 0.99 * model.stored.largest);
  }
  return r;
}

}  // namespace

double total(const GradientError& error) { return std::accumulate(error.begin(), error.end(), 0.0); }

RowState row_state(const Inputs& in, const ErrorModel& model, const KeyPanel& panel, const ScoreRow& scores,
                   const WeightRow& weights, const OutputRow& output, const LogSumBound& l_bound) {
  RowState state;
  state.empty = scores.keys.empty();
  state.overflow = weights.overflow || value_factor_overflows(in, scores.at);
  state.l = weights.l;
  if (state.empty) return state;
  const bool exact = in.problem.direction == Direction::backward_exact;
  state.l_error = exact ? u * std::abs(state.l) : l_bound.total();
  // A kernel that normalises P by its own row sum may do so in the backward, whatever L it is given.
  if (exact && model.normalized_first) state.l_error = std::max(state.l_error, weights.mean_error);

  const std::vector<double> d_o = gradient_of_output(in, scores.at, scores.i);
  double size = 0;
  for (size_t c = 0; c < d_o.size(); ++c) {
    const double o = std::abs(output.o[c]);
    const double o_error = exact ? model.output.relative * o + model.output.absolute : output.bound[c].total();
    state.d += d_o[c] * output.o[c];
    state.d_error += std::abs(d_o[c]) * o_error;
    size += std::abs(d_o[c]) * (o + o_error);
    state.overflow |= !(o + o_error <= model.output.largest);
  }
  state.d_error += compounded(u, double(d_o.size()) + 1) * size + double(d_o.size()) * flush;
  if (model.sums_p_dp) {
    const Recomputed r = recompute(in, model, panel, scores, state);
    double error = 0, magnitude = 0;
    for (size_t k = 0; k < r.zg.size(); ++k) {
      const double p = std::exp(r.log_p[k]), e = raised(r.log_p[k], r.kappa[k]);
      const double size = std::abs(r.zg[k]) + r.zg_error[k];
      error +=
          grown(r.log_p[k], p, r.kappa[k]) * std::abs(r.zg[k]) + e * r.zg_error[k] + stored_underflow(model) * size;
      magnitude += (e + stored_underflow(model)) * size;
    }
    const double terms = double(r.zg.size());
    state.overflow |= r.overflow;
    state.d_error = std::max(state.d_error, error + compounded(u, terms + 1) * magnitude + 2 * terms * flush);
    size = std::max(size, magnitude);
  }
  state.overflow |= !(size < fp32_range);
  if (in.problem.sink) {
    const double sink = in.sinks[scores.at.h], log_p = sink - state.l;
    const double kappa = 2 * u * std::abs(sink) + recomputed(model, sink, state.l) + state.l_error + 2 * u;
    state.sink_p = std::exp(log_p);
    state.sink_error =
        grown(log_p, state.sink_p, kappa) * std::abs(state.d) + raised(log_p, kappa) * state.d_error + flush;
  }
  return state;
}

PairRow pair_row(const Inputs& in, const ErrorModel& model, const KeyPanel& panel, const ScoreRow& scores,
                 const RowState& state) {
  const Recomputed r = recompute(in, model, panel, scores, state);
  const bool softcap = in.problem.softcap != 0;
  const double dropout = in.problem.dropout ? compounded(u, 3) : 0, sigma = sigma_of(in, scores.at);
  PairRow row;
  row.overflow = r.overflow || state.overflow || scores.overflow;
  for (size_t k = 0; k < scores.keys.size(); ++k) {
    const double p = std::exp(r.log_p[k]), e = raised(r.log_p[k], r.kappa[k]), gain = grown(r.log_p[k], p, r.kappa[k]);
    const double z = scores.z[k];
    row.p.push_back(z * p);
    row.p_error.push_back(z * (gain + dropout * e) + z * (flush + stored_underflow(model)));
    row.p_rounding.push_back(
        z == 0 ? 0 : model.ds.relative * (z * p + row.p_error[k]) + model.ds.absolute * std::max(z, 1.0));

    // dS = p (z g - D): a subtraction and a product.
    const double difference = std::abs(r.zg[k] - state.d), twice = 1 + compounded(u, 2);
    GradientError error = {};
    error[part_weights] = gain * difference + (twice - 1) * e * difference;
    error[part_value_products] = twice * e * r.zg_error[k];
    error[part_d] = twice * e * state.d_error;
    error[part_underflow] =
        (flush + stored_underflow(model)) * (difference + r.zg_error[k] + state.d_error) + 2 * flush;
    const double ds = p * (r.zg[k] - state.d);
    row.ds.push_back(ds);
    row.ds_error.push_back(total(error));
    double ds0 = ds;
    if (softcap) {
      // f = 1 - (s1/cap)^2, and s1 is off by its own errors; those before tanh pass with slope 1 at most.
      const double tangent = std::abs(scores.tangent[k]), f = 1 - tangent * tangent;
      const double off = (scores.error(k)) / in.problem.softcap + u * tangent;
      const double f_error = 2 * tangent * off + off * off + 3 * u;
      const double plain = std::abs(ds) + total(error);
      error = scaled(error, (1 + u) * f);
      error[part_tangent] = (1 + u) * plain * f_error + u * plain * f;
      ds0 = ds * f;
    }
    // Rounded before or after the factor scale: an absolute error is of the one or of the other.
    error[part_rounding] = model.ds.relative * (std::abs(ds0) + total(error)) +
                           model.ds.absolute * (sigma > 0 ? std::max(1.0, 1 / sigma) : 1.0);
    row.ds0.push_back(ds0);
    row.error.push_back(error);
    const double largest = (std::abs(ds0) + total(error)) * std::max(1.0, sigma);
    row.overflow |= !(largest < 0.99 * model.ds.largest) || !(row.p[k] < 0.99 * model.ds.largest);
  }
  return row;
}

std::vector<GradientBound> query_gradient(const Inputs& in, const ErrorModel& model, const KeyPanel& panel,
                                          const ScoreRow& scores, const PairRow& pairs, Detail detail) {
  const int64_t d = panel.head_dim;
  const double sigma = sigma_of(in, scores.at);
  std::vector<GradientBound> bounds(d);
  std::vector<double> value(d, 0), magnitude(d, 0);
  double all_sizes = 0;
  PartSums sums{d, {}};
  for (size_t k = 0; k < pairs.ds0.size(); ++k) {
    const double size = std::abs(pairs.ds0[k]) + total(pairs.error[k]) + model.ds_floor;
    all_sizes += size;
    const float* key = panel.k_rows.data() + scores.keys[k] * d;
    const float* key_sizes = panel.k_sizes.data() + scores.keys[k] * d;
    sums.add(folded(pairs.error[k], detail), key, 0, d);
    for (int64_t c = 0; c < d; ++c) {
      value[c] += pairs.ds0[k] * key[c];
      magnitude[c] += size * key_sizes[c];
    }
  }
  const SumShape shape = model.shape(int64_t(scores.keys.size()), scores.span, scores.at.seq_k, model.tile_n, 1);
  const double gamma = model.gradient_gamma(shape),
               floor = flush * std::max(sigma, 1.0) * (3 * double(shape.terms + shape.tiles) + all_sizes);
  for (int64_t c = 0; c < d; ++c) {
    const bool overflow = pairs.overflow || !(magnitude[c] * std::max(sigma, 1.0) < fp32_range);
    bounds[c].terms = sums.at(c, sigma);
    bounds[c].accumulation = sigma * gamma * magnitude[c] + floor;
    finish(bounds[c], in.problem, model, sigma * value[c], overflow);
  }
  return bounds;
}

KeyGradients key_gradients(const Inputs& in, const ErrorModel& model, const KeyPanel& panel, int64_t b, int64_t kv_head,
                           KeyRange keys, const std::vector<RowState>& states, Detail detail) {
  const Problem& p = in.problem;
  const int64_t d = panel.head_dim, dv = panel.value_dim, n = keys.end - keys.begin, group = p.heads / p.kv_heads;
  const int64_t seq_q = in.packing.seq_q(b);
  GradientSums dk(n, d), dv_sums(n, dv);
  std::vector<int64_t> rows(n, 0);
  std::vector<bool> overflow(n, value_factor_overflows(in, head_index(in, b, kv_head * group)));
  for (int64_t h = 0; h < group; ++h) {
    const HeadIndex at = head_index(in, b, kv_head * group + h);
    const double scale = std::abs(double(scale_of(p))), descale = scale > 0 ? sigma_of(in, at) / scale : 0;
    for (int64_t i = 0; i < seq_q; ++i) {
      const RowState& state = states[h * seq_q + i];
      // An infinite D or q reaches keys that the row does not see: 0 times infinity.
      if (!state.empty && state.overflow) overflow.assign(n, true);
      KeyRange range = visible_keys(p.mask, seq_q, panel.keys, i);
      range = {std::max(range.begin, keys.begin), std::min(range.end, keys.end)};
      if (state.empty || range.begin >= range.end) continue;
      const ScoreRow scores = score_row(in, model, panel, at, i, range);
      const PairRow pairs = pair_row(in, model, panel, scores, state);
      const Vector q = vector_of(in.q, at.query_row(i), d, model), d_o = vector_of(in.d_o, at.query_row(i), dv, model);
      for (size_t k = 0; k < scores.keys.size(); ++k) {
        const int64_t j = scores.keys[k] - keys.begin;
        ++rows[j];
        if (pairs.overflow) overflow[j] = true;
        // dK reads q times scale where that is rounded beforehand.
        GradientError error = pairs.error[k];
        const double ds0 = std::abs(pairs.ds0[k]) + total(error);
        error[part_rounding] += model.prescale.relative * ds0;
        if (model.prescaled) dk.subnormal[j] += descale * model.prescale.absolute * ds0;
        dk.add(j, folded(error, detail), pairs.ds0[k], ds0 + model.ds_floor, q);
        if (scores.z[k] == 0) continue;
        GradientError weight = {};
        weight[part_weights] = pairs.p_error[k];
        weight[part_rounding] = pairs.p_rounding[k];
        dv_sums.add(j, folded(weight, detail), pairs.p[k], pairs.p[k] + total(weight) + model.ds_floor, d_o);
      }
    }
  }
  const HeadIndex at = head_index(in, b, kv_head * group);
  KeyGradients result{dk.bounds(sigma_of(in, at), in, model, rows, seq_q * group, overflow),
                      dv_sums.bounds(std::abs(value_scale<double>(in, at)), in, model, rows, seq_q * group, overflow)};
  return result;
}

}  // namespace flashproof
