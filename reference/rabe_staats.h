// Attention in constant memory, and its practical form in chunks (Rabe and Staats, 2112.05682).
//
// Recurrence (section 3), one key after another, with m* = -inf, s* = 0, v* = 0 at first; these three are a row's
// memory:
//   m = max(m*, s_j),  v* = e^{m* - m} v* + e^{s_j - m} v_j,  s* = e^{m* - m} s* + e^{s_j - m},  m* = m
//   at the end  O = v* / s*
// In chunks (section 4, Figure 1), for each chunk of queries: each chunk c of keys is summarised on its own,
//   m_c = max_j s_j,  v_c = sum_j e^{s_j - m_c} v_j,  s_c = sum_j e^{s_j - m_c}                      (summarize_chunk)
// and with m = max_c m_c the summaries are combined:  O = sum_c e^{m_c - m} v_c / sum_c e^{m_c - m} s_c
// A chunk of queries of a fixed size with chunks of sqrt(n) keys has sqrt(n) summaries, hence the paper's sqrt(n)
// memory. Every chunk is visited, hidden or not. A sink is a chunk with v = 0, s = 1. There is no backward of its own:
// the paper differentiates the forward and recomputes each chunk.
// `load` and `store` are told of each operator of Figure 1 that it reads its operands from device memory and leaves its
// result there, as in FlashAttention's Algorithm 0: the paper saves memory, not traffic.
#pragma once
#include "reference/flash2.h"

