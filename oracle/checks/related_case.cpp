// Edits of a case by index maps and lengths; see related_case.h.
#include "oracle/checks/related_case.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace flashproof {
namespace {

/// The list of source positions written out.
std::vector<int64_t> sources(const std::vector<int64_t>& map, int64_t extent) {
  if (!map.empty()) return map;
  std::vector<int64_t> identity(extent);
  std::iota(identity.begin(), identity.end(), 0);
  return identity;
}

Lengths lengths_of_entry(const Lengths& all, int64_t b) {
  Lengths one = all;
  if (!all.packed.empty()) one.packed = {all.packed[b]};
  if (!all.used.empty()) one.used = {all.used[b]};
  return one;
}

/// Whether the element's first index is an entry of the batch.
bool is_of_entry(const Problem& p, const SetElement& set) {
  if (set.operand == Operand::bias) return p.bias->batch;
  if (set.operand == Operand::slope) return p.alibi == Alibi::per_batch_and_head;
  return set.operand != Operand::sink;
}

}  // namespace

uint64_t choose(const Case& c, uint64_t purpose, uint64_t count) {
  // The finaliser of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
  uint64_t x = c.recipe.seed + (purpose + 1) * 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return (x ^ x >> 31) % count;
}

Case entry_alone(const Case& c, int64_t b) {
  Case alone = c;
  Problem& p = alone.problem;
  p.batch = 1;
  p.q = lengths_of_entry(p.q, b);
  p.k = lengths_of_entry(p.k, b);
  alone.maps.batches = {sources(c.maps.batches, c.problem.batch)[b]};
  const int64_t rows = max_used_length(p.q, 1), keys = max_used_length(p.k, 1);
  if (!alone.maps.rows.empty()) alone.maps.rows.resize(rows);
  if (!alone.maps.keys.empty()) alone.maps.keys.resize(keys);
  std::erase_if(alone.sets, [&](const SetElement& set) {
    const bool outside = set.operand == Operand::bias && (set.position >= rows || set.channel >= keys);
    return outside || (is_of_entry(c.problem, set) && set.b != b);
  });
  for (SetElement& set : alone.sets) set.b = 0;
  return alone;
}

Case with_neighbour(const Case& c) {
  Case crowded = c;
  Problem& p = crowded.problem;
  ++p.batch;
  for (Lengths* lengths : {&p.q, &p.k})
    for (std::vector<int64_t>* list : {&lengths->packed, &lengths->used})
      if (!list->empty()) list->push_back(list->back());
  crowded.maps.batches = sources(c.maps.batches, c.problem.batch);
  crowded.maps.batches.push_back(*std::max_element(crowded.maps.batches.begin(), crowded.maps.batches.end()) + 1);
  return crowded;
}

Case keys_permuted(const Case& c) {
  Case permuted = c;
  const Problem& p = c.problem;
  std::vector<int64_t> ends = {0};
  for (int64_t b = 0; b < p.batch; ++b) ends.push_back(used_length(p.k, b));
  std::sort(ends.begin(), ends.end());
  std::vector<int64_t>& keys = permuted.maps.keys = sources(c.maps.keys, ends.back());
  for (size_t n = 1; n < ends.size(); ++n)
    for (int64_t j = ends[n] - 1; j > ends[n - 1]; --j)
      std::swap(keys[j], keys[ends[n - 1] + int64_t(choose(c, uint64_t(j) + 16, uint64_t(j - ends[n - 1] + 1)))]);
  return permuted;
}

Case keys_between(const Case& c, int64_t begin, int64_t end) {
  Case part = c;
  Lengths& k = part.problem.k;
  const std::vector<int64_t> keys = sources(c.maps.keys, max_used_length(k, c.problem.batch));
  const auto clip = [&](int64_t& length) { length = std::clamp<int64_t>(length - begin, 0, end - begin); };
  clip(k.slot);
  std::for_each(k.packed.begin(), k.packed.end(), clip);
  std::for_each(k.used.begin(), k.used.end(), clip);
  part.maps.keys.assign(keys.begin() + begin, keys.begin() + end);
  return part;
}

Case last_row(const Case& c) {
  Case last = c;
  Lengths& q = last.problem.q;
  const int64_t rows = used_length(q, 0);
  last.maps.rows = {sources(c.maps.rows, rows)[rows - 1]};
  q = Lengths{.slot = 1, .packed = std::vector<int64_t>(q.packed.empty() ? 0 : 1, 1), .used = {}};
  return last;
}

Case scores_shifted(const Case& c, float shift) {
  Case shifted = c;
  shifted.problem.bias = Bias{.fp32 = true};
  shifted.sets.push_back({.operand = Operand::bias, .bits = std::bit_cast<uint32_t>(shift)});
  return shifted;
}

}  // namespace flashproof
