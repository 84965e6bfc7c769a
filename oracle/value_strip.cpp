// The stages of value_strip.h: dot products, scores, weights, gradients of scores, each with its radius derived beside it.
#include "oracle/value_strip.h"

#include <cmath>
#include <cstdlib>
#include <limits>

namespace flashproof {
namespace {

constexpr double u = unit_roundoff;
/// A radius that says "nothing is known"; finite, so that it does not turn into NaN on the way.
constexpr double unknown = 0x1p800;
/// Weights below exp(-690) are taken as 0 with this radius: exp(-687) < 2^-990.
constexpr double least_exponent = -690, flushed = 0x1p-990;

/// Exponent of the last bit that is set in the significand of x, which is not 0.
int last_bit_exponent(float x) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, x), field = bits >> 23 & 0xff, fraction = bits & 0x7fffff;
  const uint32_t significand = field == 0 ? fraction : fraction | 0x800000;
  return int(field == 0 ? 1 : field) - 150 + __builtin_ctz(significand);
}

}  // namespace

Side make_side(const Tensor& tensor, int64_t first, int64_t step, int64_t count, int64_t channels) {
  Side side{count,
            channels,
            std::vector<float>(count * channels),
            std::vector<float>(count * channels),
            std::vector<double>(count),
            std::vector<double>(count)};
  for (int64_t n = 0; n < count; ++n) {
    double squares = 0;
    int least = 127;
    for (int64_t c = 0; c < channels; ++c) {
      const float element = float(tensor.at((first + n * step) * channels + c));
      const float x = std::isfinite(element) ? element : 0;
      side.rows[n * channels + c] = side.columns[c * count + n] = x;
      squares += double(x) * double(x);
      if (x != 0) least = std::min(least, last_bit_exponent(x));
    }
    side.norm[n] = std::sqrt(squares) * inflation;
    side.unit[n] = power_of_two(least);
  }
  return side;
}

RowStates::RowStates(int64_t n) : reference(n), sum(n, 1.0), error(n), delta(n), delta_radius(n), delta_size(n) {}

void RowStates::set(int64_t n, const RowState& state) { fill(n, n + 1, state); }

void RowStates::fill(int64_t begin, int64_t end, const RowState& state) {
  const auto assign = [&](std::vector<double>& field, double value) {
    std::fill(field.begin() + begin, field.begin() + end, value);
  };
  assign(reference, state.reference);
  assign(sum, state.sum);
  assign(error, state.error);
  assign(delta, state.delta);
  assign(delta_radius, state.delta_radius);
  assign(delta_size, state.delta_size);
}

Strip::Strip(int64_t n)
    : end(n),
      score(n),
      score_radius(n),
      slope(n, 1.0),
      slope_error(n),
      shift(n),
      shift_size(n),
      kept(n, 1.0),
      weight(n),
      weight_radius(n),
      p(n),
      p_radius(n),
      g(n),
      g_radius(n),
      ds(n),
      ds_radius(n),
      ds_size(n) {}

double dropout_scale(const Problem& problem) {
  return problem.dropout ? 1.0 / (1.0 - double(problem.dropout->rate)) : 1.0;
}

bool has_pair_modifiers(const Problem& problem) {
  return problem.alibi != Alibi::none || problem.bias || problem.dropout;
}

void set_modifiers(const Inputs& in, int64_t b, int64_t h, int64_t i, int64_t j, Strip& strip, int64_t n) {
  const Problem& problem = in.problem;
  double shift = 0, size = 0;
  if (problem.alibi != Alibi::none) {
    const int64_t off = alignment_offset(problem.mask, in.packing.seq_q(b), in.packing.seq_k(b));
    shift = -double(in.slopes[b * problem.heads + h]) * double(std::abs(i + off - j));
    size = std::fabs(shift);
  }
  if (problem.bias) {
    const double bias = bias_at(in, b, h, i, j);
    shift += bias;
    size += std::fabs(bias);
  }
  strip.shift[n] = shift;
  strip.shift_size[n] = size;
  if (problem.dropout) strip.kept[n] = keeps(problem, b, h, i, j) ? dropout_scale(problem) : 0.0;
}

// |sum of products| is bounded through Cauchy and Schwarz by the norms. All products, and all partial sums in any
// order, are multiples of the product of the units and at most the product of the norms: below 2^53 units they are
// exact.
void dot_strip(const Side& many, const Side& one, int64_t one_row, double factor, Strip& strip,
               std::vector<double>& value, std::vector<double>& radius) {
  const float* row = one.rows.data() + one_row * one.channels;
  strip.x.assign(row, row + one.channels);
  std::fill(value.begin() + strip.begin, value.begin() + strip.end, 0.0);
  add_weighted_rows(many.channels, many.count, strip.begin, strip.end, strip.x.data(), many.columns.data(),
                    value.data());
  const double norm = one.norm[one_row], exact_units = one.unit[one_row] * 0x1p53;
  const double error = sum_error(many.channels), size_of_factor = std::fabs(factor);
  for (int64_t n = strip.begin; n < strip.end; ++n) {
    const double size = norm * many.norm[n];
    const double sum_radius = size < exact_units * many.unit[n] ? 0.0 : error * size;
    value[n] *= factor;
    radius[n] = (size_of_factor * sum_radius + 2 * u * std::fabs(value[n])) * inflation + underflow_slack;
  }
}

