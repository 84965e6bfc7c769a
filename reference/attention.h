// Exact attention, forward and backward, generic in the number type: the formulas that every oracle follows, and no
// more.
//
// For entry b, row i, query head h, kv head h / (H / Hk), over the visible keys j, in the arithmetic of T on the
// encoded inputs:
//   s0 = scale t_q t_k <q_i, k_j>          s1 = cap tanh(s0 / cap) or s0
//   s  = s1 - slope |i + off - j| + bias   L  = ln(sum_j exp(s) [+ exp(sink)])      p = exp(s - L)
//   z  = keep / (1 - rate)                 O  = t_v sum_j p z v_j         (Vaswani et al. 1706.03762, equation 1)
//   dV_j = t_v sum_i p z dO_i              g  = t_v <dO_i, v_j>                      D = <dO_i, O_i>
//   dS = p (z g - D)                       dS0 = dS (1 - (s1/cap)^2)                 dbias = dS over broadcast axes
//   dQ_i = scale t_q t_k sum_j dS0 k_j     dK_j = scale t_q t_k sum_i dS0 q_i        dsink = - sum exp(sink - L) D
//
// T needs + - * /, construction from double, and exp, log, tanh found by argument-dependent lookup; nothing branches on
// a value of type T, so intervals and numbers with running error bounds do as well as real ones. Sums run over
// ascending j, i, h. Inputs must be finite (a bias may be -infinity).
#pragma once
#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

#include "reference/inputs.h"

