// FlashDecoding: the keys are cut into parts that run side by side, and the parts' results are combined by their L.
//
// Each part runs FlashAttention 2 over its own keys and leaves O_s (normalised, before the value factor) and L_s. Then
//   L = ln(sum_s exp(L_s) [+ exp(sink)]),   O = factor sum_s exp(L_s - L) O_s
// Source: Dao, Haziza, Massa, Sizov, "Flash-Decoding for long-context inference", 2023, steps 1 to 3; the composition
// of attention states of FlashInfer, 2501.01005, section 2.2. A single part is plain FlashAttention 2. There is no
// backward of its own: that is FlashAttention 2's.
#pragma once
#include "reference/flash2.h"

namespace flashproof {

/// Keys of part number `part`: whole tiles, as even as they go; the last parts may be empty.
inline Span keys_of_part(int64 part, int64 parts, int64 tile_keys, int64 seq_k) {
  const int64 tiles = (seq_k + tile_keys - 1) / tile_keys;
  const int64 length = (tiles + parts - 1) / parts * tile_keys;
  const int64 begin = part * length < seq_k ? part * length : seq_k;
  return tile_at(begin, length, seq_k);
}

/// O_s and L_s of one part for a tile of rows.
template <class Ops, class Number = typename Ops::Number>
HeadOutputs<Number> attend_part(const Ops& ops, const Head<Number>& head, Span rows, Span part, int64 tile_keys) {
  OnlineSoftmax<Ops> state = start_rows(ops, head, rows, false);
  for (int64 j = part.begin; j < part.end; j += tile_keys)
    add_key_tile(ops, head, rows, tile_at(j, tile_keys, part.end), state);
  HeadOutputs<Number> result(rows.size(), head.value_dim());
  for (int64 r = 0; r < rows.size(); ++r) {
    const Number sum = ops.total(state.sum[r]);
    for (int64 c = 0; c < head.value_dim(); ++c)
      result.o.row(r)[c] = ops.finish(state.accumulator.row(r)[c], sum, Number(1));
    result.l[r] = log_sum_exp(ops, state.maximum[r], sum);
  }
  return result;
}

/// Combines the parts of row number `r` of a tile into row i of the output.
template <class Ops, class Number = typename Ops::Number>
void combine_parts(const Ops& ops, const Head<Number>& head, const std::vector<HeadOutputs<Number>>& parts, int64 r,
                   int64 i, HeadOutputs<Number>& out) {
  std::vector<Number> l, sum_of_parts(head.value_dim(), Number(0));
  if (head.rule.has_sink) l.push_back(head.rule.sink);
  for (const HeadOutputs<Number>& part : parts) l.push_back(part.l[r]);
  const Number maximum = ops.row_maximum(l.data(), int64(l.size()), Ops::minus_infinity());
  const Number reference = finite_reference(ops, maximum);
  for (Number& x : l) x = ops.exp(ops.exponent(x, reference));
  const Number sum = ops.row_sum(l.data(), int64(l.size()), Number(0));
  out.l[i] = log_sum_exp(ops, maximum, sum);
  if (sum == Number(0)) return;
  for (const HeadOutputs<Number>& part : parts) {
    const Number weight = ops.exp(ops.correction(part.l[r], out.l[i]));
    for (int64 c = 0; c < head.value_dim(); ++c) sum_of_parts[c] = sum_of_parts[c] + weight * part.o.row(r)[c];
  }
  ops.observe({"combine", i, {0, head.seq_k()}, maximum, sum, Number(1), Number(1)}, sum_of_parts.data());
  for (int64 c = 0; c < head.value_dim(); ++c)
    out.o.row(i)[c] = ops.round_output(sum_of_parts[c] * head.rule.value_factor);
}

template <class Ops, class Number = typename Ops::Number>
HeadOutputs<Number> flash_decoding_forward(const Ops& ops, const Head<Number>& head, TileSize tile, int64 parts) {
  if (parts == 1) return flash2_forward(ops, head, tile);
  HeadOutputs<Number> out(head.seq_q(), head.value_dim());
  for (int64 i = 0; i < head.seq_q(); i += tile.rows) {
    const Span rows = tile_at(i, tile.rows, head.seq_q());
    std::vector<HeadOutputs<Number>> results;
    for (int64 part = 0; part < parts; ++part) {
      const Span partial{part * head.seq_q() + rows.begin, part * head.seq_q() + rows.end};
      ops.load(Array::q, "Flash-Decoding, step 2", rows, head.q.columns);
      results.push_back(attend_part(ops, head, rows, keys_of_part(part, parts, tile.keys, head.seq_k()), tile.keys));
      ops.store(Array::part_o, "Flash-Decoding, step 2", partial, head.value_dim());
      ops.store(Array::part_lse, "Flash-Decoding, step 2", partial, 1);
      ops.load(Array::part_o, "Flash-Decoding, step 3", partial, head.value_dim());
      ops.load(Array::part_lse, "Flash-Decoding, step 3", partial, 1);
    }
    for (int64 r = 0; r < rows.size(); ++r) combine_parts(ops, head, results, r, i + r, out);
    ops.store(Array::o, "Flash-Decoding, step 3", rows, head.value_dim());
    ops.store(Array::lse, "Flash-Decoding, step 3", rows, 1);
  }
  return out;
}

}  // namespace flashproof
