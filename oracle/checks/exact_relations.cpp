// Relations by powers of two, which hold bit for bit: `linearity` and `scale`.
//
// Multiplying an operand of +, x or fma by 2^k multiplies a rounded or truncated result by 2^k, unless one of the two
// lies below the format's least normal number or above its largest. What does not read the operand keeps its bits with
// no condition: L and the weights of a scaled V, dV as well. For the rest, no intermediate result may underflow:
//
// Lemma. Let every nonzero weight be at least 2^-w with t bits, every nonzero element of V at least 2^-e with t' bits.
// Every product and every sum of products, rounded to fp32 in whatever order, is a multiple of 2^-g for
// g = w + e + t + t' - 2. A rescaled sum x meets the next tile's sum y, a multiple of 2^-g: unless they cancel,
// |x + y| >= |y| / 2; if they do, x is within a factor 2 of y, and x + y is a multiple of 2^-24 |y|. The rescales of
// one weight telescope into its own distance from the row's maximum, which w covers. So whatever is not 0 is at least
// 2^-(g + 25).
//
// w: a weight is at least exp(-spread) / n, where spread = 2 |scale| max|q| max|k| (Cauchy and Schwarz, Euclidean
// norms) or 2 softcap, + 2 max|bias| + slope (Sq + Sk) + |sink|. Parts of split keys are combined by weights of 24
// bits, once more.
#include <algorithm>
#include <cmath>
#include <limits>

#include "oracle/checks/related_case.h"
#include "oracle/checks/relation.h"
#include "reference/arithmetic.h"