namespace flashproof {

/// The recurrence: a tile of keys is a single key.
template <class Ops, class Number = typename Ops::Number>
HeadOutputs<Number> rabe_staats_recurrence(const Ops& ops, const Head<Number>& head) {
  HeadOutputs<Number> out(head.seq_q(), head.value_dim());
  for (int64 i = 0; i < head.seq_q(); ++i) {
    OnlineSoftmax<Ops> state = start_rows(ops, head, {i, i + 1}, true);
    for (int64 j = 0; j < head.seq_k(); ++j) add_key_tile(ops, head, {i, i + 1}, {j, j + 1}, state);
    finish_rows(ops, head, {i, i + 1}, state, out);
  }
  return out;
}

/// m_c, s_c and v_c (as `maximum`, `sum`, `accumulator`) of a chunk of keys for a chunk of rows.
template <class Ops, class Number = typename Ops::Number>
OnlineSoftmax<Ops> summarise_chunk(const Ops& ops, const Head<Number>& head, Span rows, Span keys) {
  OnlineSoftmax<Ops> chunk = start_rows(ops, head, rows, false);
  Matrix<Number> p = score_tile(ops, head, rows, keys);
  ops.hold(Array::p, rows.size(), keys.size());
  ops.hold(Array::part_o, rows.size(), head.value_dim());
  for (const Array array : {Array::part_maximum, Array::part_sum}) ops.hold(array, rows.size(), 1);
  for (int64 r = 0; r < rows.size(); ++r) {
    chunk.maximum[r] = ops.row_maximum(p.row(r), keys.size(), Ops::minus_infinity());
    const Number reference = finite_reference(ops, chunk.maximum[r]);
    for (int64 j = 0; j < keys.size(); ++j) p.row(r)[j] = ops.exp(ops.exponent(p.row(r)[j], reference));
    chunk.sum[r] = ops.row_sum(p.row(r), keys.size(), Number(0));
    drop_and_round(ops, head.rule, rows.begin + r, keys, p.row(r));
  }
  ops.multiply_add(Array::part_o, chunk.accumulator.view(), p.view(), head.v.rows_between(keys.begin, keys.end));
  return chunk;
}

/// The summaries of row r of a chunk of rows, added to the row's state, which has the sink.
template <class Ops, class Number = typename Ops::Number>
void combine_chunks(const Ops& ops, std::vector<OnlineSoftmax<Ops>>& chunks, int64 r, OnlineSoftmax<Ops>& state) {
  Matrix<Number>& o = state.accumulator;
  Number maximum = state.maximum[r];
  for (const OnlineSoftmax<Ops>& chunk : chunks) maximum = ops.row_maximum(&chunk.maximum[r], 1, maximum);
  const Number reference = finite_reference(ops, maximum);
  state.sum[r] = state.sum[r] * ops.exp(ops.correction(state.maximum[r], reference));
  state.maximum[r] = maximum;
  for (OnlineSoftmax<Ops>& chunk : chunks) {
    const Number weight = ops.exp(ops.correction(chunk.maximum[r], reference));
    ops.rescale(chunk.accumulator.row(r), o.columns, weight);
    for (int64 c = 0; c < o.columns; ++c) o.row(r)[c] = o.row(r)[c] + chunk.accumulator.row(r)[c];
    state.sum[r] = state.sum[r] + weight * chunk.sum[r];
  }
}

/// What Figure 1 moves for one chunk of rows and one of keys, the `number`-th.
template <class Ops, class Number = typename Ops::Number>
void move_chunk(const Ops& ops, const Head<Number>& head, Span rows, Span keys, int64 number) {
  const char* source = "2112.05682 Figure 1, summarize_chunk";
  const Span chunk{0, rows.size()}, summary{number * rows.size(), (number + 1) * rows.size()};
  ops.load(Array::q, source, rows, head.q.columns);
  ops.load(Array::k, source, keys, head.k.columns);
  ops.store(Array::s, source, chunk, keys.size());
  ops.load(Array::s, source, chunk, keys.size());
  ops.store(Array::p, source, chunk, keys.size());
  ops.load(Array::p, source, chunk, keys.size());
  ops.load(Array::v, source, keys, head.value_dim());
  ops.store(Array::part_o, source, summary, head.value_dim());
  for (const Array array : {Array::part_maximum, Array::part_sum}) ops.store(array, source, summary, 1);
}

/// In chunks of tile.rows queries and tile.keys keys.
template <class Ops, class Number = typename Ops::Number>
HeadOutputs<Number> rabe_staats_forward(const Ops& ops, const Head<Number>& head, TileSize tile) {
  const char* source = "2112.05682 Figure 1, query_chunk_attention";
  HeadOutputs<Number> out(head.seq_q(), head.value_dim());
  for (int64 i = 0; i < head.seq_q(); i += tile.rows) {
    const Span rows = tile_at(i, tile.rows, head.seq_q());
    std::vector<OnlineSoftmax<Ops>> chunks;
    for (int64 j = 0; j < head.seq_k(); j += tile.keys) {
      const Span keys = tile_at(j, tile.keys, head.seq_k());
      move_chunk(ops, head, rows, keys, int64(chunks.size()));
      chunks.push_back(summarise_chunk(ops, head, rows, keys));
      const OnlineSoftmax<Ops>& c = chunks.back();
      for (int64 r = 0; r < rows.size(); ++r)
        ops.observe({"chunk", i + r, keys, c.maximum[r], c.sum[r], Number(1), c.sum[r]}, c.accumulator.row(r));
    }
    const Span summaries{0, int64(chunks.size()) * rows.size()};
    ops.load(Array::part_o, source, summaries, head.value_dim());
    for (const Array array : {Array::part_maximum, Array::part_sum}) ops.load(array, source, summaries, 1);
    OnlineSoftmax<Ops> state = start_rows(ops, head, rows, true);
    for (int64 r = 0; r < rows.size(); ++r) {
      combine_chunks(ops, chunks, r, state);
      ops.observe({"combine", i + r, {0, head.seq_k()}, state.maximum[r], state.sum[r], Number(1), state.sum[r]},
                  state.accumulator.row(r));
    }
    finish_rows(ops, head, rows, state, out);
    ops.store(Array::o, source, rows, head.value_dim());
  }
  return out;
}

}  // namespace flashproof
