// Arithmetic to error constants; see error_model.h, and BOUNDS.md for the derivations by number.
#include "oracle/error_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace flashproof {
namespace {

constexpr double u = fp32_unit;

/// Relative error of one step of a fused block: numerics, lemma 1: u_keep + (K + 1) u_F (1 + u_keep).
double step_error(const Accumulation& sum) {
  const double keep = std::ldexp(1, -sum.keep_bits);
  return keep + (sum.products + 1) * std::ldexp(1, -sum.align_bits) * (1 + keep);
}

std::vector<Accumulation> candidates(const Accumulation& sum, DType dtype) {
  if (sum.kind != Accumulation::unknown) return {sum};
  const bool fp8 = dtype == DType::e4m3 || dtype == DType::e5m2;
  // Of the tensor cores in use, Hopper's fp8 path keeps the fewest bits.
  const Accumulation core =
      fp8 ? Accumulation{Accumulation::tensor_core, 32, 13, 13} : Accumulation{Accumulation::tensor_core};
  return {Accumulation{Accumulation::fp32}, core};
}

bool on_tensor_cores(const std::vector<Accumulation>& sums) {
  return std::any_of(sums.begin(), sums.end(), [](auto& sum) {
    return sum.kind == Accumulation::tensor_core || sum.kind == Accumulation::tensor_core_pair;
  });
}

struct Levels {
  bool one, two;  ///< which may be the case
};

/// BOUNDS 1. `rounded`: products have more bits than fp32 holds; `operands`: relative error of a product's operands.
double gamma(const Accumulation& sum, Levels levels, bool rounded, double operands, const SumShape& shape) {
  const double tiles = double(shape.tiles), terms = double(shape.terms);
  double worst = 0;
  if (sum.kind == Accumulation::tensor_core) {
    const double chunks = std::ceil(double(shape.tile) / sum.products);
    // A step with nothing but zero products changes the accumulator only where that holds more bits than pass through a
    // step: after a rescale in fp32, and after each other step where more bits are kept than are aligned.
    const double idle =
        (std::min(sum.keep_bits, sum.align_bits) < 23 ? tiles : 0) + (sum.align_bits < sum.keep_bits ? terms : 0);
    if (levels.one) worst = compounded(step_error(sum), std::min(terms + idle, tiles * chunks) + 1);
    if (levels.two)
      worst =
          std::max(worst, (1 + compounded(step_error(sum), std::min(terms, chunks))) * (1 + compounded(u, tiles)) - 1);
    return (1 + operands) * (1 + worst) - 1;
  }
  if (sum.kind == Accumulation::tensor_core_pair) {  // two steps from zero and an fp32 addition for each 32 products
    const double chunks = std::ceil(double(shape.tile) / 32), pair = 1 + compounded(step_error(sum), 2);
    if (levels.one) worst = pair * (1 + compounded(u, std::min(terms, tiles * chunks))) - 1;
    if (levels.two) worst = std::max(worst, pair * (1 + compounded(u, std::min(terms, chunks) + tiles)) - 1);
    return worst;
  }
  // Any order of n additions has paths of at most n - 1 roundings; one more for a product that rounds. Two levels: a
  // tile's sum, then one addition a tile.
  const double product = rounded ? 1 : 0;
  if (levels.one) worst = compounded(u, terms + product);
  if (levels.two) worst = std::max(worst, compounded(u, std::min(terms, double(shape.tile) + tiles) + product));
  return worst;
}

/// Tensor cores read fp32, inputs or P and dS, as TF32, with 10 fraction bits: each of two operands errs by 2^-10.
double tf32(bool fp32_operand) { return fp32_operand ? compounded(0x1p-10, 2) : 0; }

struct ArgumentError {
  double y, t, top, reference;
};

/// BOUNDS 4: how the exponent's argument errs, in natural units. `product`: of a score's product with scale, where that
/// is not in c, nor counted among a modifier's errors.
ArgumentError argument_error(Argument argument, Exponential exponential, double product) {
  // Base e, then an exponential of base 2: one product with log2 e, itself rounded.
  const bool natural = exponential == Exponential::expf || exponential == Exponential::fast_expf;
  switch (argument) {
    case Argument::base2_fma:
      return {product, 4.1 * u, u, 5 * u};
    case Argument::base2_subtract:
      return {product, 4.1 * u, 0, 5 * u};
    case Argument::base_e:
      return {u, natural ? 1.1 * u : 3.1 * u, 0, 0};
    case Argument::unknown:
      break;
  }
  return {u, 4.1 * u, u, 5 * u};
}

/// Relative error of a normal result: .first + .second |x|. n ulp from the correctly rounded result are n + 1/2 ulp
/// from the exact one, and an ulp is at most 2^-23 of the number.
std::pair<double, double> exponential_error(Exponential exponential) {
  switch (exponential) {
    case Exponential::ex2_approx:
      return {std::exp2(-22.709), 0};
    case Exponential::exp2f:
    case Exponential::expf:
      return {2.5 * 0x1p-23, 0};
    case Exponential::rounded:
      return {u, 0};
    case Exponential::fast_expf:
    case Exponential::unknown:
      break;
  }
  return {2.5 * 0x1p-23, 1.173 * 0x1p-23};
}

/// A relative error e is a log-error of at most e / (1 - e) (exponential.v), and e < 2^-16: results are normal for |x|
/// < 88, where `__expf` errs by at most (2.5 + 1.173 * 88) 2^-23.
void set_exponential(ErrorModel& model, Exponential exponential) {
  const auto [least, slope] = exponential_error(exponential);
  model.exp = least / (1 - 0x1p-16);
  model.exp_slope = slope / (1 - 0x1p-16);
}

double division_error(Division division) {
  switch (division) {
    case Division::ieee:  // or a rounded reciprocal and a product
    case Division::reciprocal:
      return compounded(u, 2);
    case Division::approximate:
      return (1 + 0x1p-23) * (1 + u) - 1;
    case Division::unknown:
      break;
  }
  return 2 * 0x1p-23;  // div.full and div.approx: 2 ulp (PTX ISA)
}

void set_formats(ErrorModel& model, const Problem& problem, const Arithmetic& arithmetic) {
  // Unknown formats are the inputs'; scores of fp8 inputs the output's.
  const auto format = [](int declared, DType otherwise) { return declared < 0 ? otherwise : DType(declared); };
  model.output = conversion_to(output_dtype(problem));
  model.stored = conversion_to(format(arithmetic.score_format, output_dtype(problem)));
  model.scores_stored = format(arithmetic.score_format, output_dtype(problem)) != DType::fp32;
  const DType p = format(arithmetic.p_format, problem.dtype), ds = format(arithmetic.ds_format, problem.dtype);
  model.p = conversion_to(p);
  model.ds = conversion_to(ds);
  model.p_unit = std::ldexp(1, arithmetic.p_scale_log2);
  if (on_tensor_cores(model.value_sums)) {
    model.p_floor = std::ldexp(1, format_of(p).emin) / model.p_unit;
    model.ds_floor = std::ldexp(1, format_of(ds).emin);
  }
  if (on_tensor_cores(model.score_sums) || on_tensor_cores(model.value_sums))
    model.operand_floor = std::ldexp(1, format_of(problem.dtype).emin);
  model.prescaled = arithmetic.prescaled != Tristate::no;
  if (model.prescaled) {
    model.prescale = conversion_to(problem.dtype);
    int exponent;
    if (model.prescale.relative == 0) model.prescale.relative = u;  // fp32: the product rounds
    if (std::frexp(scale_of(problem), &exponent) == 0.5) model.prescale.relative = 0;
  }
}

}  // namespace

