// The rounding errors of one kernel on one problem: its Arithmetic with every unknown field at its worst, as constants.
//
// Notation of BOUNDS.md: u = 2^-24, the fp32 unit roundoff; gamma, the relative error of a sum of products against the
// sum of their magnitudes; kappa, an error of the logarithm of a weight; y_j, a score in natural units; M, the largest
// of a row.
#pragma once
#include <cstdint>
#include <vector>

#include "reference/arithmetic.h"
#include "reference/problem.h"

namespace flashproof {

constexpr double fp32_unit = 0x1p-24;
/// fp32 subnormals may be flushed to zero, operands too: each operation errs by at most this much more.
constexpr double flush = 0x1p-126;

/// How many products a sum has, and how they lie in tiles.
struct SumShape {
  int64_t terms = 0;  ///< products that may differ from zero
  int64_t tiles = 1;  ///< tiles they lie in, at most
  int64_t tile = 1;   ///< products a tile, at most
};

/// Rounding to one format: relative error for normal results, absolute error below, largest number.
struct Conversion {
  double relative = 0, absolute = 0, largest = 0;
};
Conversion conversion_to(DType);

struct ErrorModel {
  // Sums of products. More than one accumulation where it is unknown.
  std::vector<Accumulation> score_sums, value_sums;
  bool one_level = true, two_level = true;  ///< which may be the case
  bool fp32_inputs = false;                 ///< their products round too
  double operand_floor = 0;          ///< on tensor cores a nonzero operand counts as at least the least normal number
  double p_floor = 0, ds_floor = 0;  ///< the same for P (in units of the largest weight) and dS

  // Scores.
  Conversion stored;  ///< S where it is stored; relative 0 in fp32
  bool scores_stored = false;
  Conversion prescale;  ///< q times scale before q.k; relative 0 where it is not done or exact
  bool prescaled = false;
  double scale_product = 0;  ///< relative error of the factor that scores are multiplied with, beside the scale itself
  double tangent_relative = 0, tangent_absolute = 0;

  // Exponent: kappa = y |y_j| + t |y_j - M| + top max|y| for the argument, exp (1 + R) + exp_slope |y_j - M| for exp.
  double y = 0, t = 0, top = 0, exp = 0, exp_slope = 0;
  double reference = 0;                       ///< L = M + ln l: relative error of M
  double log_absolute = 0, log_relative = 0;  ///< of ln l

  // Weights and the end of a row.
  Conversion p, ds;                                                     ///< P before P v; dS, and P in the backward
  double p_unit = 1;                                                    ///< 2^p_scale_log2
  bool normalized_first = true, divided_last = true, each_tile = true;  ///< which may be the case
  bool dropout_on_weights = true;                                       ///< 1 / (1 - rate) may multiply P
  double division = 0;                                                  ///< O / l
  int lanes = 0, tile_m = 0, tile_n = 0, splits = 0;                    ///< 0 unknown
  bool split = true;                                                    ///< keys may be split
  bool sums_p_dp = true;                                                ///< D may be sum_j P dP instead of <dO, O>
  Conversion output;

  /// Error of a computed logarithm of this size.
  double log_error(double log) const;
  /// Relative error of a dot product of length n (q.k, dO.v).
  double score_gamma(int64_t n) const;
  /// Relative error of sum_j P_j v_jc.
  double value_gamma(const SumShape&) const;
  /// Relative error of the backward's sums over keys or rows; their tiles may be added atomically whatever the forward
  /// does.
  double gradient_gamma(const SumShape&) const;
  /// Additions on the longest path of a row sum.
  int64_t row_sum_depth(const SumShape&) const;
  /// Keys or rows that lie in a stretch of `span` out of `length` positions, `terms` of them visible, in tiles of
  /// `tile` (0 unknown).
  SumShape shape(int64_t terms, int64_t span, int64_t length, int64_t tile, int64_t parts) const;
};

ErrorModel error_model(const Problem&, const Arithmetic&);

/// At least e^x - 1 for x >= 0: the series cut after x^2 with the rest below x^2/500 where x <= 0.01.
double growth(double x);
/// (1 + e)^n - 1.
double compounded(double e, double n);

}  // namespace flashproof
