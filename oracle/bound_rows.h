// One row of attention in double, with the errors that a kernel's arithmetic may make on it. See BOUNDS.md.
#pragma once
#include <cstdint>
#include <vector>

#include "oracle/error_model.h"
#include "reference/attention.h"
#include "reference/inputs.h"

namespace flashproof {

/// K and V of one kv head. "Sizes" are magnitudes, raised to the least normal number where a tensor core needs it.
struct KeyPanel {
  int64_t keys = 0, head_dim = 0, value_dim = 0;
  std::vector<float> k_columns, k_column_sizes;  ///< [head_dim][keys]
  std::vector<float> v_rows, v_sizes;            ///< [keys][value_dim]
  std::vector<float> k_rows, k_sizes;            ///< [keys][head_dim]
  std::vector<float> v_columns, v_column_sizes;  ///< [value_dim][keys], backward
  std::vector<double> k_sums, v_sums;            ///< sum of |k_j|, |v_j| over the channels
};
KeyPanel key_panel(const Inputs&, const ErrorModel&, int64_t b, int64_t kv_head);

/// Parts of kappa_j, the error of ln of a weight.
enum KappaPart { kappa_scores, kappa_stored, kappa_modifiers, kappa_argument, kappa_exp, kappa_parts };

/// Scores of one row over the visible keys of a range, with their absolute errors.
struct ScoreRow {
  HeadIndex at;
  int64_t i = 0;
  int64_t span = 0;  ///< keys of the range, hidden ones included
  std::vector<int64_t> keys;
  std::vector<double> y, tangent, z;       ///< score; s1/cap (0 without softcap); dropout factor
  std::vector<double> kappa[kappa_parts];  ///< the first three are filled
  double largest = 0, low = 0, high = 0;  ///< max y (-inf without keys); the computed maximum lies between low and high
  bool overflow = false;                  ///< a score may leave the range of its format
  double error(size_t n) const { return kappa[kappa_scores][n] + kappa[kappa_stored][n] + kappa[kappa_modifiers][n]; }
};
ScoreRow score_row(const Inputs&, const ErrorModel&, const KeyPanel&, const HeadIndex&, int64_t i, KeyRange);

/// Softmax of a row and what its errors amount to.
struct WeightRow {
  std::vector<double> log_p, p, kappa;  ///< by visible key; kappa is the sum of its parts
  std::vector<double> apart;            ///< how far the logs of a weight in numerator and in denominator may differ
  double sink_p = 0, sink_kappa = 0;
  double l = 0;            ///< L_i; -infinity for a row without keys and sink
  double reference = 0;    ///< most that the computed maximum may be in magnitude
  double log_sum = 0;      ///< most that the log of a computed sum of weights may be in magnitude
  double mean_error = 0;   ///< bound on |ln sum p_j B_j|: how far the sum of computed weights is from Z
  double least_sum = 1;    ///< lower bound on sum p_j B_j
  double unit = 1;         ///< an absolute error of one weight, relative to Z: 1 / Z against the computed maximum
  double largest_sum = 1;  ///< Z against the largest score of the keys: the accumulators' range
  double row_sum = 0, rescale = 0;  ///< relative errors b of the denominator, (1 + u)^R - 1
  double p_error = 0;               ///< a: relative error of numerators alone, rescale included
  int64_t rescales = 0;
  SumShape shape;
  bool overflow = false;
};
/// Fills the last two parts of kappa in the scores.
WeightRow weight_row(const Inputs&, const ErrorModel&, ScoreRow&);

/// Error bound on L_i by part.
struct LogSumBound {
  double weights = 0, reference = 0, logarithm = 0, output = 0;
  double total() const { return weights + reference + logarithm + output; }
};
LogSumBound log_sum_bound(const ErrorModel&, const WeightRow&);

/// Error bound on one O_ic by part; the parts of kappa are in proportion to their share.
struct OutputBound {
  double weights = 0, p_rounding = 0, row_sum = 0, accumulation = 0, underflow = 0, output = 0;
  double before_output() const { return weights + p_rounding + row_sum + accumulation + underflow; }
  double total() const { return before_output() + output; }
};
struct OutputRow {
  std::vector<double> o;
  std::vector<OutputBound> bound;  ///< infinite where the accumulator, a factor or the output may overflow
  bool overflow = false;           ///< one of these may, whatever the weights' errors
};
OutputRow output_row(const Inputs&, const ErrorModel&, const KeyPanel&, const ScoreRow&, const WeightRow&);

/// The largest product that a kernel may form of the factors t_v and 1 / (1 - rate), on their own or to be multiplied
/// with a sum over V; at least 1.
double value_factor(const Inputs&, const HeadIndex&);
/// Whether that product may leave fp32: infinity then spoils sums that are 0, too.
bool value_factor_overflows(const Inputs&, const HeadIndex&);

/// Raw dot products of a vector with the columns of a panel over keys [begin, end), and the sums of the sizes'
/// products.
void dot_columns(const std::vector<double>& x, const std::vector<double>& x_sizes, const std::vector<float>& columns,
                 const std::vector<float>& column_sizes, int64_t keys, KeyRange range, std::vector<double>& dots,
                 std::vector<double>& sizes);
/// |x|, at least `floor` where x is not zero.
double size_of(double x, double floor);

}  // namespace flashproof
