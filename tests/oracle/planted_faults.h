// The 13 forward faults whose detection by other projects' rules is known (peers' tolerances, measured), in one small
// kernel.
//
// The kernel is tiled online softmax, tiles of 128 keys, scores and sums in fp32, P in bf16, no mask.
#pragma once
#include <cmath>

#include "reference/attention.h"
#include "reference/inputs.h"

namespace flashproof::test {

enum class Fault {
  none,
  last_key_dropped,
  pad_key_in_row_sum,
  tile_skipped,
  scale_one_percent,
  scale_one_permille,
  p_in_e4m3,
  row_not_rescaled,
  row_sum_two_percent,
  row_sum_in_bf16,
  accumulator_in_bf16,
  l_in_base_2,
  element_zeroed,
  neighbour_row,
};
constexpr int fault_count = 14;
constexpr const char* fault_names[fault_count] = {"none",
                                                  "last key dropped",
                                                  "zero-scored pad key in the row sum",
                                                  "one KV tile skipped",
                                                  "scale +1 %",
                                                  "scale +0.1 %",
                                                  "P rounded to e4m3",
                                                  "one row not rescaled",
                                                  "row sum 2 % wrong in 1/16 of the rows",
                                                  "row sum in bf16",
                                                  "accumulator in bf16 between tiles",
                                                  "L in base 2",
                                                  "one element zeroed",
                                                  "16 bytes from the neighbour row"};

struct FaultyRow {
  std::vector<float> o;
  float l;
};

/// Row i of a head whose decoded k and v are [Sk][d].
inline FaultyRow faulty_row(const Inputs& in, const std::vector<double>& k, const std::vector<double>& v, int64_t i,
                            int64_t h, Fault fault) {
  const int64_t d = in.problem.head_dim, keys = in.packing.seq_k(0), tile = 128;
  const auto is = [&](Fault other) { return fault == other; };
  const float scale = scale_of(in.problem) * (is(Fault::scale_one_percent)    ? 1.01f
                                              : is(Fault::scale_one_permille) ? 1.001f
                                                                              : 1.0f);
  std::vector<float> q(d), accumulator(d, 0), p(tile);
  for (int64_t c = 0; c < d; ++c) q[c] = float(in.q.at((i * in.problem.heads + h) * d + c));
  float maximum = -INFINITY, sum = 0;
  const int64_t end = keys - (is(Fault::last_key_dropped) ? 1 : 0);
  for (int64_t first = 0; first < end; first += tile) {
    if (is(Fault::tile_skipped) && h == 0 && i < 128 && first == tile) continue;
    const int64_t last = std::min(first + tile, end);
    float top = maximum;
    for (int64_t j = first; j < last; ++j) {
      float s = 0;
      for (int64_t c = 0; c < d; ++c) s += q[c] * float(k[j * d + c]);
      p[j - first] = s * scale;
      top = std::max(top, p[j - first]);
    }
    const float rescale = std::exp(maximum - top);
    sum *= rescale;
    if (!(is(Fault::row_not_rescaled) && h == 0 && i % 128 == 5))
      for (float& x : accumulator) x *= rescale;
    for (int64_t j = first; j < last; ++j) {
      const float weight = std::exp(p[j - first] - top);
      sum += weight;
      if (is(Fault::row_sum_in_bf16)) sum = float(round_to(DType::bf16, sum));
      const float rounded = float(round_to(is(Fault::p_in_e4m3) ? DType::e4m3 : DType::bf16, weight));
      for (int64_t c = 0; c < d; ++c) accumulator[c] += rounded * float(v[j * d + c]);
    }
    if (is(Fault::accumulator_in_bf16))
      for (float& x : accumulator) x = float(round_to(DType::bf16, x));
    maximum = top;
  }
  if (is(Fault::pad_key_in_row_sum)) sum += std::exp(0.0f - maximum);
  if (is(Fault::row_sum_two_percent) && h == 0 && i % 16 == 3) sum *= 1.02f;
  FaultyRow row{std::vector<float>(d), maximum + std::log(sum)};
  if (is(Fault::l_in_base_2)) row.l *= 1.44269504f;
  for (int64_t c = 0; c < d; ++c) row.o[c] = float(round_to(DType::bf16, accumulator[c] / sum));
  return row;
}

/// O and L of the whole problem: one entry, as many kv heads as heads, d = dv.
inline void faulty_forward(const Inputs& in, Fault fault, Outputs& out) {
  const Problem& p = in.problem;
  const int64_t d = p.head_dim, rows = in.packing.seq_q(0), keys = in.packing.seq_k(0);
  out = make_outputs(p);
  std::vector<double> k(keys * d), v(keys * d);
  for (int64_t h = 0; h < p.heads; ++h) {
    for (int64_t j = 0; j < keys; ++j)
      for (int64_t c = 0; c < d; ++c) {
        k[j * d + c] = in.k.at((j * p.heads + h) * d + c);
        v[j * d + c] = in.v.at((j * p.heads + h) * d + c);
      }
    for (int64_t i = 0; i < rows; ++i) {
      const FaultyRow row = faulty_row(in, k, v, i, h, fault);
      const int64_t flat = i * p.heads + h;
      out.lse.set_bits(flat, encode(DType::fp32, row.l));
      for (int64_t c = 0; c < d; ++c) out.o.set_bits(flat * d + c, encode(DType::bf16, row.o[c]));
    }
  }
  const int64_t step = p.heads * d;
  if (fault == Fault::element_zeroed) out.o.set_bits(7 * step + 3, 0);
  if (fault == Fault::neighbour_row)
    for (int64_t c = 8; c < 16; ++c) out.o.set_bits(9 * step + c, out.o.bits(10 * step + c));
}

}  // namespace flashproof::test