namespace flashproof {
namespace {

constexpr int value_power = 2, gradient_power = 3, query_power = 2;
/// fp32's least normal number is 2^-126; 6 bits for the roundings on the way.
constexpr double deepest = 120;
/// A factor of 24 bits on the way, such as 1 / (1 - rate), or the sum of a rescaled accumulator and a tile.
constexpr double one_more_rounding = 25;
constexpr double largest_sum = 0x1p100;

/// Magnitudes of a tensor's nonzero elements.
struct Magnitudes {
  double least = 1, largest = 0;
  bool finite = true;
  double grain = 0;  ///< all elements are multiples of 2^-grain
};
Magnitudes magnitudes_of(const Tensor& tensor) {
  Magnitudes m;
  double least = std::numeric_limits<double>::infinity();
  for (int64_t n = 0; n < tensor.size(); ++n) {
    const double x = std::abs(tensor.at(n));
    if (!std::isfinite(x)) m.finite = false;
    m.largest = std::max(m.largest, x);
    if (x > 0) least = std::min(least, x);
  }
  if (m.largest > 0) m.least = least;
  m.grain = format_of(tensor.dtype).precision - 1 - std::ilogb(m.least);
  return m;
}

double largest_norm(const Tensor& tensor) {
  const int64_t width = tensor.shape.back();
  double largest = 0;
  for (int64_t row = 0; row * width < tensor.size(); ++row) {
    double square = 0;
    for (int64_t c = 0; c < width; ++c) square += tensor.at(row * width + c) * tensor.at(row * width + c);
    largest = std::max(largest, square);
  }
  return std::sqrt(largest);
}

double largest_of(const std::vector<float>& numbers) {
  double largest = 0;
  for (float x : numbers) largest = std::max(largest, double(std::abs(x)));
  return largest;
}

/// w of the lemma, n included.
double weight_depth(const Inputs& in) {
  const Problem& p = in.problem;
  double score = std::abs(double(scale_of(p))) * largest_of(in.q_descale) * largest_of(in.k_descale) *
                 largest_norm(in.q) * largest_norm(in.k);
  if (p.softcap > 0) score = std::min(score, double(p.softcap));
  double bias = 0;
  for (int64_t n = 0; n < in.bias.size(); ++n)
    if (std::isfinite(in.bias.at(n))) bias = std::max(bias, std::abs(in.bias.at(n)));
  const double rows = double(max_used_length(p.q, p.batch)), keys = double(max_used_length(p.k, p.batch));
  const double spread = 2 * score + 2 * bias + largest_of(in.slopes) * (rows + keys) + largest_of(in.sinks);
  return 1.4426950408889634 * 1.01 * spread + 2 + std::log2(std::max(keys, 1.0));
}

bool is_scaled(const Tensor& tensor, const Tensor& scaled, int power) {
  for (int64_t n = 0; n < tensor.size(); ++n)
    if (scaled.at(n) != std::ldexp(tensor.at(n), power)) return false;
  return true;
}

/// The bits of `b` are those of `a` times 2^power, wherever both are normal numbers of the format. Two NaN are no
/// evidence: an overflow makes them, too.
void compare(Verdict& v, const Problem& p, OutputId id, const Tensor& a, const Tensor& b, int power,
             const std::vector<uint8_t>& undefined, const char* kind, const std::string& change) {
  const double least = power == 0 ? 0 : std::ldexp(1.0, format_of(a.dtype).emin + 1),
               largest = std::ldexp(format_of(a.dtype).largest, -power - 1);
  const bool of_rows = id == OutputId::o || id == OutputId::lse;
  const int64_t width = id == OutputId::o ? p.value_dim : 1;
  for (int64_t n = 0; n < a.size(); ++n) {
    const double x = a.at(n), y = b.at(n), size = std::max(std::abs(x), std::ldexp(std::abs(y), -power));
    if (of_rows && !undefined.empty() && undefined[n / width]) continue;
    if ((std::isnan(x) && std::isnan(y)) || (power != 0 && (size < least || size > largest))) continue;
    ++v.judged;
    if (y == std::ldexp(x, power) || v.status == Status::fail) continue;
    const Where at = locate(p, id, n);
    fail_at(v, at, kind,
            print(at) + " is " + number_text(x) + "; with " + change + " it is " + number_text(y) + ", must be " +
                (power == 0 ? "the same" : "2^" + std::to_string(power) + " times that") + " bit for bit");
  }
}

/// What the conditions of `linearity` are made of.
struct Depths {
  Magnitudes v, d_o;
  double weight = 0, factors = 0;
  double p_bits = 0, ds_bits = 0;
};

/// O = sum p v: the lemma.
bool output_scales(const Problem& p, const Arithmetic& arithmetic, const Depths& d) {
  const double keys = double(max_used_length(p.k, p.batch));
  double depth = d.weight + d.p_bits - 1 + d.v.grain + one_more_rounding + d.factors;
  if (arithmetic.splits != 1) depth += 2 * one_more_rounding + std::log2(std::max(keys, 1.0));
  return d.v.finite && depth <= deepest && d.v.largest * keys < largest_sum;
}

double group_rows(const Problem& p) {
  const int64_t group = p.heads / p.kv_heads;
  return double(max_used_length(p.q, p.batch) * group);
}

/// dV = sum p dO: the lemma, with dO for V.
bool value_gradient_scales(const Problem& p, const Depths& d) {
  const double depth = d.weight + d.ds_bits - 1 + d.d_o.grain + one_more_rounding + d.factors;
  return d.d_o.finite && depth <= deepest && d.d_o.largest * group_rows(p) < largest_sum;
}

/// dQ = sum dS k and dK = sum dS q, dS = p (dP - D): dP is a sum of products dO v, D one of products dO O, so dP - D is
/// a multiple of their grain, dS at least p times that. `o` is O as the backward reads it: none of it may be below the
/// normal numbers. Where D is a sum of P dP, P or dS in fp16, or more factors come in, nothing is claimed.
bool score_gradients_scale(const Inputs& in, const Arithmetic& a, const Depths& d, const Tensor& o) {
  const Problem& p = in.problem;
  const Magnitudes q = magnitudes_of(in.q), k = magnitudes_of(in.k), read = magnitudes_of(o);
  if (p.direction != Direction::backward || a.ds_format < 0 || DType(a.ds_format) == DType::fp16 ||
      a.d_from_stored_o == Tristate::unknown || p.softcap > 0 || d.factors > 0 || o.dtype == DType::fp16)
    return false;
  const double difference =
      d.d_o.grain + std::max(d.v.grain, (a.d_from_stored_o == Tristate::no ? 24 : 0) + read.grain);
  const double depth = d.weight + difference + d.ds_bits - 1 + std::max(q.grain, k.grain) + one_more_rounding +
                       std::abs(std::log2(std::abs(double(scale_of(p)))));
  const double sums = d.d_o.largest * std::max(d.v.largest, read.largest) * double(p.value_dim) *
                      std::max(q.largest, k.largest) * (group_rows(p) + double(max_used_length(p.k, p.batch)));
  return q.finite && k.finite && read.finite && d.v.finite && d.d_o.finite && depth <= deepest && sums < largest_sum;
}

bool deterministic(const Subject& subject) { return subject.conventions.deterministic != FLASHPROOF_DETERMINISTIC_NO; }

bool linearity_applies(const Case&, const Subject& subject) { return deterministic(subject); }

std::vector<Run> plan_linearity(const Case& c) {
  return {
      Run{.c = c, .placement = {}},
      Run{.c = c, .placement = {}, .scaling = {.v = value_power, .d_o = has_backward(c.problem) ? gradient_power : 0}}};
}

void judge_linearity(Verdict& v, const Case& c, const Subject& subject, std::span<const Run> runs,
                     std::span<const RunResult> results) {
  const Problem& p = c.problem;
  const Inputs in = make_inputs(runs[0]), scaled = make_inputs(runs[1]);
  const Arithmetic a = parse_arithmetic(subject.arithmetic);
  const std::vector<uint8_t> undefined = undefined_rows(c, subject);
  const auto bits_of = [](int format) { return format < 0 ? 24 : format_of(DType(format)).precision; };
  const bool more_factors = p.descale || (p.dropout && p.dropout->rate != 0.5f);
  const Depths d{.v = magnitudes_of(in.v),
                 .d_o = magnitudes_of(in.d_o),
                 .weight = weight_depth(in),
                 .factors = more_factors ? one_more_rounding : 0,
                 .p_bits = double(bits_of(a.p_format)),
                 .ds_bits = double(bits_of(a.ds_format))};
  const bool v_scaled = is_scaled(in.v, scaled.v, value_power);
  const bool d_o_scaled = has_backward(p) && is_scaled(in.d_o, scaled.d_o, gradient_power);
  const auto compare_output = [&](OutputId id, int power) {
    if (is_judged(subject, p, id))
      compare(v, p, id, tensor_of(results[0].outputs, id), tensor_of(results[1].outputs, id), power, undefined,
              "linearity", "V times 2^2" + std::string(has_backward(p) ? " and dO times 2^3" : ""));
  };
  compare_output(OutputId::lse, 0);
  if (v_scaled && output_scales(p, a, d)) compare_output(OutputId::o, value_power);
  if (d_o_scaled && value_gradient_scales(p, d)) compare_output(OutputId::dv, gradient_power);
  if (v_scaled && d_o_scaled && score_gradients_scale(in, a, d, results[0].outputs.o))
    for (OutputId id : {OutputId::dq, OutputId::dk}) compare_output(id, value_power + gradient_power);
}

std::vector<Run> plan_scale(const Case& c) {
  Run scaled{.c = c, .placement = {}, .scaling = {.q = query_power}};
  scaled.c.problem.scale = std::ldexp(scale_of(c.problem), -query_power);
  return {Run{.c = c, .placement = {}}, scaled};
}

/// Scores before the scale are multiples of 2^-(the grains of q and k), and scores are the same numbers: so is all that
/// follows. Nothing is claimed where S itself is stored in fp16, whose range is short. Families that aim at scores make
/// their data with the scale in mind.
bool scale_applies(const Case& c, const Subject& subject) {
  const Problem& p = c.problem;
  const bool aims = c.recipe.family >= Family::negative && c.recipe.family <= Family::cancelling;
  const Arithmetic a = parse_arithmetic(subject.arithmetic);
  const bool short_range = a.score_format == int(DType::fp16) || (a.score_format < 0 && p.dtype == DType::fp16);
  if (!deterministic(subject) || !(subject.features & FLASHPROOF_FEATURE_SCALE) || aims || scale_of(p) == 0 ||
      short_range)
    return false;
  const std::vector<Run> runs = plan_scale(c);
  const Inputs in = make_inputs(runs[0]), scaled = make_inputs(runs[1]);
  const Magnitudes q = magnitudes_of(in.q), k = magnitudes_of(in.k);
  const double scale = std::abs(double(scale_of(p)));
  return q.finite && k.finite && is_scaled(in.q, scaled.q, query_power) &&
         q.grain + k.grain + std::abs(std::log2(scale)) + one_more_rounding <= deepest &&
         q.largest * k.largest * double(p.head_dim) * std::max(scale, 1.0) < largest_sum;
}

void judge_scale(Verdict& v, const Case& c, const Subject& subject, std::span<const Run>,
                 std::span<const RunResult> results) {
  const Problem& p = c.problem;
  const std::vector<uint8_t> undefined = undefined_rows(c, subject);
  for (OutputId id : {OutputId::o, OutputId::lse, OutputId::dv})
    if (is_judged(subject, p, id))
      compare(v, p, id, tensor_of(results[0].outputs, id), tensor_of(results[1].outputs, id), 0, undefined, "scale",
              "q times 2^2 and the scale times 2^-2");
}

}  // namespace

const Relation linearity_relation = {"linearity", linearity_applies, plan_linearity, judge_linearity};
const Relation scale_relation = {"scale", scale_applies, plan_scale, judge_scale};

}  // namespace flashproof
