// The backward's error bounds, row by row and key by key. See BOUNDS.md 7.
#pragma once
#include <array>

#include "oracle/bound_rows.h"

namespace flashproof {

/// What the backward knows of one row: exact L and D, and how far the numbers that it reads or makes may be from them.
struct RowState {
  double l = 0, l_error = 0, d = 0, d_error = 0;
  double sink_p = 0, sink_error = 0;  ///< exp(sink - L), and the error of exp(sink - L) D
  bool empty = true;                  ///< sees no key
  bool overflow = false;
};

/// Parts of the error of one dS_ij, or of a gradient made of them; `rounding` is that of P or dS to the format that a
/// matrix product reads. Of dV there are the weights and rounding alone.
enum GradientPart {
  part_weights,
  part_value_products,
  part_d,
  part_tangent,
  part_rounding,
  part_underflow,
  gradient_parts
};
using GradientError = std::array<double, gradient_parts>;
double total(const GradientError&);

/// Whether parts are kept apart; else each error is its total, in the first part, which is much faster.
enum class Detail { total, parts };

/// One row of P and dS over the visible keys of a range, with error bounds.
struct PairRow {
  std::vector<double> p, p_error, p_rounding;  ///< z p_ij as dV reads it: its error before and by rounding
  std::vector<double> ds, ds_error;            ///< dS, and its error before rounding
  std::vector<double> ds0;                     ///< dS0
  std::vector<GradientError> error;            ///< of dS0 as dQ and dK read it
  bool overflow = false;
};

RowState row_state(const Inputs&, const ErrorModel&, const KeyPanel&, const ScoreRow&, const WeightRow&,
                   const OutputRow&, const LogSumBound&);
PairRow pair_row(const Inputs&, const ErrorModel&, const KeyPanel&, const ScoreRow&, const RowState&);

/// Error bound on one element of dQ, dK, dV by part.
struct GradientBound {
  GradientError terms = {};
  double accumulation = 0, output = 0;
  double sum() const { return total(terms) + accumulation + output; }
};
/// dQ of the row: [head_dim].
std::vector<GradientBound> query_gradient(const Inputs&, const ErrorModel&, const KeyPanel&, const ScoreRow&,
                                          const PairRow&, Detail);

/// dK [keys of the range][head_dim] and dV [..][value_dim] of one kv head; `states` holds [heads of the group][Sq].
struct KeyGradients {
  std::vector<GradientBound> dk, dv;
};
KeyGradients key_gradients(const Inputs&, const ErrorModel&, const KeyPanel&, int64_t b, int64_t kv_head, KeyRange keys,
                           const std::vector<RowState>& states, Detail);

}  // namespace flashproof
