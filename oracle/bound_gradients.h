// The backward's error bounds, row by row and key by key. See BOUNDS.md 7.
#pragma once
#include "oracle/bound_rows.h"

namespace flashproof {

/// What the backward knows of one row: exact L and D, and how far the numbers that it reads or makes may be from them.
struct RowState {
  double l = 0, l_error = 0, d = 0, d_error = 0;
  double sink_p = 0, sink_error = 0;  ///< exp(sink - L), and the error of exp(sink - L) D
  bool empty = true;                  ///< sees no key
  bool overflow = false;
};

/// Error of one dS_ij by part; `rounding` is that to the format that the matrix product reads.
struct ScoreGradientError {
  double weights = 0, value_products = 0, d = 0, tangent = 0, rounding = 0, underflow = 0;
  double total() const { return weights + value_products + d + tangent + rounding + underflow; }
};

/// One row of P and dS over the visible keys of a range, with error bounds.
struct PairRow {
  std::vector<double> p, p_error, p_rounding;  ///< z p_ij as dV reads it: its error before and by rounding
  std::vector<double> ds, ds_error;            ///< dS, and its error before rounding
  std::vector<double> ds0;                     ///< dS0
  std::vector<ScoreGradientError> error;       ///< of dS0 as dQ and dK read it
  bool overflow = false;
};

RowState row_state(const Inputs&, const ErrorModel&, const KeyPanel&, const ScoreRow&, const WeightRow&, const OutputRow&,
                   const LogSumBound&);
PairRow pair_row(const Inputs&, const ErrorModel&, const KeyPanel&, const ScoreRow&, const RowState&);

/// Error bound on one element of dQ, dK, dV by part.
struct GradientBound {
  ScoreGradientError terms;  ///< dV: weights and rounding alone
  double accumulation = 0, output = 0;
  double total() const { return terms.total() + accumulation + output; }
};
/// dQ of the row: [head_dim].
std::vector<GradientBound> query_gradient(const Inputs&, const ErrorModel&, const KeyPanel&, const ScoreRow&, const PairRow&);

/// dK [keys of the range][head_dim] and dV [..][value_dim] of one kv head; `states` holds [heads of the group][Sq].
struct KeyGradients {
  std::vector<GradientBound> dk, dv;
};
KeyGradients key_gradients(const Inputs&, const ErrorModel&, const KeyPanel&, int64_t b, int64_t kv_head, KeyRange keys,
                           const std::vector<RowState>& states);

}  // namespace flashproof
