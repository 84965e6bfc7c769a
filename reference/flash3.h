// FlashAttention 3, forward (Shah, Bikshandi, Zhang, Thakkar, Ramani, Dao, 2407.08608, Algorithm 2, of a consumer
// warpgroup).
//
// The mathematics is FlashAttention 2's, in another order: with the tiles of keys from last to first, in two stages,
//   S_next = Q K_j^T,  O = O + P_cur V_{j-1},  m' = max(m, rowmax S_next),  P_next = exp(S_next - m'),
//   l = exp(m - m') l + rowsum P_next,  O = exp(m - m') O,  P_cur = P_next
// so that the tensor cores work on the scores of the next tile while the softmax of the current one runs. An
// accumulator sees the same operations in the same order as in FlashAttention 2 over these tiles: the same numbers.
// Algorithm 2 prints the tiles from first to last; the published code takes the last one first, where the mask's edge
// is, and so does this: j counts from the end, and V_{j-1} belongs to the tile before in that order. Line 7 prints j <
// T_c - 1, a misprint for j < T_c: the scores of the last tile would be missing. Line 16 hands on S_next, of which line
// 13 has made P_next. In fp8 P is 2^8 P until the last division (the row sum too), so that small weights survive e4m3:
// `round_p` of the operations carries that. Hopper's fp8 tensor cores keep 13 fraction bits of the accumulator; in two
// levels, each tile's P V is summed from zero and added to O in fp32.
// The backward is FlashAttention 2's (`flash2_backward`), tiles of keys outside; only the roles of its warps are new.
#pragma once
#include <utility>

#include "reference/flash2.h"

namespace flashproof {

/// O += P V of a tile.
template <class Ops, class Number = typename Ops::Number>
void add_value_tile(const Ops& ops, const Head<Number>& head, Span keys, const Matrix<Number>& p, bool two_level,
                    Matrix<Number>& o) {
  ops.load(Array::v, "2407.08608 Algorithm 2, lines 10 and 18", keys, head.value_dim());
  const View<const Number> v = head.v.rows_between(keys.begin, keys.end);
  if (!two_level) return ops.multiply_add(Array::o, o.view(), p.view(), v);
  Matrix<Number> product(o.rows, o.columns);
  ops.hold(Array::part_o, o.rows, o.columns);
  ops.multiply_add(Array::part_o, product.view(), p.view(), v);
  for (size_t n = 0; n < o.data.size(); ++n) o.data[n] = o.data[n] + product.data[n];
}

/// The tiles of keys for one tile of rows (lines 3 to 19), from the one that holds key seen.end - 1 to that of
/// seen.begin.
template <class Ops, class Number = typename Ops::Number>
void attend_from_last(const Ops& ops, const Head<Number>& head, Span rows, Span seen, int64 tile_keys, bool two_level,
                      OnlineSoftmax<Ops>& state) {
  if (seen.size() == 0) return;
  const auto scores = [&](Span keys) {
    ops.load(Array::k, "2407.08608 Algorithm 2, lines 3 and 8", keys, head.k.columns);
    return score_tile(ops, head, rows, keys);
  };
  const int64 last = (seen.end - 1) / tile_keys * tile_keys;
  Span current = tile_at(last, tile_keys, head.seq_k());
  Matrix<Number> p = scores(current);                                                // line 4
  std::vector<Number> rescale = add_to_softmax(ops, head, rows, current, p, state);  // line 6
  rescale_rows(ops, rescale, state);
  for (int64 j = last - tile_keys; j > seen.begin - tile_keys; j -= tile_keys) {  // line 7
    const Span next = tile_at(j, tile_keys, head.seq_k());
    Matrix<Number> p_next = scores(next);                                 // line 9
    add_value_tile(ops, head, current, p, two_level, state.accumulator);  // line 11
    observe_rows(ops, rows, current, rescale, state);
    rescale = add_to_softmax(ops, head, rows, next, p_next, state);  // line 13
    rescale_rows(ops, rescale, state);                               // line 14
    p = std::move(p_next);                                           // line 16
    current = next;
  }
  add_value_tile(ops, head, current, p, two_level, state.accumulator);  // line 19
  observe_rows(ops, rows, current, rescale, state);
}

template <class Ops, class Number = typename Ops::Number>
HeadOutputs<Number> flash3_forward(const Ops& ops, const Head<Number>& head, TileSize tile, bool two_level) {
  HeadOutputs<Number> out(head.seq_q(), head.value_dim());
  for (int64 i = 0; i < head.seq_q(); i += tile.rows) {
    const Span rows = tile_at(i, tile.rows, head.seq_q());
    ops.load(Array::q, "2407.08608 Algorithm 2, line 3", rows, head.q.columns);
    OnlineSoftmax<Ops> state = start_rows(ops, head, rows, true);  // line 2
    attend_from_last(ops, head, rows, keys_of_rows(head.rule, rows), tile.keys, two_level, state);
    finish_rows(ops, head, rows, state, out);
    ops.store(Array::o, "2407.08608 Algorithm 2, line 20", rows, head.value_dim());  // line 20
    ops.store(Array::lse, "2407.08608 Algorithm 2, line 20", rows, 1);
  }
  return out;
}

}  // namespace flashproof
