// Standard attention: the whole row of scores is kept, P is normalised before it meets V, and kept too.
//
// Forward:   S = Q K^T,  P = softmax(S),  O = P V              (FlashAttention, 2205.14135, Algorithm 0)
// Backward:  dV = P^T dO,  dP = dO V^T,  dS = P o (dP - D),  dQ = dS K,  dK = dS^T Q        (Algorithm 3)
// `line` below is a line of these. Algorithm 3 reads P where the forward left it, and D_i = rowsum(P o dP). What a
// kernel has is O and L: it makes P again from S and L, and D_i = rowsum(dO o O), which is the same (equation 4). Both
// are here. Rows are worked on in blocks to save the host's memory; the block size changes no result. `load` and
// `store` are told that each line moves each of its operands once.
#pragma once
#include "reference/flash2.h"

namespace flashproof {

constexpr int64 standard_row_block = 64;

template <class Ops, class Number = typename Ops::Number>
HeadOutputs<Number> standard_forward(const Ops& ops, const Head<Number>& head) {
  HeadOutputs<Number> out(head.seq_q(), head.value_dim());
  const Span keys{0, head.seq_k()}, all{0, head.seq_q()};
  ops.load(Array::q, "2205.14135 Algorithm 0, line 1", all, head.q.columns);
  ops.load(Array::k, "2205.14135 Algorithm 0, line 1", keys, head.k.columns);
  ops.store(Array::s, "2205.14135 Algorithm 0, line 1", all, keys.size());
  ops.load(Array::s, "2205.14135 Algorithm 0, line 2", all, keys.size());
  ops.store(Array::p, "2205.14135 Algorithm 0, line 2", all, keys.size());
  ops.load(Array::p, "2205.14135 Algorithm 0, line 3", all, keys.size());
  ops.load(Array::v, "2205.14135 Algorithm 0, line 3", keys, head.value_dim());
  ops.store(Array::o, "2205.14135 Algorithm 0, line 3", all, head.value_dim());
  for (int64 first = 0; first < head.seq_q(); first += standard_row_block) {
    const Span rows = tile_at(first, standard_row_block, head.seq_q());
    Matrix<Number> p = score_tile(ops, head, rows, keys);
    OnlineSoftmax<Ops> state = start_rows(ops, head, rows, true);
    const Number one(1);
    for (int64 r = 0; r < rows.size(); ++r) {
      softmax_step(ops, p.row(r), keys.size(), state.maximum[r], state.sum[r]);
      for (int64 j = 0; j < keys.size(); ++j) p.row(r)[j] = ops.finish(p.row(r)[j], state.sum[r], one);
      drop_and_round(ops, head.rule, rows.begin + r, keys, p.row(r));
    }
    ops.multiply_add(Array::o, state.accumulator.view(), p.view(), head.v.view());
    for (int64 r = 0; r < rows.size(); ++r)
      ops.observe({"row", rows.begin + r, keys, state.maximum[r], state.sum[r], one, one}, state.accumulator.row(r));
    finish_normalised_rows(ops, head, rows, state, out);
  }
  return out;
}

/// Adds what one query head gives; o and l are the forward's outputs, as stored.
template <class Ops, class Number = typename Ops::Number>
void standard_backward(const Ops& ops, const Head<Number>& head, const Matrix<Number>& o, const std::vector<Number>& l,
                       HeadGradients<Number>& out) {
  const std::vector<Number> delta = row_deltas(ops, head, o);
  const Span keys{0, head.seq_k()};
  for (int64 first = 0; first < head.seq_q(); first += standard_row_block) {
    const Span rows = tile_at(first, standard_row_block, head.seq_q());
    add_gradient_tile(ops, head, rows, keys, gradient_tile(ops, head, rows, keys, l, delta, out.dbias), out);
  }
  add_sink_gradient(ops, head.rule, l, delta, out.dsink);
}

/// What Algorithm 3 moves.
template <class Ops, class Number = typename Ops::Number>
void move_stored_backward(const Ops& ops, const Head<Number>& head) {
  const int64 d = head.q.columns, value_dim = head.value_dim(), seq_k = head.seq_k();
  const Span rows{0, head.seq_q()}, keys{0, seq_k};
  ops.load(Array::p, "2205.14135 Algorithm 3, line 1", rows, seq_k);
  ops.load(Array::d_o, "2205.14135 Algorithm 3, line 1", rows, value_dim);
  ops.store(Array::dv, "2205.14135 Algorithm 3, line 1", keys, value_dim);
  ops.load(Array::d_o, "2205.14135 Algorithm 3, line 2", rows, value_dim);
  ops.load(Array::v, "2205.14135 Algorithm 3, line 2", keys, value_dim);
  ops.store(Array::dp, "2205.14135 Algorithm 3, line 2", rows, seq_k);
  ops.load(Array::p, "2205.14135 Algorithm 3, line 3", rows, seq_k);
  ops.load(Array::dp, "2205.14135 Algorithm 3, line 3", rows, seq_k);
  ops.store(Array::ds, "2205.14135 Algorithm 3, line 3", rows, seq_k);
  ops.load(Array::ds, "2205.14135 Algorithm 3, line 4", rows, seq_k);
  ops.load(Array::k, "2205.14135 Algorithm 3, line 4", keys, d);
  ops.store(Array::dq, "2205.14135 Algorithm 3, line 4", rows, d);
  ops.load(Array::ds, "2205.14135 Algorithm 3, line 5", rows, seq_k);
  ops.load(Array::q, "2205.14135 Algorithm 3, line 5", rows, d);
  ops.store(Array::dk, "2205.14135 Algorithm 3, line 5", keys, d);
}

/// Algorithm 3 as printed: p [Sq, Sk] is what the forward stored, before dropout. The paper has neither softcap, bias
/// nor sink, so the rule must not have them.
template <class Ops, class Number = typename Ops::Number>
void standard_backward_stored(const Ops& ops, const Head<Number>& head, const Matrix<Number>& p,
                              HeadGradients<Number>& out) {
  move_stored_backward(ops, head);
  const Span keys{0, head.seq_k()};
  for (int64 i = 0; i < head.seq_q(); ++i) {
    const Span row{i, i + 1};
    GradientTile<Number> tile{{1, keys.size()}, {1, keys.size()}};
    ops.multiply_add(Array::dp, tile.ds.view(), head.d_o.rows_between(i, i + 1), head.v_t.view());  // line 2
    std::vector<Number> products(keys.size(), Number(0));
    for (int64 j = 0; j < keys.size(); ++j) {  // dropout, then line 3
      const bool kept = keeps(head.rule, i, j);
      Number& dp = tile.ds.row(0)[j];
      dp = kept ? Number(dp * head.rule.value_factor) : Number(0);
      products[j] = p.row(i)[j] * dp;
      tile.p.row(0)[j] = kept ? ops.round_ds(p.row(i)[j]) : Number(0);
    }
    const Number delta = ops.row_sum(products.data(), keys.size(), Number(0));
    for (int64 j = 0; j < keys.size(); ++j) tile.ds.row(0)[j] = ops.round_ds(p.row(i)[j] * (tile.ds.row(0)[j] - delta));
    add_gradient_tile(ops, head, row, keys, tile, out);  // lines 1, 4 and 5
  }
}

}  // namespace flashproof
