// FlashAttention 2, forward and backward (Dao, 2307.08691, Algorithms 1 and 2; `line` below is a line of these).
//
// Forward, for each tile of rows, over its tiles of keys in ascending order, with m = -inf, l = 0, O = 0 at first:
//   S = Q K^T,  m' = max(m, rowmax S),  P = exp(S - m'),
//   l = exp(m - m') l + rowsum P,  O = exp(m - m') O + P V,  m = m'
//   at the end  O = O / l,  L = m + ln l
// Backward, for each tile of keys, over the tiles of rows, with D = rowsum(dO o O):
//   S = Q K^T,  P = exp(S - L),  dV += P^T dO,  dP = dO V^T,  dS = P o (dP - D),  dQ += dS K,  dK += dS^T Q
// Line 10 of Algorithm 1 prints diag(exp(m - m'))^-1 O, a misprint for diag(exp(m - m')) O. Line 9 of Algorithm 2 loads
// O and dQ too: O has served in D, and dQ is what line 15 loads. Tiles of which no row sees a key are passed over.
// A sink is a key with value 0 that every row has seen before its first tile: m = sink, l = 1.
#pragma once
#include "reference/head.h"

namespace flashproof {

struct TileSize {
  int64 rows = 64, keys = 64;
};

/// The running softmax of a tile of rows.
template <class Ops>
struct OnlineSoftmax {
  std::vector<typename Ops::Number> maximum;  ///< m, [rows]
  std::vector<typename Ops::RowSum> sum;      ///< l, [rows]
  Matrix<typename Ops::Number> accumulator;   ///< unnormalised O, [rows, dv]
};

/// State before the first tile (Algorithm 1, line 5). A part of the keys has no sink of its own: `with_sink` is false
/// there.
template <class Ops, class Number = typename Ops::Number>
OnlineSoftmax<Ops> start_rows(const Ops&, const Head<Number>& head, Span rows, bool with_sink) {
  OnlineSoftmax<Ops> state;
  const bool sink = with_sink && head.rule.has_sink;
  state.maximum.assign(rows.size(), sink ? head.rule.sink : Ops::minus_infinity());
  state.sum.assign(rows.size(), typename Ops::RowSum(sink ? 1 : 0));
  state.accumulator = Matrix<Number>(rows.size(), head.value_dim());
  return state;
}

/// exp(s_j - m) in place of n scores of a row, and with it the row's m and l (Algorithm 1, line 9). Returns
/// exp(m_before - m).
template <class Ops, class Number = typename Ops::Number>
FLASHPROOF_HD Number softmax_step(const Ops& ops, Number* s, int64 n, Number& maximum, typename Ops::RowSum& sum) {
  const Number before = maximum;
  maximum = ops.row_maximum(s, n, before);
  const Number reference = finite_reference(ops, maximum);
  const Number rescale = ops.exp(ops.correction(before, reference));
  for (int64 j = 0; j < n; ++j) s[j] = ops.exp(ops.exponent(s[j], reference));
  sum = ops.row_sum(s, n, sum * rescale);
  return rescale;
}

/// P of a tile in place of its scores, and with it m and l. Returns exp(m_before - m) of each row.
template <class Ops, class Number = typename Ops::Number>
std::vector<Number> add_to_softmax(const Ops& ops, const Head<Number>& head, Span rows, Span keys, Matrix<Number>& p,
                                   OnlineSoftmax<Ops>& state) {
  std::vector<Number> rescale(rows.size(), Number(1));
  ops.hold(Array::p, rows.size(), keys.size());
  ops.hold(Array::o, rows.size(), head.value_dim());
  for (const Array array : {Array::maximum, Array::sum}) ops.hold(array, rows.size(), 1);
  for (int64 r = 0; r < rows.size(); ++r) {
    rescale[r] = softmax_step(ops, p.row(r), keys.size(), state.maximum[r], state.sum[r]);
    drop_and_round(ops, head.rule, rows.begin + r, keys, p.row(r));
  }
  return rescale;
}

template <class Ops, class Number = typename Ops::Number>
void rescale_rows(const Ops& ops, const std::vector<Number>& rescale, OnlineSoftmax<Ops>& state) {
  Matrix<Number>& o = state.accumulator;
  for (int64 r = 0; r < o.rows; ++r) ops.rescale(o.row(r), o.columns, rescale[r]);
}

template <class Ops, class Number = typename Ops::Number>
void observe_rows(const Ops& ops, Span rows, Span keys, const std::vector<Number>& rescale,
                  const OnlineSoftmax<Ops>& state) {
  for (int64 r = 0; r < rows.size(); ++r) {
    const Number sum = ops.total(state.sum[r]);
    ops.observe({"tile", rows.begin + r, keys, state.maximum[r], sum, rescale[r], sum}, state.accumulator.row(r));
  }
}

/// One tile of keys (Algorithm 1, lines 7 to 10).
template <class Ops, class Number = typename Ops::Number>
void add_key_tile(const Ops& ops, const Head<Number>& head, Span rows, Span keys, OnlineSoftmax<Ops>& state) {
  ops.load(Array::k, "2307.08691 Algorithm 1, line 7", keys, head.k.columns);
  ops.load(Array::v, "2307.08691 Algorithm 1, line 7", keys, head.value_dim());
  Matrix<Number> p = score_tile(ops, head, rows, keys);                                 // line 8
  const std::vector<Number> rescale = add_to_softmax(ops, head, rows, keys, p, state);  // line 9
  rescale_rows(ops, rescale, state);                                                    // line 10
  ops.multiply_add(Array::o, state.accumulator.view(), p.view(), head.v.rows_between(keys.begin, keys.end));
  observe_rows(ops, rows, keys, rescale, state);
}

/// L of a row; -infinity where nothing was seen.
template <class Ops, class Number = typename Ops::Number>
FLASHPROOF_HD Number log_sum_exp(const Ops& ops, const Number& maximum, const Number& sum) {
  return sum == Number(0) ? Ops::minus_infinity() : Number(ops.lse(finite_reference(ops, maximum), ops.log(sum)));
}

/// O and L of the rows (Algorithm 1, lines 12 and 13).
template <class Ops, class Number = typename Ops::Number>
void finish_rows(const Ops& ops, const Head<Number>& head, Span rows, const OnlineSoftmax<Ops>& state,
                 HeadOutputs<Number>& out) {
  for (int64 r = 0; r < rows.size(); ++r) {
    const Number sum = ops.total(state.sum[r]);
    for (int64 c = 0; c < head.value_dim(); ++c)
      out.o.row(rows.begin + r)[c] =
          ops.round_output(ops.finish(state.accumulator.row(r)[c], sum, head.rule.value_factor));
    out.l[rows.begin + r] = log_sum_exp(ops, state.maximum[r], sum);
  }
}

/// O and L of rows whose accumulator is normalised already.
template <class Ops, class Number = typename Ops::Number>
void finish_normalised_rows(const Ops& ops, const Head<Number>& head, Span rows, const OnlineSoftmax<Ops>& state,
                            HeadOutputs<Number>& out) {
  for (int64 r = 0; r < rows.size(); ++r) {
    for (int64 c = 0; c < head.value_dim(); ++c)
      out.o.row(rows.begin + r)[c] = ops.round_output(state.accumulator.row(r)[c] * head.rule.value_factor);
    out.l[rows.begin + r] = log_sum_exp(ops, state.maximum[r], ops.total(state.sum[r]));
  }
}

/// O and L of one tile of rows (Algorithm 1, lines 4 to 15). K and V may have rows behind the last key, which nobody
/// sees: a machine that works on whole tiles has them.
template <class Ops, class Number = typename Ops::Number>
void attend_rows(const Ops& ops, const Head<Number>& head, Span rows, int64 tile_keys, HeadOutputs<Number>& out) {
  const Span seen = keys_of_rows(head.rule, rows);
  ops.load(Array::q, "2307.08691 Algorithm 1, line 4", rows, head.q.columns);
  OnlineSoftmax<Ops> state = start_rows(ops, head, rows, true);
  for (int64 j = seen.begin / tile_keys * tile_keys; j < seen.end; j += tile_keys)
    add_key_tile(ops, head, rows, tile_at(j, tile_keys, head.v.rows), state);
  finish_rows(ops, head, rows, state, out);
  ops.store(Array::o, "2307.08691 Algorithm 1, line 14", rows, head.value_dim());
  ops.store(Array::lse, "2307.08691 Algorithm 1, line 15", rows, 1);
}

template <class Ops, class Number = typename Ops::Number>
HeadOutputs<Number> flash2_forward(const Ops& ops, const Head<Number>& head, TileSize tile) {
  HeadOutputs<Number> out(head.seq_q(), head.value_dim());
  for (int64 i = 0; i < head.seq_q(); i += tile.rows)
    attend_rows(ops, head, tile_at(i, tile.rows, head.seq_q()), tile.keys, out);
  return out;
}

/// D (Algorithm 2, line 4).
template <class Ops, class Number = typename Ops::Number>
std::vector<Number> deltas_by_tile(const Ops& ops, const Head<Number>& head, int64 tile_rows, const Matrix<Number>& o) {
  std::vector<Number> delta(head.seq_q(), Number(0));
  for (int64 i = 0; i < head.seq_q(); i += tile_rows) {
    const Span rows = tile_at(i, tile_rows, head.seq_q());
    for (const Array array : {Array::d_o, Array::o})
      ops.load(array, "2307.08691 Algorithm 2, line 4", rows, head.value_dim());
    set_row_deltas(ops, head, o, rows, delta);
    ops.store(Array::delta, "2307.08691 Algorithm 2, line 4", rows, 1);
  }
  return delta;
}

/// Adds what one query head gives (Algorithm 2); o and l are the forward's outputs, as stored.
template <class Ops, class Number = typename Ops::Number>
void flash2_backward(const Ops& ops, const Head<Number>& head, TileSize tile, const Matrix<Number>& o,
                     const std::vector<Number>& l, HeadGradients<Number>& out) {
  const int64 d = head.q.columns, value_dim = head.value_dim();
  ops.store(Array::dq, "2307.08691 Algorithm 2, line 3", {0, head.seq_q()}, d);
  const std::vector<Number> delta = deltas_by_tile(ops, head, tile.rows, o);  // line 4
  for (int64 j = 0; j < head.seq_k(); j += tile.keys) {
    const Span keys = tile_at(j, tile.keys, head.seq_k());
    ops.load(Array::k, "2307.08691 Algorithm 2, line 6", keys, d);
    ops.load(Array::v, "2307.08691 Algorithm 2, line 6", keys, value_dim);
    for (int64 i = 0; i < head.seq_q(); i += tile.rows) {
      const Span rows = tile_at(i, tile.rows, head.seq_q());
      if (!sees_any_of(head.rule, rows, keys)) continue;
      ops.load(Array::q, "2307.08691 Algorithm 2, line 9", rows, d);
      ops.load(Array::d_o, "2307.08691 Algorithm 2, line 9", rows, value_dim);
      for (const Array array : {Array::lse, Array::delta}) ops.load(array, "2307.08691 Algorithm 2, line 9", rows, 1);
      ops.load(Array::dq, "2307.08691 Algorithm 2, line 15", rows, d);
      const GradientTile<Number> p_ds = gradient_tile(ops, head, rows, keys, l, delta, out.dbias);  // 10, 11, 13, 14
      add_gradient_tile(ops, head, rows, keys, p_ds, out);                                          // 12, 15, 16
      ops.store(Array::dq, "2307.08691 Algorithm 2, line 15", rows, d);
    }
    ops.store(Array::dk, "2307.08691 Algorithm 2, line 18", keys, d);
    ops.store(Array::dv, "2307.08691 Algorithm 2, line 18", keys, value_dim);
  }
  add_sink_gradient(ops, head.rule, l, delta, out.dsink);
}

}  // namespace flashproof