Conversion conversion_to(DType dtype) {
  const Format format = format_of(dtype);
  if (dtype == DType::fp32) return {0, flush, format.largest};  // registers hold fp32: nothing is converted
  const double unit = std::ldexp(1, -format.precision);
  // To nearest: at most unit / (1 + unit) of the number; half a subnormal's spacing below the least normal one.
  return {unit / (1 + unit), std::ldexp(1, format.emin - format.precision) + flush, format.largest};
}

ErrorModel error_model(const Problem& problem, const Arithmetic& arithmetic) {
  ErrorModel model;
  model.fp32_inputs = problem.dtype == DType::fp32;
  model.score_sums = candidates(arithmetic.scores, problem.dtype);
  model.value_sums = candidates(arithmetic.values, problem.dtype);
  model.one_level = arithmetic.two_level != Tristate::yes;
  model.two_level = arithmetic.two_level != Tristate::no;
  set_formats(model, problem, arithmetic);
  set_exponential(model, arithmetic.exponential);
  const bool modified = problem.softcap != 0 || problem.alibi != Alibi::none || problem.bias;
  const ArgumentError argument = argument_error(arithmetic.argument, arithmetic.exponential,
                                                arithmetic.scaled == Tristate::no || modified ? 0 : u);
  model.y = argument.y;
  model.t = argument.t;
  model.top = argument.top;
  model.reference = argument.reference;
  if (problem.descale) {  // the factor is scale t_q t_k: two more products
    model.scale_product = 2 * u;
    model.t += 2 * u;
    model.y += argument.y > 0 ? 2 * u : 0;
    model.reference += argument.reference > 0 ? 2 * u : 0;
  }
  if (arithmetic.tangent != Tangent::accurate) model.tangent_relative = 0x1p-11;
  if (arithmetic.tangent != Tangent::approximate) model.tangent_absolute = 12 * u;  // BOUNDS 3
  if (arithmetic.logarithm == Logarithm::polynomial) {
    model.log_relative = 2 * 0x1p-23;  // 0.9029 ulp, over all arguments: kernels/hardware/natural_log.h
  } else {
    model.log_relative =
        3.5 * 0x1p-23;  // CUDA C++ Programming Guide, __logf: 2^-21.41 in [0.5, 2], else 3 ulp; logf is better
    model.log_absolute = std::exp2(-21.41);
  }
  const auto may_be = [&](Normalization n) {
    return arithmetic.normalized == Normalization::unknown || arithmetic.normalized == n;
  };
  model.normalized_first = may_be(Normalization::first);
  model.divided_last = may_be(Normalization::last);
  model.each_tile = may_be(Normalization::each_tile);
  model.dropout_on_weights = arithmetic.dropout != DropoutFactor::output;
  model.division = division_error(arithmetic.division);
  model.lanes = arithmetic.row_sum_lanes;
  model.tile_m = arithmetic.tile_m;
  model.tile_n = arithmetic.tile_n;
  model.splits = arithmetic.splits;
  model.split = arithmetic.splits != 1;
  model.sums_p_dp = arithmetic.d_from_stored_o != Tristate::yes;
  return model;
}

