// One query head of one batch entry as the algorithms see it, and the one place where masks and modifiers enter them.
//
//   score   s = cap tanh(scale x / cap) - slope |i + off - j| + bias_ij for x = <q_i, k_j>; -infinity where j is hidden
//   values  O = factor sum_j p_ij keep_ij v_j,  factor = t_v / (1 - rate)
//   dS      p (factor keep <dO_i, v_j> - D_i), times 1 - (s1 / cap)^2 for the gradient of scale x
// (reference/attention.h has the formulas they come from.)
#pragma once
#include <vector>

#include "reference/philox.h"
#include "reference/tile_ops.h"
#include "reference/visible.h"

namespace flashproof {

/// Biases is an array of doubles that has empty() and [].
template <class Number, class Biases = std::vector<double>>
struct ScoreRule {
  Mask mask;
  int64 seq_q = 0, seq_k = 0;
  Number scale = Number(1);    ///< scale t_q t_k
  Number softcap = Number(0);  ///< 0: off
  Number slope = Number(0);    ///< 0: no ALiBi
  /// Empty: none; else element i row_stride + j key_stride, a broadcast axis having stride 0.
  Biases bias = {};
  int64 bias_row_stride = 0, bias_key_stride = 0;
  bool has_sink = false;
  Number sink = Number(0);
  bool has_dropout = false;
  uint64 dropout_seed = 0;
  uint32 dropout_words = 0;         ///< dropout_threshold(rate)
  int64 b = 0, h = 0;               ///< dropout counts by entry and query head
  Number value_factor = Number(1);  ///< t_v / (1 - rate)
};

template <class Number>
struct Head {
  ScoreRule<Number> rule;
  Matrix<Number> q, d_o;    ///< [Sq, d], [Sq, dv]; rows that see no key hold zeros (see clear_unseeing_rows)
  Matrix<Number> k, v;      ///< [Sk, d], [Sk, dv]
  Matrix<Number> k_t, v_t;  ///< their transposes
  int64 seq_q() const { return rule.seq_q; }
  int64 seq_k() const { return rule.seq_k; }
  int64 value_dim() const { return v_t.rows; }
};

template <class Number>
Matrix<Number> transpose(const Matrix<Number>& a) {
  Matrix<Number> result(a.columns, a.rows);
  for (int64 i = 0; i < a.rows; ++i)
    for (int64 c = 0; c < a.columns; ++c) result.row(c)[i] = a.row(i)[c];
  return result;
}

template <class Number, class Biases>
FLASHPROOF_HD double bias_of(const ScoreRule<Number, Biases>& rule, int64 i, int64 j) {
  return rule.bias.empty() ? 0 : rule.bias[i * rule.bias_row_stride + j * rule.bias_key_stride];
}

/// Whether row i attends to key j.
template <class Number, class Biases>
FLASHPROOF_HD bool sees(const ScoreRule<Number, Biases>& rule, int64 i, int64 j) {
  return visible(rule.mask, rule.seq_q, rule.seq_k, i, j) && bias_of(rule, i, j) != -__builtin_huge_val();
}

template <class Number>
bool sees_any(const ScoreRule<Number>& rule, int64 i) {
  const KeyRange keys = visible_keys(rule.mask, rule.seq_q, rule.seq_k, i);
  for (int64 j = keys.begin; j < keys.end; ++j)
    if (sees(rule, i, j)) return true;
  return false;
}

/// Smallest interval that holds the keys which the mask shows to any of the rows.
template <class Number, class Biases>
FLASHPROOF_HD Span keys_of_rows(const ScoreRule<Number, Biases>& rule, Span rows) {
  Span all{0, 0};
  for (int64 i = rows.begin; i < rows.end; ++i) {
    const KeyRange keys = visible_keys(rule.mask, rule.seq_q, rule.seq_k, i);
    if (keys.begin >= keys.end) continue;
    if (all.size() == 0 || keys.begin < all.begin) all.begin = keys.begin;
    if (keys.end > all.end) all.end = keys.end;
  }
  return all;
}

/// Whether the mask may show a key of the tile to a row of it: what is passed over else.
template <class Number>
bool sees_any_of(const ScoreRule<Number>& rule, Span rows, Span keys) {
  const Span seen = keys_of_rows(rule, rows);
  return seen.begin < keys.end && keys.begin < seen.end;
}

/// A row that sees no key has gradients 0 whatever its q and dO hold, NaN included: a product with p = 0 would not do
/// that.
template <class Number>
void clear_unseeing_rows(Head<Number>& head) {
  for (int64 i = 0; i < head.seq_q(); ++i) {
    if (sees_any(head.rule, i)) continue;
    for (int64 c = 0; c < head.q.columns; ++c) head.q.row(i)[c] = Number(0);
    for (int64 c = 0; c < head.d_o.columns; ++c) head.d_o.row(i)[c] = Number(0);
  }
}

template <class Number, class Biases>
FLASHPROOF_HD bool keeps(const ScoreRule<Number, Biases>& rule, int64 i, int64 j) {
  return !rule.has_dropout || dropout_keeps(rule.dropout_seed, rule.dropout_words, rule.b, rule.h, i, j);
}

/// s_ij from <q_i, k_j>.
template <class Ops, class Number, class Biases>
FLASHPROOF_HD Number score_of(const Ops& ops, const ScoreRule<Number, Biases>& rule, int64 i, int64 j,
                              const Number& product) {
  Number s = rule.scale * product;
  if (rule.softcap != Number(0)) s = rule.softcap * ops.tanh_ratio(s, rule.softcap);
  if (rule.slope != Number(0)) {
    const int64 distance = i + alignment_offset(rule.mask, rule.seq_q, rule.seq_k) - j;
    s = s - rule.slope * Number(double(distance < 0 ? -distance : distance));
  }
  if (!rule.bias.empty()) s = s + Number(bias_of(rule, i, j));
  return s;
}

/// ds / d(scale x) = 1 - (s1 / cap)^2.
template <class Ops, class Number = typename Ops::Number>
Number score_slope(const Ops& ops, const ScoreRule<Number>& rule, const Number& product) {
  if (rule.softcap == Number(0)) return Number(1);
  const Number ratio = ops.tanh_ratio(rule.scale * product, rule.softcap);
  return Number(1) - ratio * ratio;
}

/// S of a tile, -infinity where the row does not see the key.
template <class Ops, class Number = typename Ops::Number>
Matrix<Number> score_tile(const Ops& ops, const Head<Number>& head, Span rows, Span keys) {
  Matrix<Number> s(rows.size(), keys.size());
  ops.hold(Array::s, rows.size(), keys.size());
  ops.multiply_add(Array::s, s.view(), head.q.rows_between(rows.begin, rows.end),
                   head.k_t.columns_between(keys.begin, keys.end));
  for (int64 i = rows.begin; i < rows.end; ++i)
    for (int64 j = keys.begin; j < keys.end; ++j) {
      Number& s_ij = s.row(i - rows.begin)[j - keys.begin];
      s_ij = sees(head.rule, i, j) ? score_of(ops, head.rule, i, j, s_ij) : Ops::minus_infinity();
    }
  return s;
}

/// P of a tile as it enters P V: dropped where dropout says so, rounded. Dropped is times 0, not 0, since a row's NaN
/// must reach O even if all its keys are dropped.
template <class Ops, class Number, class Biases>
FLASHPROOF_HD void drop_and_round(const Ops& ops, const ScoreRule<Number, Biases>& rule, int64 i, Span keys,
                                  Number* p) {
  for (int64 j = keys.begin; j < keys.end; ++j)
    p[j - keys.begin] = keeps(rule, i, j) ? ops.round_p(p[j - keys.begin]) : Number(p[j - keys.begin] * Number(0));
}

/// What exp is taken relative to: the maximum, or 0 where no key was seen, since -inf - -inf is NaN.
template <class Ops, class Number = typename Ops::Number>
FLASHPROOF_HD Number finite_reference(const Ops&, const Number& maximum) {
  return maximum == Ops::minus_infinity() ? Number(0) : maximum;
}

/// O [Sq, dv] and L [Sq] of one head.
template <class Number>
struct HeadOutputs {
  Matrix<Number> o;
  std::vector<Number> l;
  HeadOutputs(int64 seq_q, int64 value_dim) : o(seq_q, value_dim), l(seq_q, Number(0)) {}
};

/// Gradients while they are being summed. dq is of one query head; dk and dv collect the heads of a group; dbias (with
/// the strides of the rule's bias) and dsink whatever shares them. Scale and value factor are applied at the end.
template <class Number>
struct HeadGradients {
  Matrix<Number> dq, dk, dv;
  std::vector<Number> dbias;
  Number dsink = Number(0);
};

/// D_i = <dO_i, O_i> of the rows, for the O given, as stored.
template <class Ops, class Number = typename Ops::Number>
void set_row_deltas(const Ops& ops, const Head<Number>& head, const Matrix<Number>& o, Span rows,
                    std::vector<Number>& delta) {
  std::vector<Number> products(head.value_dim(), Number(0));
  for (int64 i = rows.begin; i < rows.end; ++i) {
    for (int64 c = 0; c < head.value_dim(); ++c) products[c] = head.d_o.row(i)[c] * o.row(i)[c];
    delta[i] = ops.row_sum(products.data(), head.value_dim(), Number(0));
  }
}

/// D of every row.
template <class Ops, class Number = typename Ops::Number>
std::vector<Number> row_deltas(const Ops& ops, const Head<Number>& head, const Matrix<Number>& o) {
  std::vector<Number> delta(head.seq_q(), Number(0));
  set_row_deltas(ops, head, o, {0, head.seq_q()}, delta);
  return delta;
}

/// P (dropped, rounded) and dS0 (rounded) of a tile, recomputed from the scores and L; dbias collects dS before
/// rounding.
template <class Number>
struct GradientTile {
  Matrix<Number> p, ds;
};
template <class Ops, class Number = typename Ops::Number>
GradientTile<Number> gradient_tile(const Ops& ops, const Head<Number>& head, Span rows, Span keys,
                                   const std::vector<Number>& l, const std::vector<Number>& delta,
                                   std::vector<Number>& dbias) {
  const ScoreRule<Number>& rule = head.rule;
  GradientTile<Number> tile{{rows.size(), keys.size()}, {rows.size(), keys.size()}};
  for (const Array array : {Array::s, Array::p, Array::dp, Array::ds}) ops.hold(array, rows.size(), keys.size());
  ops.multiply_add(Array::s, tile.p.view(), head.q.rows_between(rows.begin, rows.end),
                   head.k_t.columns_between(keys.begin, keys.end));
  ops.multiply_add(Array::dp, tile.ds.view(), head.d_o.rows_between(rows.begin, rows.end),
                   head.v_t.columns_between(keys.begin, keys.end));
  for (int64 i = rows.begin; i < rows.end; ++i)
    for (int64 j = keys.begin; j < keys.end; ++j) {
      Number& p = tile.p.row(i - rows.begin)[j - keys.begin];
      Number& ds = tile.ds.row(i - rows.begin)[j - keys.begin];
      if (!sees(rule, i, j)) {
        p = ds = Number(0);
        continue;
      }
      const Number product = p;
      p = ops.exp(ops.exponent(score_of(ops, rule, i, j, product), l[i]));
      const bool kept = keeps(rule, i, j);
      const Number dp = kept ? Number(ds * rule.value_factor) : Number(0);
      ds = p * (dp - delta[i]);
      if (!dbias.empty()) {
        Number& sum = dbias[i * rule.bias_row_stride + j * rule.bias_key_stride];
        sum = sum + ds;
      }
      ds = ops.round_ds(ds * score_slope(ops, rule, product));
      p = kept ? ops.round_ds(p) : Number(0);
    }
  return tile;
}

/// dV += P^T dO, dK += dS^T Q, dQ += dS K for one tile.
template <class Ops, class Number = typename Ops::Number>
void add_gradient_tile(const Ops& ops, const Head<Number>& head, Span rows, Span keys, const GradientTile<Number>& tile,
                       HeadGradients<Number>& out) {
  ops.hold(Array::dk, keys.size(), head.q.columns);
  ops.hold(Array::dv, keys.size(), head.value_dim());
  ops.multiply_add(Array::dv, out.dv.rows_between(keys.begin, keys.end), transposed(tile.p.view()),
                   head.d_o.rows_between(rows.begin, rows.end));
  ops.multiply_add(Array::dk, out.dk.rows_between(keys.begin, keys.end), transposed(tile.ds.view()),
                   head.q.rows_between(rows.begin, rows.end));
  ops.multiply_add(Array::dq, out.dq.rows_between(rows.begin, rows.end), tile.ds.view(),
                   head.k.rows_between(keys.begin, keys.end));
}

/// dsink -= sum_i exp(sink - L_i) D_i.
template <class Ops, class Number = typename Ops::Number>
void add_sink_gradient(const Ops& ops, const ScoreRule<Number>& rule, const std::vector<Number>& l,
                       const std::vector<Number>& delta, Number& dsink) {
  if (!rule.has_sink) return;
  for (int64 i = 0; i < rule.seq_q; ++i) dsink = dsink - ops.exp(ops.exponent(rule.sink, l[i])) * delta[i];
}

/// A sum of products times its factor, rounded to the output format: dQ and dK with the scale, dV with the value
/// factor.
template <class Ops, class Number = typename Ops::Number>
void finish_gradient(const Ops& ops, Matrix<Number>& gradient, const Number& factor) {
  for (Number& x : gradient.data) x = ops.round_output(x * factor);
}

}  // namespace flashproof
