// FlashAttention 2, forward and backward (Dao, 2307.08691, Algorithms 1 and 2).
//
// Forward, for each tile of rows, over its tiles of keys in ascending order, with m = -inf, l = 0, O = 0 at first:
//   S = Q K^T,  m' = max(m, rowmax S),  P = exp(S - m'),  l = exp(m - m') l + rowsum P,  O = exp(m - m') O + P V,  m = m'
//   at the end  O = O / l,  L = m + ln l
// Backward, for each tile of keys, over the tiles of rows, with D = rowsum(dO o O):
//   S = Q K^T,  P = exp(S - L),  dV += P^T dO,  dP = dO V^T,  dS = P o (dP - D),  dQ += dS K,  dK += dS^T Q
// A sink is a key with value 0 that every row has seen before its first tile: m = sink, l = 1.
#pragma once
#include "reference/head.h"

namespace flashproof {

struct TileSize {
  int64 rows = 64, keys = 64;
};

/// The running softmax of a tile of rows.
template <class Number>
struct OnlineSoftmax {
  std::vector<Number> maximum, sum;  ///< m and l, [rows]
  Matrix<Number> accumulator;        ///< unnormalised O, [rows, dv]
};

/// State before the first tile (Algorithm 1, line 5). A part of the keys has no sink of its own: `with_sink` is false there.
template <class Ops, class Number = typename Ops::Number>
OnlineSoftmax<Number> start_rows(const Ops&, const Head<Number>& head, Span rows, bool with_sink) {
  OnlineSoftmax<Number> state;
  const bool sink = with_sink && head.rule.has_sink;
  state.maximum.assign(rows.size(), sink ? head.rule.sink : Ops::minus_infinity());
  state.sum.assign(rows.size(), Number(sink ? 1 : 0));
  state.accumulator = Matrix<Number>(rows.size(), head.value_dim());
  return state;
}

/// One tile of keys (Algorithm 1, lines 8 to 10).
template <class Ops, class Number = typename Ops::Number>
void add_key_tile(const Ops& ops, const Head<Number>& head, Span rows, Span keys, OnlineSoftmax<Number>& state) {
  Matrix<Number> p = score_tile(ops, head, rows, keys);
  std::vector<Number> rescale(rows.size(), Number(1));
  for (int64 r = 0; r < rows.size(); ++r) {
    const Number maximum = ops.row_maximum(p.row(r), keys.size(), state.maximum[r]);
    const Number reference = finite_reference(ops, maximum);
    rescale[r] = ops.exp(state.maximum[r] - reference);
    for (int64 j = 0; j < keys.size(); ++j) p.row(r)[j] = ops.exp(p.row(r)[j] - reference);
    state.sum[r] = ops.row_sum(p.row(r), keys.size(), state.sum[r] * rescale[r]);
    ops.rescale(state.accumulator.row(r), head.value_dim(), rescale[r]);
    state.maximum[r] = maximum;
    drop_and_round(ops, head.rule, rows.begin + r, keys, p.row(r));
  }
  ops.multiply_add(state.accumulator.view(), p.view(), head.v.rows_between(keys.begin, keys.end));
  for (int64 r = 0; r < rows.size(); ++r)
    ops.observe({"tile", rows.begin + r, keys, state.maximum[r], state.sum[r], rescale[r], state.sum[r]},
                state.accumulator.row(r));
}

/// L of a row; -infinity where nothing was seen.
template <class Ops, class Number = typename Ops::Number>
Number log_sum_exp(const Ops& ops, const Number& maximum, const Number& sum) {
  return sum == Number(0) ? Ops::minus_infinity() : Number(finite_reference(ops, maximum) + ops.log(sum));
}

/// O and L of the rows (Algorithm 1, lines 12 to 14).
template <class Ops, class Number = typename Ops::Number>
void finish_rows(const Ops& ops, const Head<Number>& head, Span rows, const OnlineSoftmax<Number>& state,
                 HeadOutputs<Number>& out) {
  for (int64 r = 0; r < rows.size(); ++r) {
    const Number& sum = state.sum[r];
    for (int64 c = 0; c < head.value_dim(); ++c)
      out.o.row(rows.begin + r)[c] =
          sum == Number(0) ? Number(0)
                           : ops.round_output(ops.finish(state.accumulator.row(r)[c], sum, head.rule.value_factor));
    out.l[rows.begin + r] = log_sum_exp(ops, state.maximum[r], sum);
  }
}

template <class Ops, class Number = typename Ops::Number>
HeadOutputs<Number> flash2_forward(const Ops& ops, const Head<Number>& head, TileSize tile) {
  HeadOutputs<Number> out(head.seq_q(), head.value_dim());
  for (int64 i = 0; i < head.seq_q(); i += tile.rows) {
    const Span rows = tile_at(i, tile.rows, head.seq_q());
    const Span seen = keys_of_rows(head.rule, rows);
    OnlineSoftmax<Number> state = start_rows(ops, head, rows, true);
    for (int64 j = seen.begin / tile.keys * tile.keys; j < seen.end; j += tile.keys)
      add_key_tile(ops, head, rows, tile_at(j, tile.keys, head.seq_k()), state);
    finish_rows(ops, head, rows, state, out);
  }
  return out;
}

/// Adds what one query head gives (Algorithm 2); o and l are the forward's outputs, as stored.
template <class Ops, class Number = typename Ops::Number>
void flash2_backward(const Ops& ops, const Head<Number>& head, TileSize tile, const Matrix<Number>& o,
                     const std::vector<Number>& l, HeadGradients<Number>& out) {
  const std::vector<Number> delta = row_deltas(ops, head, o);
  for (int64 j = 0; j < head.seq_k(); j += tile.keys) {
    const Span keys = tile_at(j, tile.keys, head.seq_k());
    for (int64 i = 0; i < head.seq_q(); i += tile.rows) {
      const Span rows = tile_at(i, tile.rows, head.seq_q());
      const Span seen = keys_of_rows(head.rule, rows);
      if (seen.end <= keys.begin || keys.end <= seen.begin) continue;
      add_gradient_tile(ops, head, rows, keys, gradient_tile(ops, head, rows, keys, l, delta, out.dbias), out);
    }
  }
  add_sink_gradient(ops, head.rule, l, delta, out.dsink);
}

}  // namespace flashproof
