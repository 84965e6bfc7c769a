// Data recipes: the numbers of a case as a pure function of (family, parameters, seed, tensor, position).
//
// Every element is drawn from Philox4x32-10 with key = seed and a counter made of the tensor and the element's source
// position (b, position in the sequence, head, channel), so a value does not depend on the sizes around it: dropping
// keys or heads leaves the rest as it was. Normals come by inverse CDF with fixed polynomials in double and explicit
// fma, no libm, so the same text gives the same bits on host and device, on every machine and in later releases (golden
// hashes in tests/reference hold this). Freestanding: device code includes this file.
//
// Families that aim scores write q = g alpha, k = g beta with g = 1 / sqrt(|scale| sqrt(head_dim)), which is 1 for the
// default scale, so that s = scale <q, k> = <alpha, beta> / sqrt(head_dim) whatever scale and head dim are, as far as
// the format reaches; alpha = 1 + 0.1 N(0, 1), and beta = s / sqrt(head_dim) + noise. Descales, bias and ALiBi come on
// top. Finite families stay finite: what exceeds the format becomes its largest number.
#pragma once
#include "reference/formats.h"
#include "reference/normal.h"
#include "reference/philox.h"

namespace flashproof {

/// Parameters a, b of each family are named in its line, all at least 0; omitted ones take the default in parentheses.
enum class Family : int {
  normal,        ///< N(0, 1); q times a (1), k times b (1)
  outliers,      ///< q, k, v: N(0, 1) + N(0, 100) Bernoulli(a = 0.001): FlashAttention 3, section 4.3
  uniform,       ///< uniform on [-a, a] (1)
  integers,      ///< integers of [-a, a] (2), a share b (0.8) of them made zero
  one_hot_v,     ///< q, k normal; v_jc = 1 iff c == j mod value_dim, else 0
  equal_scores,  ///< every k_j equals k_0: p is uniform
  negative,      ///< every score about -a (20)
  creeping_max,  ///< score of key j about a j (0.05): the running maximum moves in every tile
  late_max,      ///< the entry's last key scores about a (10), all others about 0
  sinks,         ///< key 0 scores about a (12), all others about 0
  near_ties,     ///< scores about 2.5 that differ by 0 to 6 times 2^-22 (in fp8 by what its least number allows)
  cancelling,    ///< terms of q.k of size a (64) over half of the channels, taken off over the rest; s about N(0, 1)
  subnormal,     ///< q, k, v, dO: magnitudes below twice the least normal number, their encodings uniform
  saturating,    ///< v and dO: magnitudes from half the largest number to the largest
  constant_v,    ///< v_jc the same for all j: O must be v
  readout,       ///< q = 0; v_jc = 1 iff c == j - a * value_dim (0), else 0; modifiers neutral (check readout)
  exact,         ///< q = 0, v integers of [-8, 8], k and dO of [-2, 2]; modifiers neutral (check exact_inputs)
  exact_powers,  ///< <q, k> integer: q in {-1, 0, 1}, about 4 of a row not 0; k integers of [-2, 2]; else like exact
  file,          ///< a safetensors file's Q, K, V (host only; reference/inputs.h); the rest normal
};
constexpr int family_count = 19;

/// A parameter that takes its family's default.
constexpr double default_parameter = -1;

struct Recipe {
  Family family = Family::normal;
  double a = default_parameter, b = default_parameter;
  uint64 seed = 0;
#ifndef __CUDACC_RTC__
  bool operator==(const Recipe&) const = default;
#endif
};

struct Parameters {
  int count;  ///< how many the family has, 0 to 2
  double a, b;
};
FLASHPROOF_HD constexpr Parameters default_parameters(Family family) {
  switch (family) {
    case Family::normal:
      return {2, 1, 1};
    case Family::outliers:
      return {1, 0.001, 0};
    case Family::uniform:
      return {1, 1, 0};
    case Family::integers:
      return {2, 2, 0.8};
    case Family::negative:
      return {1, 20, 0};
    case Family::creeping_max:
      return {1, 0.05, 0};
    case Family::late_max:
      return {1, 10, 0};
    case Family::sinks:
      return {1, 12, 0};
    case Family::cancelling:
      return {1, 64, 0};
    case Family::readout:
      return {1, 0, 0};
    default:
      return {0, 0, 0};
  }
}
FLASHPROOF_HD constexpr double parameter_a(const Recipe& r) { return r.a >= 0 ? r.a : default_parameters(r.family).a; }
FLASHPROOF_HD constexpr double parameter_b(const Recipe& r) { return r.b >= 0 ? r.b : default_parameters(r.family).b; }

enum class Operand : int { q, k, v, d_o, bias, slope, sink, q_descale, k_descale, v_descale };

/// What an element's value may depend on beside its position.
struct ElementContext {
  DType dtype;  ///< format the value is rounded to
  int64 seq_k;  ///< Sk of the entry
  int64 head_dim, value_dim;
  double scale;  ///< the problem's score scale, to aim scores
};

/// Where an element stands in its tensor: entry of the batch, position in the sequence, head of that tensor, channel.
/// Bias: query, head, key stand for position, head, channel. Slope, sink, descales: entry and head alone.
struct Place {
  int64 b, position, head, channel;
};

/// The random words of one element. Counter (position, channel, head, b + 2^28 operand): heads and entries below 2^28.
FLASHPROOF_HD constexpr Philox draw(const Recipe& recipe, Operand operand, const Place& at) {
  const Philox counter = {uint32(at.position), uint32(at.channel), uint32(at.head),
                          uint32(at.b) | uint32(operand) << 28};
  return philox4x32_10(counter, uint32(recipe.seed), uint32(recipe.seed >> 32));
}

/// Words 0 and 1 as an odd multiple of 2^-53 in (0, 1), and the standard normal number it gives.
FLASHPROOF_HD constexpr double uniform_of(const Philox& words) {
  const uint64 index = uint64(words.word[0]) << 20 | words.word[1] >> 12;
  return (double(index) + 0.5) * 0x1p-52;
}
FLASHPROOF_HD inline double normal_of(const Philox& words) { return normal_quantile(uniform_of(words)); }

/// Word 2, for choices independent of the number above: uniform in [0, 1).
FLASHPROOF_HD constexpr double choice_of(const Philox& words) { return double(words.word[2]) * 0x1p-32; }

/// An integer of [-most, most], each as likely as the next (to 2^-32), from word 3.
FLASHPROOF_HD constexpr double integer_of(const Philox& words, double most) {
  const uint64 range = 2 * uint64(most) + 1;
  return double(int64((words.word[3] * range) >> 32)) - double(uint64(most));
}

/// g of the opening comment; 1 where scale = 0 leaves nothing to aim.
FLASHPROOF_HD inline double aim_unit(const ElementContext& context) {
  const double scale = context.scale < 0 ? -context.scale : context.scale;
  return scale == 0 ? 1.0 : square_root(1.0 / (scale * square_root(double(context.head_dim))));
}

/// The small last channel of near_ties: 2^-22 / |scale|, at least the format's least number; times an integer k it
/// moves the score by that integer times 2^-22.
FLASHPROOF_HD inline double tie_step(const ElementContext& context) {
  const double scale = context.scale < 0 ? -context.scale : context.scale;
  const double least = decode(context.dtype, 1), step = scale == 0 ? least : 0x1p-22 / scale;
  return step < least ? least : step;
}

FLASHPROOF_HD inline double outlier_of(const Recipe& recipe, const Philox& words) {
  const double far =
      choice_of(words) < parameter_a(recipe) ? normal_quantile((double(words.word[3]) + 0.5) * 0x1p-32) : 0.0;
  return fused(10.0, far, normal_of(words));
}

FLASHPROOF_HD inline double sparse_integer_of(const Recipe& recipe, const Philox& words) {
  return choice_of(words) < parameter_b(recipe) ? 0.0 : integer_of(words, parameter_a(recipe));
}

FLASHPROOF_HD inline double saturating_of(DType dtype, const Philox& words) {
  const double magnitude = format_of(dtype).largest * fused(0.5, uniform_of(words), 0.5);
  return words.word[2] & 1 ? -magnitude : magnitude;
}

/// The families whose q, k, v and dO are drawn alike; anything else is N(0, 1).
FLASHPROOF_HD inline double plain_number(const Recipe& recipe, const Philox& words) {
  switch (recipe.family) {
    case Family::outliers:
      return outlier_of(recipe, words);
    case Family::uniform:
      return parameter_a(recipe) * fused(2.0, uniform_of(words), -1.0);
    case Family::integers:
      return sparse_integer_of(recipe, words);
    default:
      return normal_of(words);
  }
}

/// First half of the channels of `cancelling`: sqrt(a) (1 + 0.1 N(0, 1)), in q and k.
FLASHPROOF_HD inline double cancelling_term(const Recipe& recipe, Operand operand, const Place& at) {
  return square_root(parameter_a(recipe)) * fused(0.1, normal_of(draw(recipe, operand, at)), 1.0);
}

FLASHPROOF_HD inline double query(const Recipe& recipe, const ElementContext& context, const Place& at) {
  const Philox words = draw(recipe, Operand::q, at);
  switch (recipe.family) {
    case Family::normal:
      return parameter_a(recipe) * normal_of(words);
    case Family::near_ties:
      if (context.head_dim > 1 && at.channel == context.head_dim - 1) return tie_step(context);
      [[fallthrough]];
    case Family::negative:
    case Family::creeping_max:
    case Family::late_max:
    case Family::sinks:
      return aim_unit(context) * fused(0.1, normal_of(words), 1.0);
    case Family::cancelling: {
      const int64 half = context.head_dim / 2;
      if (at.channel == 2 * half) return aim_unit(context) * normal_of(words);
      return aim_unit(context) * cancelling_term(recipe, Operand::q, {at.b, at.position, at.head, at.channel % half});
    }
    case Family::readout:
    case Family::exact:
      return 0.0;
    case Family::exact_powers:
      return choice_of(words) * double(context.head_dim) < 4.0 ? (words.word[3] & 1 ? 1.0 : -1.0) : 0.0;
    default:
      return plain_number(recipe, words);
  }
}

/// beta of the opening comment, for the families that aim each key's score.
FLASHPROOF_HD inline double aimed_key(const Recipe& recipe, const ElementContext& context, const Place& at) {
  double score = 0, noise = 0.25;
  switch (recipe.family) {
    case Family::negative:
      score = -parameter_a(recipe);
      break;
    case Family::creeping_max:
      score = parameter_a(recipe) * double(at.position), noise = 0.1;
      break;
    case Family::late_max:
      score = at.position == context.seq_k - 1 ? parameter_a(recipe) : 0.0;
      break;
    default:
      score = at.position == 0 ? parameter_a(recipe) : 0.0;
      break;
  }
  return fused(noise, normal_of(draw(recipe, Operand::k, at)), score / square_root(double(context.head_dim)));
}

FLASHPROOF_HD inline double near_tie_key(const Recipe& recipe, const ElementContext& context, const Place& at) {
  const double step = integer_of(draw(recipe, Operand::k, {at.b, at.position, at.head, -1}), 3.0);
  const double unit = context.scale < 0 ? -aim_unit(context) : aim_unit(context);
  const double base = unit * (2.5 / square_root(double(context.head_dim))) *
                      fused(0.1, normal_of(draw(recipe, Operand::k, {at.b, 0, at.head, at.channel})), 1.0);
  if (context.head_dim > 1) return at.channel == context.head_dim - 1 ? step : base;
  return decode(context.dtype, uint32(int(encode(context.dtype, base)) + int(step)));
}

FLASHPROOF_HD inline double cancelling_key(const Recipe& recipe, const ElementContext& context, const Place& at) {
  const int64 half = context.head_dim / 2;
  const double x = normal_of(draw(recipe, Operand::k, at));
  if (at.channel == 2 * half) return x;
  const double term = cancelling_term(recipe, Operand::k, {at.b, at.position, at.head, at.channel % half});
  return at.channel < half ? term : fused(square_root(2.0 / parameter_a(recipe)), x, -term);
}

FLASHPROOF_HD inline double key(const Recipe& recipe, const ElementContext& context, const Place& at) {
  const double unit = context.scale < 0 ? -aim_unit(context) : aim_unit(context);
  const Philox words = draw(recipe, Operand::k, at);
  switch (recipe.family) {
    case Family::normal:
      return parameter_b(recipe) * normal_of(words);
    case Family::equal_scores:
      return normal_of(draw(recipe, Operand::k, {at.b, 0, at.head, at.channel}));
    case Family::negative:
    case Family::creeping_max:
    case Family::late_max:
    case Family::sinks:
      return unit * aimed_key(recipe, context, at);
    case Family::near_ties:
      return near_tie_key(recipe, context, at);
    case Family::cancelling:
      return unit * cancelling_key(recipe, context, at);
    case Family::exact:
    case Family::exact_powers:
      return integer_of(words, 2.0);
    default:
      return plain_number(recipe, words);
  }
}

FLASHPROOF_HD inline double value(const Recipe& recipe, const ElementContext& context, const Place& at) {
  const Philox words = draw(recipe, Operand::v, at);
  switch (recipe.family) {
    case Family::one_hot_v:
      return at.channel == at.position % context.value_dim ? 1.0 : 0.0;
    case Family::saturating:
      return saturating_of(context.dtype, words);
    case Family::constant_v:
      return normal_of(draw(recipe, Operand::v, {at.b, 0, at.head, at.channel}));
    case Family::readout:
      return at.channel == at.position - int64(parameter_a(recipe)) * context.value_dim ? 1.0 : 0.0;
    case Family::exact:
    case Family::exact_powers:
      return integer_of(words, 8.0);
    default:
      return plain_number(recipe, words);
  }
}

FLASHPROOF_HD inline double output_gradient(const Recipe& recipe, const ElementContext& context, const Place& at) {
  const Philox words = draw(recipe, Operand::d_o, at);
  switch (recipe.family) {
    case Family::outliers:
      return normal_of(words);
    case Family::saturating:
      return saturating_of(context.dtype, words);
    case Family::exact:
    case Family::exact_powers:
      return integer_of(words, 2.0);
    default:
      return plain_number(recipe, words);
  }
}

/// Bias 0.5 N(0, 1), one element in 16 minus infinity where the format has it; slopes (1 + U) 2^(-1 - head mod 8), near
/// ALiBi's geometric sequence; sinks 1 + N(0, 1); descales uniform on [0.5, 2]. Neutral where the family says so.
FLASHPROOF_HD inline double modifier(const Recipe& recipe, Operand operand, const ElementContext& context,
                                     const Place& at) {
  const Family family = recipe.family;
  const bool neutral = family == Family::readout || family == Family::exact || family == Family::exact_powers;
  const Philox words = draw(recipe, operand, at);
  switch (operand) {
    case Operand::bias:
      if (neutral) return 0.0;
      if (words.word[2] % 16 == 0 && format_of(context.dtype).has_infinity) return -__builtin_huge_val();
      return 0.5 * normal_of(words);
    case Operand::slope:
      return neutral ? 0.0 : (1.0 + uniform_of(words)) * power_of_two(-1 - int(at.head % 8));
    case Operand::sink:
      return 1.0 + normal_of(words);
    default:
      return neutral ? 1.0 : fused(1.5, uniform_of(words), 0.5);
  }
}

/// A code whose magnitude is uniform below twice the least normal number, with a random sign.
FLASHPROOF_HD constexpr uint32 subnormal_bits(DType dtype, const Philox& words) {
  const uint32 below = 2u << (format_of(dtype).precision - 1);
  return (words.word[0] & (below - 1)) | (words.word[1] & 1) << (format_of(dtype).bits - 1);
}

/// Encoded bits of one element at source position (b, position, head, channel).
FLASHPROOF_HD inline uint32 element(const Recipe& recipe, Operand operand, const ElementContext& context, int64 b,
                                    int64 position, int64 head, int64 channel) {
  const Place at = {b, position, head, channel};
  if (operand > Operand::d_o) return encode(context.dtype, modifier(recipe, operand, context, at));
  if (recipe.family == Family::subnormal) return subnormal_bits(context.dtype, draw(recipe, operand, at));
  const double x = operand == Operand::q   ? query(recipe, context, at)
                   : operand == Operand::k ? key(recipe, context, at)
                   : operand == Operand::v ? value(recipe, context, at)
                                           : output_gradient(recipe, context, at);
  const double largest = format_of(context.dtype).largest;
  return encode(context.dtype, x > largest ? largest : x < -largest ? -largest : x);
}

}  // namespace flashproof
