// Small problems with every feature, drawn by RapidCheck, and their tensors as the heads that the algorithms take.
#pragma once
#include <rapidcheck.h>

#include "reference/attention.h"
#include "reference/head.h"
#include "reference/inputs.h"

namespace flashproof::test {

/// Uniform from the first case on: sizes here are small already.
inline int64_t draw(int64_t least, int64_t most) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<int64_t>(least, most + 1));
}
inline bool coin() { return draw(0, 1) == 1; }

/// Lengths up to `most`, zero included: dense, packed or with used lengths.
inline Lengths draw_lengths(int64_t batch, int64_t most) {
  Lengths lengths;
  lengths.slot = draw(0, most);
  const bool packed = coin(), used = coin();
  for (int64_t b = 0; b < batch; ++b) {
    if (packed) lengths.packed.push_back(draw(0, most));
    if (used) lengths.used.push_back(draw(0, slot_length(lengths, b)));
  }
  return lengths;
}

/// A legal problem of `dtype` with a backward; about half of the features in each.
inline Problem draw_problem(DType dtype, int64_t longest) {
  Problem p;
  p.dtype = dtype;
  p.batch = draw(1, 2);
  p.kv_heads = draw(1, 2);
  p.heads = p.kv_heads * draw(1, 3);
  p.q = draw_lengths(p.batch, longest);
  p.k = draw_lengths(p.batch, longest);
  p.head_dim = draw(1, 5);
  p.value_dim = coin() ? p.head_dim : draw(1, 5);
  if (coin()) p.scale = float(draw(-8, 8)) / 4;
  p.mask.causal = coin();
  p.mask.top_left = coin();
  if (coin()) p.mask.window_left = draw(0, longest);
  if (coin()) p.mask.window_right = draw(0, longest);
  if (coin()) p.softcap = float(draw(1, 20)) / 4;
  p.alibi = Alibi(draw(0, 2));
  if (coin()) p.bias = Bias{coin(), coin(), coin(), coin(), coin()};
  p.sink = coin();
  if (coin()) p.dropout = Dropout{float(draw(0, 9)) / 10, uint64_t(draw(0, 1000))};
  p.descale = output_dtype(p) != p.dtype && coin();
  p.direction = Direction::backward;
  return p;
}

/// Its data from normal numbers, with some biases -infinity.
inline Inputs draw_inputs(const Problem& p) {
  Case c;
  c.problem = p;
  c.recipe.seed = uint64_t(draw(0, 1 << 20));
  Inputs in = make_inputs(c);
  if (p.bias && coin())
    for (int64_t n = 0; n < in.bias.size(); n += draw(1, 6))
      in.bias.set_bits(n, encode(in.bias.dtype, -std::numeric_limits<double>::infinity()));
  return in;
}

template <class T>
ScoreRule<T> rule_of(const Inputs& in, const HeadIndex& at) {
  const Problem& p = in.problem;
  ScoreRule<T> rule;
  rule.mask = p.mask;
  rule.seq_q = at.seq_q;
  rule.seq_k = at.seq_k;
  rule.scale = score_scale<T>(in, at);
  rule.softcap = T(p.softcap);
  if (p.alibi != Alibi::none) rule.slope = T(in.slopes[at.b * p.heads + at.h]);
  if (p.bias) {
    rule.bias_row_stride = at.seq_k;
    rule.bias_key_stride = 1;
    for (int64_t i = 0; i < at.seq_q; ++i)
      for (int64_t j = 0; j < at.seq_k; ++j) rule.bias.push_back(bias_at(in, at.b, at.h, i, j));
  }
  rule.has_sink = p.sink;
  if (p.sink) rule.sink = T(in.sinks[at.h]);
  rule.has_dropout = p.dropout.has_value();
  rule.value_factor = value_scale<T>(in, at);
  if (p.dropout) {
    rule.dropout_seed = p.dropout->seed;
    rule.dropout_words = dropout_threshold(p.dropout->rate);
    rule.value_factor = rule.value_factor / (T(1) - T(p.dropout->rate));
  }
  rule.b = at.b;
  rule.h = at.h;
  return rule;
}

/// Rows first, first + step, ... of a tensor with `columns` elements a row.
template <class T>
Matrix<T> rows_of(const Tensor& tensor, int64_t first, int64_t step, int64_t rows, int64_t columns) {
  Matrix<T> result(rows, columns);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t c = 0; c < columns; ++c) result.row(i)[c] = T(tensor.at((first + i * step) * columns + c));
  return result;
}

template <class T>
Head<T> head_of(const Inputs& in, const HeadIndex& at) {
  const Problem& p = in.problem;
  Head<T> head;
  head.rule = rule_of<T>(in, at);
  head.q = rows_of<T>(in.q, at.query_row(0), p.heads, at.seq_q, p.head_dim);
  head.d_o = rows_of<T>(in.d_o, at.query_row(0), p.heads, at.seq_q, p.value_dim);
  head.k = rows_of<T>(in.k, at.key_row(0), p.kv_heads, at.seq_k, p.head_dim);
  head.v = rows_of<T>(in.v, at.key_row(0), p.kv_heads, at.seq_k, p.value_dim);
  head.k_t = transpose(head.k);
  head.v_t = transpose(head.v);
  clear_unseeing_rows(head);
  return head;
}

}  // namespace flashproof::test
