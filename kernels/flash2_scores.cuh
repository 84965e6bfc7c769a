// Modifiers of scores and weights, one element at a time: the feature set `general`.
//
//   s0 = f <q, k>, f = scale t_q t_k      s1 = cap (1 - 2 / (1 + 2^(s0 2 log2(e) / cap))) = cap tanh(s0 / cap), or s0
//   s = s1 - slope |i + off - j| + bias_ij          a weight that dropout drops is p times 0, which NaN survives
// in fp32, each operation rounded. A bias of -infinity hides its key.
#pragma once
#include "kernels/flash2_mask.cuh"
#include "reference/philox.h"

namespace flashproof::flash2 {

FLASHPROOF_DEVICE float number_of(const ByHead& numbers, int b, int head) {
  return load_global(numbers.data + b * numbers.batch_stride + head * numbers.head_stride);
}

/// What modifies the scores of one head of one entry.
struct ScoreRule {
  float factor, softcap, softcap_argument, slope;
  Bias bias;
  int64 bias_begin;  ///< of the head, in elements
  int offset;        ///< position of row 0
};

FLASHPROOF_DEVICE ScoreRule score_rule_of(const Call& call, int b, int head, int kv_head, int offset) {
  ScoreRule rule = {call.scale, call.softcap, call.softcap_argument, 0, call.bias, 0, offset};
  if (call.q_descale.data != nullptr)
    rule.factor = call.scale * number_of(call.q_descale, b, kv_head) * number_of(call.k_descale, b, kv_head);
  if (call.slopes.data != nullptr) rule.slope = number_of(call.slopes, b, head);
  rule.bias_begin = b * call.bias.stride[0] + head * call.bias.stride[1];
  return rule;
}

template <DType dtype>
FLASHPROOF_DEVICE float bias_of(const ScoreRule& rule, int i, int j) {
  const int64 n = rule.bias_begin + i * rule.bias.stride[2] + j * rule.bias.stride[3];
  return rule.bias.is_fp32 ? load_global(static_cast<const float*>(rule.bias.data) + n)
                           : to_fp32(load_global(static_cast<const Element<dtype>*>(rule.bias.data) + n));
}

/// s of <q_i, k_j>; row i sees key j unless the bias hides it.
template <DType dtype>
FLASHPROOF_DEVICE float score_of(const ScoreRule& rule, int i, int j, float product) {
  float s = rule.factor * product;
  if (rule.softcap != 0) s = rule.softcap * (1 - divide(2, 1 + ex2(s * rule.softcap_argument)));
  const int distance = i + rule.offset - j;
  if (rule.slope != 0) s = s - rule.slope * float(distance < 0 ? -distance : distance);
  if (rule.bias.data == nullptr) return s;
  const float bias = bias_of<dtype>(rule, i, j);
  return bias == -infinity ? bias : s + bias;
}

/// The scores of a tile from products; -infinity where a row does not see the key. Past Sq there is no bias to be read.
template <TileConfig config>
FLASHPROOF_DEVICE void modify_scores(Scores<config>& s, const ScoreRule& rule, const EntryMask& mask, int first_row,
                                     int tile) {
#pragma unroll
  for (int row = 0; row < thread_rows<config>; ++row) {
    const int i = first_row + row * 8 + lane_index() / 4;
    const KeyRange range = i < mask.rows ? mask.range(i) : KeyRange{0, 0};
#pragma unroll
    for (int n = 0; n < config.tile_n / 8; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int j = tile + 8 * n + lane_index() % 4 * 2 + e;
        float& each = s[row / 2][n][row % 2 * 2 + e];
        each = range.begin <= j && j < range.end ? score_of<config.dtype>(rule, i, j, each) : -infinity;
      }
  }
}

/// One call of Philox serves the four weights of a block that a thread holds: rows i and i + 8, keys j and j + 1.
template <TileConfig config>
FLASHPROOF_DEVICE void drop_weights(Scores<config>& p, const Call& call, int b, int head, int first_row, int tile) {
  const uint32 q = uint32(lane_index() % 4), g = uint32(lane_index() / 4);
#pragma unroll
  for (int block = 0; block < row_blocks<config>; ++block)
#pragma unroll
    for (int n = 0; n < config.tile_n / 8; ++n) {
      const uint32 row16 = uint32(first_row / 16 + block), pair = uint32(tile / 2 + 4 * n) + q;
      const Philox words = philox4x32_10({pair, row16 * 8 + g, uint32(head), uint32(b)}, uint32(call.dropout_seed),
                                         uint32(call.dropout_seed >> 32));
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (words.word[e] < call.dropped_words) p[block][n][e] *= 0;
    }
}

}  // namespace flashproof::flash2
