// The stages of value_strip.h: dot products, scores, weights, gradients of scores, each with its radius derived beside
// it.
#include "oracle/value_strip.h"

#include <cmath>
#include <cstdlib>
#include <limits>

#include "reference/wide_vectors.h"

namespace flashproof {
namespace {

constexpr double u = unit_roundoff;
/// A radius that says "nothing is known"; finite, so that it does not turn into NaN on the way.
constexpr double unknown = 0x1p800;
/// Weights below exp(-690) are taken as 0 with this radius: exp(-687) < 2^-990.
constexpr double least_exponent = -690, flushed = 0x1p-990;

constexpr double infinity = std::numeric_limits<double>::infinity();

constexpr int64_t whole_chunks(int64_t n) { return (n + sum_chunk - 1) / sum_chunk * sum_chunk; }

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
            std::vector<float>(whole_chunks(count) * channels),
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

void RowStates::set(int64_t n, const RowState& state) {
  reference[n] = state.reference;
  sum[n] = state.sum;
  error[n] = state.error;
  delta[n] = state.delta;
  delta_radius[n] = state.delta_radius;
  delta_size[n] = state.delta_size;
}

Strip::Strip(int64_t n) : end(n) {
  for (std::vector<double>* numbers : {&score, &score_radius, &slope_error, &shift, &shift_size, &weight,
                                       &weight_radius, &p, &p_radius, &g, &g_radius, &ds, &ds_radius, &ds_size})
    numbers->resize(whole_chunks(n));
  for (std::vector<double>* ones : {&slope, &kept}) ones->assign(whole_chunks(n), 1.0);
}

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

namespace {

// |sum of products| is bounded through Cauchy and Schwarz by the norms. All products, and all partial sums in any
// order, are multiples of the product of the units and at most the product of the norms: below 2^53 units they are
// exact.
FLASHPROOF_WIDE_VECTORS
void finish_products(const Side& many, const DotLane& lane, double factor, double* __restrict value,
                     double* __restrict radius) {
  const double norm = lane.one.norm[lane.row], exact_units = lane.one.unit[lane.row] * 0x1p53;
  const double error = sum_error(many.channels), size_of_factor = std::fabs(factor);
  const double *norms = many.norm.data(), *units = many.unit.data();
  for (int64_t n = lane.strip.begin, end = lane.strip.end; n < end; ++n) {
    const double size = norm * norms[n];
    const double sum_radius = size < exact_units * units[n] ? 0.0 : error * size;
    value[n] *= factor;
    radius[n] = (size_of_factor * sum_radius + 2 * u * std::fabs(value[n])) * inflation + underflow_slack;
  }
}

}  // namespace

void dot_strips(const Side& many, std::span<const DotLane> lanes, double factor, std::vector<double> Strip::*value,
                std::vector<double> Strip::*radius) {
  int64_t begin = many.count, end = 0;
  std::vector<const double*> x;
  std::vector<double*> out;
  for (const DotLane& lane : lanes) {
    begin = std::min(begin, lane.strip.begin);
    end = std::max(end, lane.strip.end);
    const float* row = lane.one.rows.data() + lane.row * lane.one.channels;
    lane.strip.x.assign(row, row + lane.one.channels);
    x.push_back(lane.strip.x.data());
    out.push_back((lane.strip.*value).data());
  }
  if (begin >= end) return;
  for (double* products : out) std::fill(products + begin, products + end, 0.0);
  add_weighted_rows(many.channels, many.count, begin, end, x, many.columns.data(), out);
  for (const DotLane& lane : lanes)
    finish_products(many, lane, factor, (lane.strip.*value).data(), (lane.strip.*radius).data());
}

// y = s0 / cap is off by (r0 + u |s0|) / cap = d; tanh has slope at most 1, so s1 = cap tanh y by cap d plus its own
// rounding and tanh's error. |d ln(1 - tanh^2) / dy| <= 2, so 1 - tanh^2 changes by a factor within e^(2d), e^(2d) - 1
// <= 2d (1 + 2d). Past |y| = 300 the computed 1 - tanh^2 is above the true one, which is positive: relative error 1.
FLASHPROOF_WIDE_VECTORS
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
    const bool hidden = s == -infinity;
    strip.score[n] = s;
    strip.score_radius[n] =
        hidden ? 0 : (strip.score_radius[n] + u * (2 * strip.shift_size[n] + std::fabs(s))) * inflation;
  }
}

