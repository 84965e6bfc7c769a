// Small problems with every feature, and their data, drawn by RapidCheck.
#pragma once
#include <rapidcheck.h>

#include "reference/head_of_inputs.h"

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

}  // namespace flashproof::test
