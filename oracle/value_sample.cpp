// Which rows of a large problem are evaluated (contract in oracle/value.h).
#include <algorithm>

#include "oracle/value.h"
#include "reference/attention.h"

namespace flashproof {
namespace {

/// Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014 (SplitMix64).
uint64_t draw(uint64_t& state) {
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/// First and last position and both sides of the first two tile edges and of the last, tile <= 0: none.
std::vector<int64_t> edges(int64_t count, int64_t tile) {
  std::vector<int64_t> positions = {0, count - 1};
  if (tile > 0)
    for (int64_t edge : {tile, 2 * tile, (count - 1) / tile * tile})
      positions.insert(positions.end(), {edge - 1, edge, edge + 1});
  std::erase_if(positions, [&](int64_t position) { return position < 0 || position >= count; });
  return positions;
}

void sort_unique(std::vector<int64_t>& rows) {
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
}

/// Multiply-adds of one query row of an entry, forward (twice for radii and sizes) and dQ.
double query_row_work(const Problem& p, int64_t seq_k) {
  const double forward = double(p.head_dim) + 2.0 * double(p.value_dim);
  return double(seq_k) * (forward + (has_backward(p) ? double(p.value_dim) + 2.0 * double(p.head_dim) : 0));
}
/// Multiply-adds of one key: scores, g, dK and dV over the query rows of its group.
double key_row_work(const Problem& p, int64_t seq_q) {
  return double(p.heads / p.kv_heads) * double(seq_q) * 3.0 * double(p.head_dim + p.value_dim);
}

void sample_keys(const Problem& p, const Packing& packing, double budget, int64_t tile, uint64_t& state,
                 Sample& sample) {
  const int64_t b = int64_t(draw(state) % uint64_t(p.batch)), kv_head = int64_t(draw(state) % uint64_t(p.kv_heads));
  const int64_t seq_q = packing.seq_q(b), seq_k = packing.seq_k(b);
  const double rows_work = double(p.heads / p.kv_heads) * double(seq_q) * query_row_work(p, seq_k);
  const auto room = int64_t((budget - rows_work) / std::max(1.0, key_row_work(p, seq_q)));
  if (room < 2 || seq_k == 0) return;
  std::vector<int64_t> keys = edges(seq_k, tile);
  while (std::ssize(keys) < std::min(room, seq_k)) keys.push_back(int64_t(draw(state) % uint64_t(seq_k)));
  keys.resize(std::min(room, int64_t(keys.size())));
  for (int64_t j : keys) sample.key_rows.push_back((packing.k_begin[b] + j) * p.kv_heads + kv_head);
}

}  // namespace

Sample sample_rows(const Problem& p, double budget, int64_t tile_m, int64_t tile_n,
                   const std::vector<int64_t>& extra_query_rows, uint64_t seed) {
  const Packing packing = packing_of(p);
  double work = 0;
  for (int64_t b = 0; b < p.batch; ++b) {
    work += double(p.heads) * double(packing.seq_q(b)) * query_row_work(p, packing.seq_k(b));
    if (has_backward(p)) work += double(p.kv_heads) * double(packing.seq_k(b)) * key_row_work(p, packing.seq_q(b));
  }
  if (work <= budget) return {};

  uint64_t state = seed;
  Sample sample{.all = false, .query_rows = extra_query_rows, .key_rows = {}};
  double spent = 0;
  const auto add = [&](int64_t b, int64_t i, int64_t h) {
    sample.query_rows.push_back((packing.q_begin[b] + i) * p.heads + h);
    spent += query_row_work(p, packing.seq_k(b));
  };
  const double room = has_backward(p) ? budget / 2 : budget;
  for (int64_t b = 0; b < p.batch; ++b) {
    const int64_t seq_q = packing.seq_q(b);
    for (int64_t i : edges(seq_q, tile_m))
      if (i == 0 || i == seq_q - 1 || spent < room) add(b, i, int64_t(draw(state) % uint64_t(p.heads)));
  }
  const int64_t rows = packing.total_q();
  for (int64_t tries = 0; spent < room && rows > 0 && tries < rows * p.heads; ++tries) {
    const auto row = int64_t(draw(state) % uint64_t(rows));
    const int64_t b =
        std::upper_bound(packing.q_begin.begin(), packing.q_begin.end(), row) - packing.q_begin.begin() - 1;
    add(b, row - packing.q_begin[b], int64_t(draw(state) % uint64_t(p.heads)));
  }
  if (has_backward(p)) sample_keys(p, packing, budget / 2, tile_n, state, sample);
  sort_unique(sample.query_rows);
  sort_unique(sample.key_rows);
  return sample;
}

}  // namespace flashproof
