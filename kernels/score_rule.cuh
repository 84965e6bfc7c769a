// Masks and modifiers as the GPU kernels apply them, one score at a time: the device's side of reference/head.h.
//
//   score   s = cap tanh(s0 / cap) - slope |i + off - j| + bias_ij,  s0 = scale t_q t_k <q_i, k_j>
//   slope   ds / ds0 = 1 - tanh^2(s0 / cap), or 1 without softcap
//   values  O = value factor sum_j p_ij keep_ij v_j,  value factor = t_v / (1 - rate)
// in fp32, each operation rounded: tanh is CUDA's tanhf, 1 / (1 - rate) is taken in double and rounded once.
#pragma once
#include "kernels/sequences.cuh"
#include "reference/philox.h"
#include "reference/visible.h"

namespace flashproof::gpu {

/// A number for each entry and head, or for each head (batch_stride 0).
struct ByHead {
  const float* data;  ///< NULL: not given
  int64 batch_stride, head_stride;

  __device__ float at(int64 b, int64 head) const { return data[b * batch_stride + head * head_stride]; }
};

/// [1|B, 1|H, 1|Sq, 1|Sk] of Element or fp32; an axis that is broadcast has stride 0.
template <class Element>
struct Bias {
  const void* data;  ///< NULL: no bias
  bool is_fp32;
  int64 stride[4];

  __device__ float at(const Head& head, int64 i, int64 j) const {
    const int64 n = head.b * stride[0] + head.head * stride[1] + i * stride[2] + j * stride[3];
    return is_fp32 ? static_cast<const float*>(data)[n] : to_fp32(static_cast<const Element*>(data)[n]);
  }
};

struct Score {
  float value, slope;  ///< s, and its derivative by s0
};

template <class Element>
struct ScoreRule {
  Mask mask;
  float scale, softcap;  ///< softcap 0: off
  ByHead slopes, sink, q_descale, k_descale, v_descale;
  Bias<Element> bias;
  uint64 dropout_seed;
  uint32 dropped_words;  ///< dropout_threshold(rate)
  float dropout_factor;  ///< 1 / (1 - rate)

  /// Whether row i attends to key j. A bias of -inf hides a key, as a mask does.
  __device__ bool sees(const Head& head, int64 i, int64 j) const {
    if (!visible(mask, head.rows.length, head.keys.length, i, j)) return false;
    return bias.data == nullptr || bias.at(head, i, j) != -INFINITY;
  }
  __device__ bool sees_any(const Head& head, int64 i) const {
    const KeyRange keys = visible_keys(mask, head.rows.length, head.keys.length, i);
    for (int64 j = keys.begin; j < keys.end; ++j)
      if (sees(head, i, j)) return true;
    return false;
  }
  __device__ bool keeps(const Head& head, int64 i, int64 j) const {
    return dropped_words == 0 || dropout_keeps(dropout_seed, dropped_words, head.b, head.head, i, j);
  }
  /// -infinity without a sink.
  __device__ float sink_of(int64 head) const { return sink.data == nullptr ? -INFINITY : sink.at(0, head); }

  /// scale t_q t_k, the factor of <q_i, k_j>, dQ and dK.
  __device__ float score_factor(const Head& head) const {
    if (q_descale.data == nullptr) return scale;
    return scale * q_descale.at(head.b, head.kv_head) * k_descale.at(head.b, head.kv_head);
  }
  /// t_v / (1 - rate), the factor of O and dV.
  __device__ float value_factor(const Head& head) const {
    return v_descale.data == nullptr ? dropout_factor : v_descale.at(head.b, head.kv_head) * dropout_factor;
  }

  /// `product` is <q_i, k_j>; row i sees key j.
  __device__ Score score(const Head& head, int64 i, int64 j, float product) const {
    Score s = {score_factor(head) * product, 1};
    if (softcap != 0) {
      const float ratio = tanhf(__fdiv_rn(s.value, softcap));
      s = {softcap * ratio, 1 - ratio * ratio};
    }
    if (slopes.data != nullptr) {
      const int64 distance = i + alignment_offset(mask, head.rows.length, head.keys.length) - j;
      s.value -= slopes.at(head.b, head.head) * fabsf(float(distance));
    }
    if (bias.data != nullptr) s.value += bias.at(head, i, j);
    return s;
  }
};

inline ByHead by_head(const flashproof_tensor& t) {
  return {static_cast<const float*>(t.data), t.rank == 2 ? t.stride[0] : 0, t.stride[t.rank == 2 ? 1 : 0]};
}

template <class Element>
ScoreRule<Element> rule_of(const flashproof_call& call) {
  const flashproof_problem& p = *call.problem;
  ScoreRule<Element> rule = {};
  rule.mask = {p.causal != 0, p.top_left != 0, p.window_left, p.window_right};
  rule.scale = p.scale, rule.softcap = p.softcap;
  if (p.alibi != 0) rule.slopes = by_head(call.slopes);
  if (p.sink != 0) rule.sink = by_head(call.sink);
  if (p.descale != 0) {
    rule.q_descale = by_head(call.q_descale), rule.k_descale = by_head(call.k_descale);
    rule.v_descale = by_head(call.v_descale);
  }
  if (p.bias != 0) {
    rule.bias = {call.bias.data, call.bias.dtype == FLASHPROOF_FP32, {}};
    for (int axis = 0; axis < 4; ++axis)
      rule.bias.stride[axis] = call.bias.shape[axis] == 1 ? 0 : call.bias.stride[axis];
  }
  rule.dropout_seed = p.dropout_seed;
  rule.dropped_words = dropout_threshold(p.dropout_rate);
  rule.dropout_factor = float(1 / (1 - double(p.dropout_rate)));
  return rule;
}

}  // namespace flashproof::gpu
