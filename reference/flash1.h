// FlashAttention 1, forward and backward (Dao, Fu, Ermon, Rudra, Re, 2205.14135, Algorithms 1 and 4; `line` below is a
// line of these; masks and dropout enter as in its Algorithm 2).
//
// Forward, for each tile of keys j, over the tiles of rows i, with O = 0, l = 0, m = -inf in device memory at first:
//   S = Q_i K_j^T,  m~ = rowmax S,  P~ = exp(S - m~),  l~ = rowsum P~
//   m' = max(m, m~),  l' = e^{m - m'} l + e^{m~ - m'} l~
//   O = (l e^{m - m'} O + e^{m~ - m'} P~ V_j) / l',  l = l',  m = m'
// O, l and m of a tile of rows travel from device memory and back for every tile of keys, and O is normalised each
// time: after tile j it is attention to the keys so far. Here O stays unrounded between the tiles.
// Backward, for each tile of keys, over the tiles of rows:
//   S = Q_i K_j^T,  P = exp(S - m) / l,  dV += P^T dO,  dP = dO V^T,  D = rowsum(dO o O),  dS = P o (dP - D)
//   dQ += dS K,  dK += dS^T Q
// P is exp(S - L), L = m + ln l being what the forward leaves; `load` is told of l and m, as in line 10. Tiles of which
// no row sees a key are passed over. A sink is a key with value 0 seen at first: m = sink, l = 1.
#pragma once
#include "reference/rabe_staats.h"

namespace flashproof {

/// m, l and O (normalised) of row i after a tile of keys with the summary m~, l~, P~ V in row r of `tile` (lines 11 to
/// 13).
template <class Ops, class Number = typename Ops::Number>
Number add_summary(const Ops& ops, OnlineSoftmax<Ops>& tile, int64 r, int64 i, OnlineSoftmax<Ops>& state) {
  Matrix<Number>& o = state.accumulator;
  const Number one(1), maximum = ops.row_maximum(&tile.maximum[r], 1, state.maximum[i]);
  const Number reference = finite_reference(ops, maximum);
  const Number earlier = ops.exp(ops.correction(state.maximum[i], reference)),
               now = ops.exp(ops.correction(tile.maximum[r], reference));
  const Number kept = earlier * state.sum[i], sum = kept + now * tile.sum[r];
  if (sum != Number(0)) {
    ops.rescale(o.row(i), o.columns, kept);
    ops.rescale(tile.accumulator.row(r), o.columns, now);
    for (int64 c = 0; c < o.columns; ++c) o.row(i)[c] = ops.finish(o.row(i)[c] + tile.accumulator.row(r)[c], sum, one);
  }
  state.sum[i] = sum;
  state.maximum[i] = maximum;
  return earlier;
}

template <class Ops, class Number = typename Ops::Number>
HeadOutputs<Number> flash1_forward(const Ops& ops, const Head<Number>& head, TileSize tile) {
  const int64 d = head.q.columns, value_dim = head.value_dim();
  const Span all{0, head.seq_q()};
  OnlineSoftmax<Ops> state = start_rows(ops, head, all, true);  // line 2
  ops.store(Array::o, "2205.14135 Algorithm 1, line 2", all, value_dim);
  for (const Array array : {Array::sum, Array::maximum}) ops.store(array, "2205.14135 Algorithm 1, line 2", all, 1);
  for (int64 j = 0; j < head.seq_k(); j += tile.keys) {  // line 5
    const Span keys = tile_at(j, tile.keys, head.seq_k());
    ops.load(Array::k, "2205.14135 Algorithm 1, line 6", keys, d);
    ops.load(Array::v, "2205.14135 Algorithm 1, line 6", keys, value_dim);
    for (int64 i = 0; i < head.seq_q(); i += tile.rows) {  // line 7
      const Span rows = tile_at(i, tile.rows, head.seq_q());
      if (!sees_any_of(head.rule, rows, keys)) continue;
      ops.load(Array::q, "2205.14135 Algorithm 1, line 8", rows, d);
      ops.load(Array::o, "2205.14135 Algorithm 1, line 8", rows, value_dim);
      for (const Array array : {Array::sum, Array::maximum}) ops.load(array, "2205.14135 Algorithm 1, line 8", rows, 1);
      OnlineSoftmax<Ops> summary = summarise_chunk(ops, head, rows, keys);  // lines 9 and 10, P~ V
      for (int64 r = 0; r < rows.size(); ++r) {
        const Number rescale = add_summary(ops, summary, r, i + r, state);  // lines 11 to 13
        ops.observe({"tile", i + r, keys, state.maximum[i + r], state.sum[i + r], rescale, Number(1)},
                    state.accumulator.row(i + r));
      }
      ops.store(Array::o, "2205.14135 Algorithm 1, line 12", rows, value_dim);
      for (const Array array : {Array::sum, Array::maximum})
        ops.store(array, "2205.14135 Algorithm 1, line 13", rows, 1);
    }
  }
  HeadOutputs<Number> out(head.seq_q(), value_dim);
  finish_normalised_rows(ops, head, all, state, out);
  return out;
}

/// Adds what one query head gives (Algorithm 4); o and l (L) are the forward's outputs, as stored.
template <class Ops, class Number = typename Ops::Number>
void flash1_backward(const Ops& ops, const Head<Number>& head, TileSize tile, const Matrix<Number>& o,
                     const std::vector<Number>& l, HeadGradients<Number>& out) {
  const int64 d = head.q.columns, value_dim = head.value_dim();
  std::vector<Number> delta(head.seq_q(), Number(0));
  ops.store(Array::dq, "2205.14135 Algorithm 4, line 5", {0, head.seq_q()}, d);
  ops.store(Array::dk, "2205.14135 Algorithm 4, line 5", {0, head.seq_k()}, d);
  ops.store(Array::dv, "2205.14135 Algorithm 4, line 5", {0, head.seq_k()}, value_dim);
  for (int64 j = 0; j < head.seq_k(); j += tile.keys) {  // line 6
    const Span keys = tile_at(j, tile.keys, head.seq_k());
    ops.load(Array::k, "2205.14135 Algorithm 4, line 7", keys, d);
    ops.load(Array::v, "2205.14135 Algorithm 4, line 7", keys, value_dim);
    for (int64 i = 0; i < head.seq_q(); i += tile.rows) {  // line 9
      const Span rows = tile_at(i, tile.rows, head.seq_q());
      if (!sees_any_of(head.rule, rows, keys)) continue;
      for (const Array array : {Array::q, Array::dq}) ops.load(array, "2205.14135 Algorithm 4, line 10", rows, d);
      for (const Array array : {Array::o, Array::d_o})
        ops.load(array, "2205.14135 Algorithm 4, line 10", rows, value_dim);
      for (const Array array : {Array::sum, Array::maximum})
        ops.load(array, "2205.14135 Algorithm 4, line 10", rows, 1);
      set_row_deltas(ops, head, o, rows, delta);  // line 19
      const GradientTile<Number> p_ds =
          gradient_tile(ops, head, rows, keys, l, delta, out.dbias);  // 11 to 15, 17, 18, 20
      add_gradient_tile(ops, head, rows, keys, p_ds, out);            // 16, 21, 22
      ops.store(Array::dq, "2205.14135 Algorithm 4, line 21", rows, d);
    }
    ops.store(Array::dk, "2205.14135 Algorithm 4, line 24", keys, d);
    ops.store(Array::dv, "2205.14135 Algorithm 4, line 24", keys, value_dim);
  }
  add_sink_gradient(ops, head.rule, l, delta, out.dsink);
}

}  // namespace flashproof
