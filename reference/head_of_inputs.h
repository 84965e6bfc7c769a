// One query head of a case's logical tensors as the algorithms take it.
#pragma once
#include "reference/attention.h"
#include "reference/head.h"

namespace flashproof {

/// Scale, masks and modifiers but the bias of one query head; each product and quotient of factors is taken in T.
template <class T, class Biases = std::vector<double>>
ScoreRule<T, Biases> rule_without_bias(const Inputs& in, const HeadIndex& at) {
  const Problem& p = in.problem;
  ScoreRule<T, Biases> rule;
  rule.mask = p.mask;
  rule.seq_q = at.seq_q;
  rule.seq_k = at.seq_k;
  rule.scale = score_scale<T>(in, at);
  rule.softcap = T(p.softcap);
  if (p.alibi != Alibi::none) rule.slope = T(in.slopes[at.b * p.heads + at.h]);
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

/// The same and the bias of each row and key.
template <class T>
ScoreRule<T> rule_of(const Inputs& in, const HeadIndex& at) {
  ScoreRule<T> rule = rule_without_bias<T>(in, at);
  if (!in.problem.bias) return rule;
  rule.bias_row_stride = at.seq_k;
  rule.bias_key_stride = 1;
  for (int64_t i = 0; i < at.seq_q; ++i)
    for (int64_t j = 0; j < at.seq_k; ++j) rule.bias.push_back(bias_at(in, at.b, at.h, i, j));
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

/// The head's operands and rule.
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

}  // namespace flashproof