// y = s0 / cap is off by (r0 + u |s0|) / cap = d; tanh has slope at most 1, so s1 = cap tanh y by cap d plus its own
// rounding and tanh's error. |d ln(1 - tanh^2) / dy| <= 2, so 1 - tanh^2 changes by a factor within e^(2d), e^(2d) - 1
// <= 2d (1 + 2d). Past |y| = 300 the computed 1 - tanh^2 is above the true one, which is positive: relative error 1.
void finish_scores(const Problem& problem, Strip& strip) {
  if (problem.softcap != 0) {
    const double cap = problem.softcap;
    for (int64_t n = strip.begin; n < strip.end; ++n) {
      const double s0 = strip.score[n], radius = (strip.score_radius[n] + u * std::fabs(s0)) * inflation;
      const Tanh tanh = certified_tanh(s0 / cap);
      const double d2 = 2 * radius / cap;
      strip.score[n] = cap * tanh.value;
      strip.score_radius[n] = (radius + (tanh_error + u) * std::fabs(strip.score[n])) * inflation;
      strip.slope[n] = tanh.sech2;
      strip.slope_error[n] = d2 > 1                      ? unknown
                             : std::fabs(s0) > 299 * cap ? 1
                                                         : (d2 * (1 + d2) + sech2_error) * inflation;
    }
  }
  if (!has_pair_modifiers(problem)) return;
  for (int64_t n = strip.begin; n < strip.end; ++n) {
    const double s = strip.score[n] + strip.shift[n];
    const bool hidden = s == -std::numeric_limits<double>::infinity();
    strip.score[n] = s;
    strip.score_radius[n] =
        hidden ? 0 : (strip.score_radius[n] + u * (2 * strip.shift_size[n] + std::fabs(s))) * inflation;
  }
}

// x = s - reference is off by kappa = r + u |x|, and exp by exp_error: the weight is exp(x) e^k with |k| <= kappa, and
// e^kappa - 1 <= kappa (1 + kappa) for kappa <= 1. exp_error enters kappa doubled, which covers ln(1 / (1 -
// exp_error)).
void weigh(const RowStates& rows, Strip& strip) {
  for (int64_t n = strip.begin; n < strip.end; ++n) {
    const double x = strip.score[n] - rows.reference[n];
    const double clamped = x < least_exponent ? least_exponent : x > -least_exponent ? -least_exponent : x;
    const double kappa = (strip.score_radius[n] + u * std::fabs(x) + 2 * exp_error) * inflation;
    const double e = certified_exp(clamped);
    const bool hidden = strip.score[n] == -std::numeric_limits<double>::infinity(), small = x < least_exponent;
    const double normal_radius =
        kappa <= 1 && x <= -least_exponent ? e * kappa * (1 + kappa) + underflow_slack : unknown;
    const double small_radius = x + kappa < least_exponent + 3 ? flushed : unknown;
    strip.weight[n] = small ? 0 : e;
    strip.weight_radius[n] = hidden ? 0 : small ? small_radius : normal_radius;
  }
}

// The exact p lies within (r_w + w error) / (sum (1 - error)) of w / sum, and 1 / (1 - error) <= 1 + 2 error. kept is
// off by 2.01 u and its product with g by u. Where a key is hidden, weight and radius are 0, and so is all that
// follows.
void differentiate(const RowStates& rows, Strip& strip) {
  for (int64_t n = strip.begin; n < strip.end; ++n) {
    const double w = strip.weight[n], error = rows.error[n];
    const bool hidden = strip.weight_radius[n] == 0;
    const double p = w / rows.sum[n];
    const double p_radius =
        hidden ? 0
               : ((strip.weight_radius[n] + w * error) / rows.sum[n] * (1 + 2 * error) + u * p) * inflation +
                     underflow_slack;
    const double zg = strip.kept[n] * strip.g[n], difference = zg - rows.delta[n];
    const double difference_radius =
        strip.kept[n] * strip.g_radius[n] + rows.delta_radius[n] + u * (4 * std::fabs(zg) + std::fabs(difference));
    const double ds = p * difference;
    strip.p[n] = p;
    strip.p_radius[n] = p_radius;
    strip.ds[n] = ds;
    strip.ds_radius[n] =
        hidden ? 0
               : (p_radius * (std::fabs(difference) + difference_radius) + p * difference_radius + u * std::fabs(ds)) *
                         inflation +
                     underflow_slack;
    strip.ds_size[n] = p * (std::fabs(zg) + rows.delta_size[n]);
  }
}

void undo_softcap(Strip& strip) {
  for (int64_t n = strip.begin; n < strip.end; ++n) {
    const double slope = strip.slope[n], ds = strip.ds[n] * slope;
    strip.ds_radius[n] =
        (slope * (strip.ds_radius[n] * (1 + strip.slope_error[n]) + std::fabs(strip.ds[n]) * strip.slope_error[n]) +
         u * std::fabs(ds)) *
            inflation +
        (strip.weight_radius[n] == 0 ? 0 : underflow_slack);
    strip.ds[n] = ds;
    strip.ds_size[n] *= slope;
  }
}

}  // namespace flashproof
