// Standard attention: the whole row of scores is kept, P is normalised before it meets V, and kept too.
//
// Forward:   S = Q K^T,  P = softmax(S),  O = P V              (FlashAttention, 2205.14135, Algorithm 0)
// Backward:  dV = P^T dO,  dP = dO V^T,  dS = P o (dP - D),  dQ = dS K,  dK = dS^T Q        (Algorithm 3)
// D_i = rowsum(dO o O), which equals Algorithm 3's rowsum(P o dP) (2205.14135, equation 4). The backward makes P again from
// S and L. Rows are worked on in blocks to save memory; the block size changes no result.
#pragma once
#include "reference/flash2.h"

namespace flashproof {

constexpr int64 standard_row_block = 64;

template <class Ops, class Number = typename Ops::Number>
HeadOutputs<Number> standard_forward(const Ops& ops, const Head<Number>& head) {
  HeadOutputs<Number> out(head.seq_q(), head.value_dim());
  const Span keys{0, head.seq_k()};
  for (int64 first = 0; first < head.seq_q(); first += standard_row_block) {
    const Span rows = tile_at(first, standard_row_block, head.seq_q());
    Matrix<Number> p = score_tile(ops, head, rows, keys);
    Matrix<Number> product(rows.size(), head.value_dim());
    const Number one(1);
    OnlineSoftmax<Number> row = start_rows(ops, head, rows, true);
    for (int64 r = 0; r < rows.size(); ++r) {
      const Number start = row.maximum[r];
      row.maximum[r] = ops.row_maximum(p.row(r), keys.size(), start);
      const Number reference = finite_reference(ops, row.maximum[r]);
      for (int64 j = 0; j < keys.size(); ++j) p.row(r)[j] = ops.exp(p.row(r)[j] - reference);
      row.sum[r] = ops.row_sum(p.row(r), keys.size(), row.sum[r] * ops.exp(start - reference));
      if (row.sum[r] != Number(0))
        for (int64 j = 0; j < keys.size(); ++j) p.row(r)[j] = ops.finish(p.row(r)[j], row.sum[r], one);
      drop_and_round(ops, head.rule, rows.begin + r, keys, p.row(r));
      out.l[rows.begin + r] = log_sum_exp(ops, row.maximum[r], row.sum[r]);
    }
    ops.multiply_add(product.view(), p.view(), head.v.view());
    for (int64 r = 0; r < rows.size(); ++r) {
      ops.observe({"row", rows.begin + r, keys, row.maximum[r], row.sum[r], one, one}, product.row(r));
      for (int64 c = 0; c < head.value_dim(); ++c)
        out.o.row(rows.begin + r)[c] = ops.round_output(product.row(r)[c] * head.rule.value_factor);
    }
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

}  // namespace flashproof
