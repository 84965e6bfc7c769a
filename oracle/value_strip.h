// One row or one column of the score matrix in double, each number with its radius: the inner loops of the first
// strength.
//
// A strip is query row i against keys j, or key j against query rows i, of one head; its arrays are indexed by the
// other side's position. The formulas are DESIGN's "what attention is". Each stage adds to the radius what its own
// roundings do (u = 2^-53) and passes on the radius of what it reads; nothing is estimated.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "oracle/certified_sum.h"
#include "reference/inputs.h"

namespace flashproof {

/// The vectors of one operand, once by rows and once by columns: every format's numbers are floats exactly.
struct Side {
  int64_t count = 0, channels = 0;
  std::vector<float> rows;     ///< [count, channels], then zeros up to a multiple of sum_chunk rows
  std::vector<float> columns;  ///< [channels, count]
  std::vector<double> norm;    ///< at least the Euclidean norm of each vector
  std::vector<double> unit;    ///< a power of two that divides every element of the vector
};
/// Rows first, first + step, ... of the tensor's [rows, channels]. Numbers that are not finite become 0: what they
/// reach is not for this oracle to say (oracle/nonfinite.h).
Side make_side(const Tensor&, int64_t first, int64_t step, int64_t count, int64_t channels);

/// What the keys' pass needs of one query row: p_ij = exp(s_ij - reference) / sum, where sum is off by at most error *
/// sum, and D_i with its radius and sum of magnitudes.
struct RowState {
  double reference = 0, sum = 1, error = 0, delta = 0, delta_radius = 0, delta_size = 0;
};
/// Row states by position in a strip, an array a field so that loops over them vectorise.
struct RowStates {
  explicit RowStates(int64_t count);
  std::vector<double> reference, sum, error, delta, delta_radius, delta_size;
  void set(int64_t n, const RowState&);
  RowState at(int64_t n) const { return {reference[n], sum[n], error[n], delta[n], delta_radius[n], delta_size[n]}; }
};

struct Strip {
  explicit Strip(int64_t capacity);  ///< begin = 0, end = capacity; arrays of a multiple of sum_chunk
  int64_t begin = 0, end = 0;
  std::vector<double> score, score_radius;  ///< s; -infinity where hidden
  std::vector<double> slope, slope_error;   ///< dS0 / dS = 1 - (s1/cap)^2 and its relative error
  std::vector<double> shift, shift_size;  ///< bias - slope |i + off - j|, its sum of magnitudes; -infinity where hidden
  std::vector<double> kept;               ///< 1 / (1 - rate), or 0 where dropout drops
  std::vector<double> weight, weight_radius;  ///< exp(s - reference)
  std::vector<double> p, p_radius;
  std::vector<double> g, g_radius;  ///< t_v <dO_i, v_j>
  std::vector<double> ds, ds_radius, ds_size;
  std::vector<double> x;  ///< the one vector in double
};

/// 1 / (1 - rate), off by at most 2.01 u.
double dropout_scale(const Problem&);
/// Whether pairs carry more than the mask: ALiBi, bias or dropout.
bool has_pair_modifiers(const Problem&);
/// Sets shift, shift_size and kept of pair (i, j) at position n.
void set_modifiers(const Inputs&, int64_t b, int64_t h, int64_t i, int64_t j, Strip&, int64_t n);
/// One vector, row `row` of `one`, against the vectors of another side; its results go to `strip`, whose range they
/// fill.
struct DotLane {
  const Side& one;
  int64_t row;
  Strip& strip;
};
/// factor <one, many_n> for n in each lane's range, into strip.*value with radii. `factor` itself is off by at most u.
void dot_strips(const Side& many, std::span<const DotLane>, double factor, std::vector<double> Strip::*value,
                std::vector<double> Strip::*radius);
/// s from s0 (in score), with slope; shift must be set if has_pair_modifiers.
void finish_scores(const Problem&, Strip&);
/// exp(s - reference).
void weigh(const RowStates&, Strip&);
void weigh(const RowState&, Strip&);
/// p from the weights, and dS from p, g, kept and D.
void differentiate(const RowStates&, Strip&);
void differentiate(const RowState&, Strip&);
/// ds becomes dS0 = dS * slope.
void undo_softcap(Strip&);

}  // namespace flashproof
