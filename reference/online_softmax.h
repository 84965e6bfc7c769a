// Attention by online softmax (Milakov and Gimelshein, 1805.02867): the normaliser in one pass, the output in a second.
//
// Pass 1 over the tiles of keys (Algorithm 3, with several elements a step as in section 3.1):
//   m' = max(m, max_j s_j),  d = d exp(m - m') + sum_j exp(s_j - m')
// Pass 2 (Algorithm 3, lines 7 to 9):  y_j = exp(s_j - m) / d,  O += y V
#pragma once
#include "reference/flash2.h"

namespace flashproof {

template <class Ops, class Number = typename Ops::Number>
void add_to_normaliser(const Ops& ops, const Head<Number>& head, Span rows, Span keys, OnlineSoftmax<Ops>& state) {
  Matrix<Number> s = score_tile(ops, head, rows, keys);
  for (int64 r = 0; r < rows.size(); ++r) {
    const Number rescale = softmax_step(ops, s.row(r), keys.size(), state.maximum[r], state.sum[r]);
    ops.observe({"normaliser", rows.begin + r, keys, state.maximum[r], state.sum[r], rescale, Number(1)}, nullptr);
  }
}

template <class Ops, class Number = typename Ops::Number>
void add_normalised_tile(const Ops& ops, const Head<Number>& head, Span rows, Span keys, OnlineSoftmax<Ops>& state) {
  Matrix<Number> y = score_tile(ops, head, rows, keys);
  const Number one(1);
  for (int64 r = 0; r < rows.size(); ++r) {
    const Number reference = finite_reference(ops, state.maximum[r]);
    for (int64 j = 0; j < keys.size(); ++j)
      y.row(r)[j] = ops.finish(ops.exp(ops.exponent(y.row(r)[j], reference)), state.sum[r], one);
    drop_and_round(ops, head.rule, rows.begin + r, keys, y.row(r));
  }
  ops.multiply_add(Array::o, state.accumulator.view(), y.view(), head.v.rows_between(keys.begin, keys.end));
  for (int64 r = 0; r < rows.size(); ++r)
    ops.observe({"output", rows.begin + r, keys, state.maximum[r], state.sum[r], one, one}, state.accumulator.row(r));
}

template <class Ops, class Number = typename Ops::Number>
HeadOutputs<Number> online_softmax_forward(const Ops& ops, const Head<Number>& head, TileSize tile) {
  HeadOutputs<Number> out(head.seq_q(), head.value_dim());
  for (int64 i = 0; i < head.seq_q(); i += tile.rows) {
    const Span rows = tile_at(i, tile.rows, head.seq_q());
    OnlineSoftmax<Ops> state = start_rows(ops, head, rows, true);
    for (int64 j = 0; j < head.seq_k(); j += tile.keys)
      add_to_normaliser(ops, head, rows, tile_at(j, tile.keys, head.seq_k()), state);
    for (int64 j = 0; j < head.seq_k(); j += tile.keys)
      add_normalised_tile(ops, head, rows, tile_at(j, tile.keys, head.seq_k()), state);
    finish_normalised_rows(ops, head, rows, state, out);
  }
  return out;
}

}  // namespace flashproof