namespace {

// x = s - reference is off by kappa = r + u |x|, and exp by exp_error: the weight is exp(x) e^k with |k| <= kappa, and
// e^kappa - 1 <= kappa (1 + kappa) for kappa <= 1. exp_error enters kappa doubled, which covers ln(1 / (1 -
// exp_error)).
template <class StateAt>
[[gnu::always_inline]] inline void weigh_each(const StateAt& state_at, Strip& strip) {
  const double* __restrict score = strip.score.data(), * __restrict score_radius = strip.score_radius.data();
  double* __restrict weight = strip.weight.data(), * __restrict weight_radius = strip.weight_radius.data();
  for (int64_t n = strip.begin, end = strip.end; n < end; ++n) {
    const double x = score[n] - state_at(n).reference;
    const double clamped = x < least_exponent ? least_exponent : x > -least_exponent ? -least_exponent : x;
    const double kappa = (score_radius[n] + u * std::fabs(x) + 2 * exp_error) * inflation;
    const double e = certified_exp(clamped);
    const bool hidden = score[n] == -infinity, small = x < least_exponent;
    const double normal_radius =
        kappa <= 1 && x <= -least_exponent ? e * kappa * (1 + kappa) + underflow_slack : unknown;
    const double small_radius = x + kappa < least_exponent + 3 ? flushed : unknown;
    weight[n] = small ? 0 : e;
    weight_radius[n] = hidden ? 0 : small ? small_radius : normal_radius;
  }
}

// The exact p lies within (r_w + w error) / (sum (1 - error)) of w / sum, and 1 / (1 - error) <= 1 + 2 error. kept is
// off by 2.01 u and its product with g by u. Where a key is hidden, weight and radius are 0, and so is all that
// follows.
template <class StateAt>
[[gnu::always_inline]] inline void differentiate_each(const StateAt& state_at, Strip& strip) {
  const double* __restrict weight = strip.weight.data(), * __restrict weight_radius = strip.weight_radius.data();
  const double* __restrict kept = strip.kept.data(), * __restrict g = strip.g.data();
  const double* __restrict g_radius = strip.g_radius.data();
  double* __restrict p_out = strip.p.data(), * __restrict p_radius_out = strip.p_radius.data();
  double* __restrict ds_out = strip.ds.data(), * __restrict ds_radius_out = strip.ds_radius.data();
  double* __restrict ds_size_out = strip.ds_size.data();
  for (int64_t n = strip.begin, end = strip.end; n < end; ++n) {
    const RowState state = state_at(n);
    const double w = weight[n];
    const bool hidden = weight_radius[n] == 0;
    const double p = w / state.sum;
    const double p_radius =
        hidden ? 0
               : ((weight_radius[n] + w * state.error) / state.sum * (1 + 2 * state.error) + u * p) * inflation +
                     underflow_slack;
    const double zg = kept[n] * g[n], difference = zg - state.delta;
    const double difference_radius =
        kept[n] * g_radius[n] + state.delta_radius + u * (4 * std::fabs(zg) + std::fabs(difference));
    const double ds = p * difference;
    p_out[n] = p;
    p_radius_out[n] = p_radius;
    ds_out[n] = ds;
    ds_radius_out[n] =
        hidden ? 0
               : (p_radius * (std::fabs(difference) + difference_radius) + p * difference_radius + u * std::fabs(ds)) *
                         inflation +
                     underflow_slack;
    ds_size_out[n] = p * (std::fabs(zg) + state.delta_size);
  }
}

}  // namespace

FLASHPROOF_WIDE_VECTORS
void weigh(const RowStates& rows, Strip& strip) {
  weigh_each(
      [&](int64_t n) __attribute__((always_inline)) { return rows.at(n); }, strip);
}

FLASHPROOF_WIDE_VECTORS
void weigh(const RowState& row, Strip& strip) {
  weigh_each(
      [&](int64_t) __attribute__((always_inline)) { return row; }, strip);
}

FLASHPROOF_WIDE_VECTORS
void differentiate(const RowStates& rows, Strip& strip) {
  differentiate_each(
      [&](int64_t n) __attribute__((always_inline)) { return rows.at(n); }, strip);
}

FLASHPROOF_WIDE_VECTORS
void differentiate(const RowState& row, Strip& strip) {
  differentiate_each(
      [&](int64_t) __attribute__((always_inline)) { return row; }, strip);
}

FLASHPROOF_WIDE_VECTORS
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
