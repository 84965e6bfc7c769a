// Legal problems and cases with every field of the grammar in use, drawn by RapidCheck.
#pragma once
#include <rapidcheck.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "reference/case.h"

namespace flashproof::test {

/// Uniform on [least, most], whatever RapidCheck's size.
template <class T>
T uniform_in(T least, T most) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<T>(least, T(most + 1)));
}
inline bool one_in(int n) { return uniform_in(0, n - 1) == 0; }

/// Any finite fp32 number, subnormal ones and both zeros included.
inline float any_float() {
  const uint32_t bits = uniform_in<uint32_t>(0, 0xfffffffeu);
  return (bits >> 23 & 0xff) == 0xff ? std::bit_cast<float>(bits & ~0x40000000u) : std::bit_cast<float>(bits);
}

inline Lengths any_lengths(int64_t batch, int64_t longest, bool may_be_packed) {
  Lengths lengths;
  lengths.slot = uniform_in<int64_t>(0, longest);
  const bool packed = may_be_packed && one_in(3), used = one_in(3);
  for (int64_t b = 0; b < batch; ++b) {
    if (packed) lengths.packed.push_back(uniform_in<int64_t>(0, longest));
    if (used) lengths.used.push_back(uniform_in<int64_t>(0, slot_length(lengths, b)));
  }
  return lengths;
}

/// A legal problem; each optional word stands in about a third of them.
inline Problem any_problem(int64_t longest = 9) {
  Problem p;
  p.dtype = DType(uniform_in(0, dtype_count - 1));
  p.batch = uniform_in<int64_t>(1, 4);
  p.kv_heads = uniform_in<int64_t>(1, 3);
  p.heads = p.kv_heads * uniform_in<int64_t>(1, 3);
  if (one_in(4)) p.paging = Paging{uniform_in<uint64_t>(0, UINT64_MAX - 1), uniform_in<int64_t>(1, 16)};
  p.layout.heads_first = !p.paging && one_in(4);
  p.q = any_lengths(p.batch, longest, !p.layout.heads_first);
  p.k = any_lengths(p.batch, longest, !p.layout.heads_first && !p.paging);
  p.head_dim = uniform_in<int64_t>(1, 8);
  p.value_dim = one_in(2) ? p.head_dim : uniform_in<int64_t>(1, 8);
  if (one_in(3)) p.scale = any_float();
  p.mask.causal = one_in(2);
  p.mask.top_left = one_in(3);
  if (one_in(3)) p.mask.window_left = uniform_in<int64_t>(0, longest);
  if (one_in(3)) p.mask.window_right = uniform_in<int64_t>(0, longest);
  if (one_in(3)) p.softcap = std::abs(any_float());
  p.alibi = Alibi(uniform_in(0, 2));
  if (one_in(3)) p.bias = Bias{one_in(2), one_in(2), one_in(2), one_in(2), one_in(2)};
  p.sink = one_in(3);
  if (one_in(3)) p.dropout = Dropout{float(uniform_in(0, 999)) / 1000, uniform_in<uint64_t>(0, UINT64_MAX - 1)};
  p.descale = output_dtype(p) != p.dtype && one_in(2);
  if (one_in(4)) p.layout.row_gap = uniform_in<int64_t>(1, 16);
  p.direction = Direction(uniform_in(0, 2));
  return p;
}

inline std::vector<int64_t> any_map(int64_t extent) {
  std::vector<int64_t> map;
  if (one_in(2)) return map;
  int64_t next = uniform_in<int64_t>(0, 5);
  for (int64_t n = 0; n < extent; ++n, next += one_in(3) ? uniform_in<int64_t>(0, 20) : 1) map.push_back(next);
  if (one_in(4)) std::reverse(map.begin(), map.end());
  return map;
}

/// A case of an arbitrary problem: every family with and without parameters, maps on all axes, edits of q and k.
inline Case any_case() {
  Case c;
  c.problem = any_problem();
  const Problem& p = c.problem;
  c.recipe.family = Family(uniform_in(0, family_count - 1));
  c.recipe.seed = uniform_in<uint64_t>(0, UINT64_MAX - 1);
  const int parameters = default_parameters(c.recipe.family).count;
  if (parameters > 0 && one_in(2)) c.recipe.a = double(uniform_in(1, 1000)) / 7;
  if (parameters > 1 && one_in(2)) c.recipe.b = double(uniform_in(0, 1000)) / 1001;
  if (c.recipe.family == Family::file) {
    const char* paths[] = {"x.safetensors", "/a b/c#d%e.safetensors", "\xc3\xa9=,"};
    c.file.path = paths[uniform_in(0, 2)];
    if (one_in(2)) c.file.layer = "layers.3.";
    if (one_in(2)) c.file.first_row = uniform_in<int64_t>(0, 99);
    if (one_in(2)) c.file.first_head = uniform_in<int64_t>(0, 9);
  }
  c.maps = {any_map(p.batch),
            any_map(max_used_length(p.q, p.batch)),
            any_map(max_used_length(p.k, p.batch)),
            any_map(p.heads),
            any_map(p.kv_heads),
            any_map(p.head_dim),
            any_map(p.value_dim)};
  for (int n = uniform_in(0, 2); n > 0; --n) {
    const int64_t b = uniform_in<int64_t>(0, p.batch - 1);
    const bool query = one_in(2);
    const int64_t length = used_length(query ? p.q : p.k, b), heads = query ? p.heads : p.kv_heads;
    if (length == 0) continue;
    const auto bits = uint32_t(uniform_in<int64_t>(0, (int64_t(1) << format_of(p.dtype).bits) - 1));
    c.sets.push_back({query ? Operand::q : Operand::k, b, uniform_in<int64_t>(0, length - 1),
                      uniform_in<int64_t>(0, heads - 1), uniform_in<int64_t>(0, p.head_dim - 1), bits});
  }
  return c;
}

}  // namespace flashproof::test
