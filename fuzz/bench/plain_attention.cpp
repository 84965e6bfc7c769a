// O = softmax(scale Q K^T) V by online softmax, in double: FlashAttention 2 (2307.08691, Algorithm 1) for one core, the
// tiles of K transposed once, loops plain enough for the compiler to vectorise.
//
// It stands for what a careful programmer writes without a thought for error bounds. So that it is no straw man, this
// file alone is compiled with -O3 and with contraction to fma, for every vector width (reference/wide_vectors.h): as
// -march=native would on this machine, and yet in a program that runs on others.
#include "fuzz/bench/plain_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/wide_vectors.h"

namespace flashproof {
namespace {

constexpr int tile_rows = 16, tile_keys = 64;

/// K by tiles: [keys / 64][head_dim][64].
std::vector<double> transposed_tiles(const PlainHead& head) {
  std::vector<double> tiles(head.k.size());
  for (int64_t j = 0; j < head.keys; ++j)
    for (int64_t x = 0; x < head.head_dim; ++x)
      tiles[(j / tile_keys * head.head_dim + x) * tile_keys + j % tile_keys] = head.k[j * head.head_dim + x];
  return tiles;
}

/// S of one tile, from q [16, d] and k [d, 64].
[[gnu::always_inline]] inline void multiply_scores(int64_t d, const double* __restrict q, const double* __restrict k,
                                                   double (&__restrict s)[tile_rows][tile_keys]) {
  for (auto& row : s) std::fill(row, row + tile_keys, 0.0);
  for (int64_t x = 0; x < d; ++x)
    for (int r = 0; r < tile_rows; ++r)
      for (int n = 0; n < tile_keys; ++n) s[r][n] += q[r * d + x] * k[x * tile_keys + n];
}

[[gnu::always_inline]] inline void multiply_values(int64_t d, const double (&__restrict p)[tile_rows][tile_keys],
                                                   const double* __restrict v, double* __restrict o) {
  for (int n = 0; n < tile_keys; ++n)
    for (int r = 0; r < tile_rows; ++r)
      for (int64_t c = 0; c < d; ++c) o[r * d + c] += p[r][n] * v[n * d + c];
}

}  // namespace

FLASHPROOF_WIDE_VECTORS
std::vector<double> plain_attention(const PlainHead& head) {
  const int64_t d = head.head_dim;
  const std::vector<double> k = transposed_tiles(head);
  std::vector<double> o(head.rows * d, 0.0);
  for (int64_t i = 0; i < head.rows; i += tile_rows) {
    double maximum[tile_rows], sum[tile_rows] = {}, s[tile_rows][tile_keys];
    std::fill(maximum, maximum + tile_rows, -std::numeric_limits<double>::infinity());
    for (int64_t j = 0; j < head.keys; j += tile_keys) {
      multiply_scores(d, &head.q[i * d], &k[j * d], s);
      for (int r = 0; r < tile_rows; ++r) {
        const double before = maximum[r];
        for (double& score : s[r]) maximum[r] = std::max(maximum[r], score *= head.scale);
        const double rescale = std::exp(before - maximum[r]);
        sum[r] *= rescale;
        for (double& p : s[r]) sum[r] += p = std::exp(p - maximum[r]);
        for (int64_t c = 0; c < d; ++c) o[(i + r) * d + c] *= rescale;
      }
      multiply_values(d, s, &head.v[j * d], &o[i * d]);
    }
    for (int r = 0; r < tile_rows; ++r)
      for (int64_t c = 0; c < d; ++c) o[(i + r) * d + c] /= sum[r];
  }
  return o;
}

}  // namespace flashproof