double ErrorModel::log_error(double log) const { return log_absolute + log_relative * std::abs(log); }

double ErrorModel::score_gamma(int64_t n) const {
  double worst = 0;
  for (const Accumulation& sum : score_sums)
    worst =
        std::max(worst, gamma(sum, {true, false}, fp32_inputs, tf32(fp32_inputs), {.terms = n, .tiles = 1, .tile = n}));
  return worst;
}

double ErrorModel::value_gamma(const SumShape& shape) const {
  const bool rounded = fp32_inputs || p.relative == 0;  // P in fp32 times a 16-bit number has too many bits
  double worst = 0;
  for (const Accumulation& sum : value_sums)
    worst = std::max(worst, gamma(sum, {one_level, two_level}, rounded, tf32(rounded), shape));
  return worst;
}

double ErrorModel::gradient_gamma(const SumShape& shape) const {
  const bool rounded = fp32_inputs || p.relative == 0 || ds.relative == 0;
  double worst = 0;
  for (const Accumulation& sum : value_sums)
    worst = std::max(worst, gamma(sum, {true, true}, rounded, tf32(rounded), shape));
  return worst;
}

int64_t ErrorModel::row_sum_depth(const SumShape& shape) const {
  if (lanes == 0 || tile_n == 0) return shape.terms;
  const int64_t lane = shape.tiles * ((shape.tile + lanes - 1) / lanes);
  return std::min(shape.terms, lane + lanes - 1 + (splits > 1 ? splits - 1 : 0));
}

SumShape ErrorModel::shape(int64_t terms, int64_t span, int64_t length, int64_t tile, int64_t parts) const {
  if (tile <= 0) return {.terms = terms, .tiles = std::max<int64_t>(span, 1), .tile = 1};
  // Tiles may start anywhere: a stretch touches one more than it fills, and one more for each part it is cut into.
  int64_t tiles = length <= tile && parts == 1 ? 1 : (span + tile - 1) / tile + 1;
  tiles += parts == 0 ? span : parts - 1;
  return {.terms = terms,
          .tiles = std::clamp<int64_t>(tiles, 1, std::max<int64_t>(span, 1)),
          .tile = std::min(tile, length)};
}

double growth(double x) { return x <= 0.01 ? x * (1 + 0.502 * x) : std::expm1(x); }

double compounded(double e, double n) { return std::expm1(n * std::log1p(e)); }

}  // namespace flashproof
