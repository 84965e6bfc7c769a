// PREC: the online softmax of a row with one rounding too many, or without one of its rescalings.
//
// Tile by tile, as FlashAttention 2 does (2307.08691, Algorithm 1): m' = max(m, s), l = exp(m - m') l + sum P, A =
// exp(m - m') A + round(P) V, O = A / l. Each hypothesis rounds one of s, P, l, A, O or L to a narrower format, in
// double otherwise; parts of the keys are combined exactly.
#include <algorithm>
#include <cmath>
#include <limits>

#include "fuzz/explain/hypothesis.h"

namespace flashproof {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr int fp32_format = int(DType::fp32);

/// Formats (DType) of each number; fp32 stands for no rounding.
struct Rounding {
  int score = fp32_format, p = fp32_format, sum = fp32_format, accumulator = fp32_format;
  bool sums_rounded_p = false;
  bool keeps_accumulator = false, keeps_sum = false;  ///< not rescaled when the maximum rises
  int64_t kept_from = 0;                              ///< first channel that is not rescaled, with keeps_accumulator
  int accumulator_bits = 53;                          ///< significant bits that the accumulator is cut to
};

double rounded(int format, double x) {
  return format == fp32_format || !std::isfinite(x) ? x : round_to(DType(format), x);
}

/// Cut towards zero to so many significant bits.
double truncated(int bits, double x) {
  if (bits >= 53 || x == 0 || !std::isfinite(x)) return x;
  int exponent = 0;
  const double fraction = std::frexp(x, &exponent);
  return std::ldexp(std::trunc(std::ldexp(fraction, bits)), exponent - bits);
}

/// The running softmax of one row, or of a part of its keys.
struct Running {
  double maximum = -infinity, sum = 0;
  std::vector<double> accumulator;
};

void add_tile(const Inputs& in, const std::vector<const Pair*>& tile, const Rounding& rounding, Running& state) {
  const int64_t dim = in.problem.value_dim;
  double maximum = state.maximum;
  for (const Pair* pair : tile) maximum = std::max(maximum, rounded(rounding.score, pair->s));
  if (maximum == -infinity) return;
  const double rescale = std::exp(state.maximum - maximum);
  if (!rounding.keeps_sum) state.sum *= rescale;
  const int64_t rescaled = rounding.keeps_accumulator ? std::min(rounding.kept_from, dim) : dim;
  for (int64_t c = 0; c < rescaled; ++c) state.accumulator[c] *= rescale;
  for (const Pair* pair : tile) {
    const double p = std::exp(rounded(rounding.score, pair->s) - maximum), narrow = rounded(rounding.p, p);
    state.sum += rounding.sums_rounded_p ? narrow : p;
    if (pair->z != 0)
      for (int64_t c = 0; c < dim; ++c) state.accumulator[c] += narrow * pair->z * in.v.at(pair->value_row * dim + c);
  }
  state.sum = rounded(rounding.sum, state.sum);
  for (double& x : state.accumulator) x = truncated(rounding.accumulator_bits, rounded(rounding.accumulator, x));
  state.maximum = maximum;
}

/// Parts combined by their maxima and sums, with the sink where there are several.
Running combined(const std::vector<Running>& parts, double sink, int64_t dim) {
  Running all{sink, sink == -infinity ? 0.0 : 1.0, std::vector<double>(dim, 0)};
  for (const Running& part : parts) {
    if (part.maximum == -infinity) continue;
    const double maximum = std::max(all.maximum, part.maximum);
    const double keep = std::exp(all.maximum - maximum), add = std::exp(part.maximum - maximum);
    all.sum = keep * all.sum + add * part.sum;
    for (int64_t c = 0; c < dim; ++c) all.accumulator[c] = keep * all.accumulator[c] + add * part.accumulator[c];
    all.maximum = maximum;
  }
  return all;
}

/// O and L of a row by tiles of `tile` keys in `count` parts.
void soften_by_tiles(const Inputs& in, const Rounding& rounding, int64_t tile, int64_t count, RowSketch& row) {
  const int64_t dim = in.problem.value_dim;
  const int64_t tiles = (row.at.seq_k + tile - 1) / tile, length = std::max<int64_t>(1, (tiles + count - 1) / count);
  std::vector<Running> parts(count, Running{-infinity, 0, std::vector<double>(dim, 0)});
  if (count == 1) parts[0].maximum = row.sink, parts[0].sum = row.sink == -infinity ? 0 : 1;
  for (int64_t t = 0; t < tiles; ++t) {
    std::vector<const Pair*> members;
    for (const Pair& pair : row.pairs)
      if (pair.visible && pair.j / tile == t) members.push_back(&pair);
    if (!members.empty()) add_tile(in, members, rounding, parts[t / length]);
  }
  const Running all = count == 1 ? parts[0] : combined(parts, row.sink, dim);
  if (all.sum == 0) return;
  row.l = row.stored = all.maximum + std::log(all.sum);
  for (int64_t c = 0; c < dim; ++c) row.o[c] = value_scale<double>(in, row.at) * all.accumulator[c] / all.sum;
}

/// P divided by the row sum before it is rounded and meets V.
void soften_normalised(const Inputs& in, const Rounding& rounding, RowSketch& row) {
  const int64_t dim = in.problem.value_dim;
  row.o.assign(dim, 0);
  for (const Pair& pair : row.pairs) {
    if (!pair.visible) continue;
    const double p = rounded(rounding.p, std::exp(rounded(rounding.score, pair.s) - row.l)) * pair.z *
                     value_scale<double>(in, row.at);
    for (int64_t c = 0; c < dim; ++c) row.o[c] += p * in.v.at(pair.value_row * dim + c);
  }
  for (double& x : row.o) x = rounded(rounding.accumulator, x);
}

/// Formats narrower than what the kernel says of itself, by name.
struct Narrow {
  DType dtype;
  const char* name;
};
constexpr Narrow narrow_formats[] = {
    {DType::bf16, "bf16"}, {DType::fp16, "fp16"}, {DType::e4m3, "e4m3"}, {DType::e5m2, "e5m2"}};

using RoundingFor = std::function<bool(const Observation&, Rounding&)>;  ///< false: does not apply
void add_rounding(Hypotheses& list, const std::string& id, const std::string& sentence,
                  const RoundingFor& rounding_for) {
  add_mistake_in(in_forward, list, id, "PREC", sentence,
                 [rounding_for](const Observation& o) -> std::optional<Mistake> {
                   Rounding rounding;
                   if (o.arithmetic.p_format > 0) rounding.p = o.arithmetic.p_format;
                   if (!rounding_for(o, rounding)) return std::nullopt;
                   const bool normalised = o.arithmetic.normalized == Normalization::first;
                   const int64_t tile = key_tiles(o).front(), parts = key_parts(o);
                   Mistake mistake;
                   mistake.result = [=](const Inputs& in, RowSketch& row) {
                     if (!row.sees_keys()) return;
                     if (normalised)
                       soften_normalised(in, rounding, row);
                     else
                       soften_by_tiles(in, rounding, tile, parts, row);
                   };
                   return mistake;
                 });
}

void add_formats(Hypotheses& list) {
  for (const Narrow& narrow : narrow_formats) {
    const int format = int(narrow.dtype);
    const std::string name = narrow.name;
    add_rounding(list, "p-in-" + name, "P is rounded to " + name + " before P V",
                 [format](const Observation& o, Rounding& r) {
                   r.p = format;
                   return o.arithmetic.p_format != format;
                 });
    add_rounding(list, "p-in-" + name + "-summed", "P is rounded to " + name + " before P V and before the row sum",
                 [format](const Observation&, Rounding& r) {
                   r.p = format, r.sums_rounded_p = true;
                   return true;
                 });
    add_rounding(list, "scores-in-" + name, "scores are rounded to " + name,
                 [format](const Observation& o, Rounding& r) {
                   r.score = format;
                   return o.arithmetic.score_format != format;
                 });
    add_rounding(list, "row-sum-in-" + name, "the row sum is rounded to " + name + " after each tile of keys",
                 [format](const Observation&, Rounding& r) {
                   r.sum = format;
                   return true;
                 });
    add_rounding(list, "accumulator-in-" + name,
                 "the accumulator of O is rounded to " + name + " after each tile of keys",
                 [format](const Observation&, Rounding& r) {
                   r.accumulator = format;
                   return true;
                 });
    add_mistake_in(in_forward, list, "l-in-" + name, "PREC", "L is rounded to " + name,
                   [format](const Observation&) -> std::optional<Mistake> {
                     Mistake mistake;
                     mistake.result = [format](const Inputs&, RowSketch& row) {
                       row.stored = rounded(format, row.stored);
                     };
                     return mistake;
                   });
    for (const bool of_p : {true, false})
      add_mistake_in(in_backward, list, (of_p ? "backward-p-in-" : "ds-in-") + name, "PREC",
                     (of_p ? "the backward rounds P to " : "dS is rounded to ") + name,
                     [=](const Observation& o) -> std::optional<Mistake> {
                       if (o.arithmetic.ds_format == format) return std::nullopt;
                       Mistake mistake;
                       (of_p ? mistake.round_p : mistake.round_ds) = [format](double x) { return rounded(format, x); };
                       return mistake;
                     });
  }
}

void add_fp8(Hypotheses& list) {
  for (int bits = 10; bits <= 22; ++bits)
    add_rounding(list, "accumulator-of-" + std::to_string(bits) + "-bits",
                 "the accumulator of O is cut to " + std::to_string(bits) + " bits after each tile of keys",
                 [bits](const Observation&, Rounding& r) {
                   r.accumulator_bits = bits;
                   return true;
                 });
  add_rounding(list, "p-without-factor", "P is rounded to fp8 without a factor that keeps it from underflow",
               [](const Observation&, Rounding& r) { return r.p == int(DType::e4m3) || r.p == int(DType::e5m2); });
}

void add_rescaling(Hypotheses& list) {
  add_rounding(list, "accumulator-not-rescaled", "the accumulator of O keeps its old scale when the maximum rises",
               [](const Observation&, Rounding& r) { return r.keeps_accumulator = true; });
  for (const int64_t first : {64, 128})
    add_rounding(list, "accumulator-not-rescaled-from-" + std::to_string(first),
                 "the accumulator of O keeps its old scale from channel " + std::to_string(first) + " on",
                 [first](const Observation& o, Rounding& r) {
                   r.keeps_accumulator = true, r.kept_from = first;
                   return o.in.problem.value_dim > first;
                 });
  add_rounding(list, "row-sum-not-rescaled", "the row sum keeps its old scale when the maximum rises",
               [](const Observation&, Rounding& r) { return r.keeps_sum = true; });
  add_rounding(list, "nothing-rescaled", "row sum and accumulator keep their old scale when the maximum rises",
               [](const Observation&, Rounding& r) { return r.keeps_accumulator = r.keeps_sum = true; });
}

/// Parts of the keys put together with wrong weights: 1 each, or by their sums without their maxima.
void add_combination(Hypotheses& list) {
  for (const bool even : {true, false})
    add_mistake_in(in_forward, list, even ? "parts-averaged" : "parts-without-maximum", "LSE",
                   even ? "the parts of the keys are averaged with equal weights"
                        : "the parts of the keys are weighted by their sums without their maxima",
                   [even](const Observation& o) -> std::optional<Mistake> {
                     const int64_t parts = key_parts(o), tile = key_tiles(o).front();
                     if (parts < 2) return std::nullopt;
                     Mistake mistake;
                     mistake.result = [=](const Inputs& in, RowSketch& row) {
                       const int64_t length = ((row.at.seq_k + tile - 1) / tile + parts - 1) / parts * tile;
                       std::vector<double> sum(row.o.size(), 0);
                       double weights = 0;
                       for (int64_t first = 0; first < row.at.seq_k; first += length) {
                         RowSketch part = row;
                         std::erase_if(part.pairs,
                                       [&](const Pair& pair) { return pair.j < first || pair.j >= first + length; });
                         part.sink = -infinity;
                         if (!part.sees_keys()) continue;
                         soften(in, part);
                         double top = -infinity;
                         for (const Pair& pair : part.pairs)
                           if (pair.visible) top = std::max(top, pair.s);
                         const double weight = even ? 1 : std::exp(part.l - top);
                         weights += weight;
                         for (size_t c = 0; c < sum.size(); ++c) sum[c] += weight * part.o[c];
                       }
                       if (weights == 0) return;
                       for (size_t c = 0; c < sum.size(); ++c) row.o[c] = sum[c] / weights;
                     };
                     return mistake;
                   });
}

}  // namespace

void add_rounding_hypotheses(Hypotheses& list) {
  add_formats(list);
  add_fp8(list);
  add_rescaling(list);
  add_combination(list);
}

}  // namespace flashproof