namespace flashproof {

/// <a_row, b_row> of two [rows, n] tensors.
template <class T>
T dot(const Tensor& a, int64_t a_row, const Tensor& b, int64_t b_row, int64_t n) {
  T sum(0.0);
  for (int64_t c = 0; c < n; ++c) sum = sum + T(a.at(a_row * n + c)) * T(b.at(b_row * n + c));
  return sum;
}

/// Position of one query head in the tensors: flat row of query i is (q_begin + i) H + h, of key j (k_begin + j) Hk +
/// kv_head.
struct HeadIndex {
  int64_t b, h, kv_head, heads, kv_heads, q_begin, k_begin, seq_q, seq_k;
  int64_t query_row(int64_t i) const { return (q_begin + i) * heads + h; }
  int64_t key_row(int64_t j) const { return (k_begin + j) * kv_heads + kv_head; }
};
inline HeadIndex head_index(const Inputs& in, int64_t b, int64_t h) {
  const Problem& p = in.problem;
  return {b,
          h,
          h / (p.heads / p.kv_heads),
          p.heads,
          p.kv_heads,
          in.packing.q_begin[b],
          in.packing.k_begin[b],
          in.packing.seq_q(b),
          in.packing.seq_k(b)};
}

/// scale t_q t_k.
template <class T>
T score_scale(const Inputs& in, const HeadIndex& at) {
  const int64_t pair = at.b * at.kv_heads + at.kv_head;
  return T(scale_of(in.problem)) * T(in.q_descale[pair]) * T(in.k_descale[pair]);
}
/// t_v.
template <class T>
T value_scale(const Inputs& in, const HeadIndex& at) {
  return T(in.v_descale[at.b * at.kv_heads + at.kv_head]);
}
/// z_ij.
template <class T>
T dropout_factor(const Inputs& in, const HeadIndex& at, int64_t i, int64_t j) {
  if (!in.problem.dropout) return T(1.0);
  if (!keeps(in.problem, at.b, at.h, i, j)) return T(0.0);
  return T(1.0) / (T(1.0) - T(in.problem.dropout->rate));
}

/// s0_ij.
template <class T>
T scaled_product(const Inputs& in, const HeadIndex& at, int64_t i, int64_t j) {
  return score_scale<T>(in, at) * dot<T>(in.q, at.query_row(i), in.k, at.key_row(j), in.problem.head_dim);
}
/// s from s1: ALiBi and bias.
template <class T>
T shifted(const Inputs& in, const HeadIndex& at, int64_t i, int64_t j, T s) {
  const Problem& p = in.problem;
  if (p.alibi != Alibi::none) {
    const int64_t distance = std::abs(i + alignment_offset(p.mask, at.seq_q, at.seq_k) - j);
    s = s - T(in.slopes[at.b * p.heads + at.h]) * T(double(distance));
  }
  if (p.bias) s = s + T(bias_at(in, at.b, at.h, i, j));
  return s;
}

/// s_ij, and ds_ij / ds0_ij = 1 - (s1/cap)^2.
template <class T>
struct Score {
  T s, slope;
};
template <class T>
Score<T> score(const Inputs& in, const HeadIndex& at, int64_t i, int64_t j) {
  using std::tanh;
  const T s0 = scaled_product<T>(in, at, i, j), cap = T(in.problem.softcap);
  if (in.problem.softcap == 0) return {shifted<T>(in, at, i, j, s0), T(1.0)};
  const T ratio = tanh(s0 / cap);
  return {shifted<T>(in, at, i, j, cap * ratio), T(1.0) - ratio * ratio};
}

/// The softmax of one row. `keys` are those it sees, in ascending order; s, slope, p and z go with them.
template <class T>
struct Row {
  HeadIndex at;
  int64_t i = 0;
  std::vector<int64_t> keys;
  std::vector<Score<T>> scores;
  std::vector<T> p, z;
  bool l_is_minus_infinity = false;  ///< no key and no sink; l is then 0 and means nothing
  T l{0.0}, sink_p{0.0};             ///< L_i, and exp(sink - L_i)
};

/// A number near the largest score of the row, from plain double. Any finite number gives the same exact result; this
/// one keeps exp in range.
inline double reference_point(const Inputs& in, const HeadIndex& at, int64_t i) {
  double largest = in.problem.sink ? double(in.sinks[at.h]) : -std::numeric_limits<double>::infinity();
  for (int64_t j = 0; j < at.seq_k; ++j)
    if (sees(in, at.b, at.h, i, j)) largest = std::fmax(largest, score<double>(in, at, i, j).s);
  return std::isfinite(largest) ? largest : 0;
}

/// Row (b, h, i) with exp taken relative to `reference`: L = reference + ln sum exp(s - reference).
template <class T>
Row<T> softmax_row(const Inputs& in, int64_t b, int64_t h, int64_t i, double reference) {
  using std::exp;
  using std::log;
  Row<T> row{.at = head_index(in, b, h), .i = i, .keys = {}, .scores = {}, .p = {}, .z = {}};
  T sum(0.0);
  if (in.problem.sink) {
    row.sink_p = exp(T(in.sinks[h]) - T(reference));
    sum = row.sink_p;
  }
  for (int64_t j = 0; j < row.at.seq_k; ++j) {
    if (!sees(in, b, h, i, j)) continue;
    row.keys.push_back(j);
    row.scores.push_back(score<T>(in, row.at, i, j));
    row.z.push_back(dropout_factor<T>(in, row.at, i, j));
    row.p.push_back(exp(row.scores.back().s - T(reference)));
    sum = sum + row.p.back();
  }
  row.l_is_minus_infinity = row.keys.empty() && !in.problem.sink;
  if (row.l_is_minus_infinity) return row;
  row.l = T(reference) + log(sum);
  row.sink_p = row.sink_p / sum;
  for (T& p : row.p) p = p / sum;
  return row;
}
template <class T>
Row<T> softmax_row(const Inputs& in, int64_t b, int64_t h, int64_t i) {
  return softmax_row<T>(in, b, h, i, reference_point(in, head_index(in, b, h), i));
}

/// O_ic.
template <class T>
T output(const Inputs& in, const Row<T>& row, int64_t c) {
  const int64_t dv = in.problem.value_dim;
  T sum(0.0);
  for (size_t n = 0; n < row.keys.size(); ++n)
    sum = sum + row.p[n] * row.z[n] * T(in.v.at(row.at.key_row(row.keys[n]) * dv + c));
  return value_scale<T>(in, row.at) * sum;
}

/// D_i = <dO_i, O_i>; 0 for a row without keys, whatever dO holds.
template <class T>
T row_delta(const Inputs& in, const Row<T>& row) {
  T sum(0.0);
  if (row.keys.empty()) return sum;
  const int64_t dv = in.problem.value_dim;
  for (int64_t c = 0; c < dv; ++c) sum = sum + T(in.d_o.at(row.at.query_row(row.i) * dv + c)) * output(in, row, c);
  return sum;
}

/// dS_ij for the row's keys, in their order; `delta` is D_i.
template <class T>
std::vector<T> score_gradients(const Inputs& in, const Row<T>& row, const T& delta) {
  const T t_v = value_scale<T>(in, row.at);
  std::vector<T> ds;
  for (size_t n = 0; n < row.keys.size(); ++n) {
    const T g = t_v * dot<T>(in.d_o, row.at.query_row(row.i), in.v, row.at.key_row(row.keys[n]), in.problem.value_dim);
    ds.push_back(row.p[n] * (row.z[n] * g - delta));
  }
  return ds;
}

/// What row i adds: to dQ_ic; to dK and dV of its key number n, channel c; to dsink_h. dQ, dsink are sums over one row,
/// dK, dV over all rows of all query heads of the group.
template <class T>
T query_gradient(const Inputs& in, const Row<T>& row, const std::vector<T>& ds, int64_t c) {
  T sum(0.0);
  for (size_t n = 0; n < row.keys.size(); ++n)
    sum = sum + ds[n] * row.scores[n].slope * T(in.k.at(row.at.key_row(row.keys[n]) * in.problem.head_dim + c));
  return score_scale<T>(in, row.at) * sum;
}
template <class T>
T key_gradient_term(const Inputs& in, const Row<T>& row, const std::vector<T>& ds, size_t n, int64_t c) {
  return score_scale<T>(in, row.at) * ds[n] * row.scores[n].slope *
         T(in.q.at(row.at.query_row(row.i) * in.problem.head_dim + c));
}
template <class T>
T value_gradient_term(const Inputs& in, const Row<T>& row, size_t n, int64_t c) {
  return value_scale<T>(in, row.at) * row.p[n] * row.z[n] *
         T(in.d_o.at(row.at.query_row(row.i) * in.problem.value_dim + c));
}
template <class T>
T sink_gradient_term(const Row<T>& row, const T& delta) {
  return T(0.0) - row.sink_p * delta;
}

/// Flat index in the bias tensor of (b, h, i, j), broadcast axes left out.
inline int64_t bias_index(const Inputs& in, int64_t b, int64_t h, int64_t i, int64_t j) {
  const std::vector<int64_t>& shape = in.bias.shape;
  const int64_t position[4] = {b, h, i, j};
  int64_t index = 0;
  for (int axis = 0; axis < 4; ++axis) index = index * shape[axis] + (shape[axis] == 1 ? 0 : position[axis]);
  return index;
}

/// All outputs, flat like the tensors of Outputs; gradients only for a problem that has a backward.
template <class T>
struct ExactOutputs {
  std::vector<T> o, l, dq, dk, dv, dsink, dbias;
  std::vector<bool> l_is_minus_infinity;  ///< by row, [total_q, H]
};

template <class T>
void add_row_gradients(const Inputs& in, const Row<T>& row, ExactOutputs<T>& out) {
  const Problem& p = in.problem;
  const T delta = row_delta(in, row);
  const std::vector<T> ds = score_gradients(in, row, delta);
  for (int64_t c = 0; c < p.head_dim; ++c)
    out.dq[row.at.query_row(row.i) * p.head_dim + c] = query_gradient(in, row, ds, c);
  for (size_t n = 0; n < row.keys.size(); ++n) {
    const int64_t key_row = row.at.key_row(row.keys[n]);
    for (int64_t c = 0; c < p.head_dim; ++c) {
      T& sum = out.dk[key_row * p.head_dim + c];
      sum = sum + key_gradient_term(in, row, ds, n, c);
    }
    for (int64_t c = 0; c < p.value_dim; ++c) {
      T& sum = out.dv[key_row * p.value_dim + c];
      sum = sum + value_gradient_term(in, row, n, c);
    }
    if (p.bias) {
      T& sum = out.dbias[bias_index(in, row.at.b, row.at.h, row.i, row.keys[n])];
      sum = sum + ds[n];
    }
  }
  if (p.sink) out.dsink[row.at.h] = out.dsink[row.at.h] + sink_gradient_term(row, delta);
}

/// Time O(rows keys d dv) with D_i evaluated once a row; meant for small problems and as the text that others are held
/// to.
template <class T>
ExactOutputs<T> exact_attention(const Inputs& in) {
  const Problem& p = in.problem;
  const bool backward = has_backward(p);
  ExactOutputs<T> out;
  out.o.assign(in.packing.total_q() * p.heads * p.value_dim, T(0.0));
  out.l.assign(in.packing.total_q() * p.heads, T(0.0));
  out.l_is_minus_infinity.assign(out.l.size(), false);
  if (backward) {
    out.dq.assign(in.q.size(), T(0.0));
    out.dk.assign(in.k.size(), T(0.0));
    out.dv.assign(in.v.size(), T(0.0));
    if (p.sink) out.dsink.assign(p.heads, T(0.0));
    if (p.bias) out.dbias.assign(in.bias.size(), T(0.0));
  }
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t h = 0; h < p.heads; ++h)
      for (int64_t i = 0; i < in.packing.seq_q(b); ++i) {
        const Row<T> row = softmax_row<T>(in, b, h, i);
        const int64_t query_row = row.at.query_row(i);
        out.l[query_row] = row.l;
        out.l_is_minus_infinity[query_row] = row.l_is_minus_infinity;
        for (int64_t c = 0; c < p.value_dim; ++c) out.o[query_row * p.value_dim + c] = output(in, row, c);
        if (backward) add_row_gradients(in, row, out);
      }
  return out;
}

}  // namespace flashproof
