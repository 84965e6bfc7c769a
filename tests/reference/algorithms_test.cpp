// Over a wide number type every algorithm is exact attention, whatever the tile size and the features; the traces of
// the 8-key example; that a wrong algorithm is seen.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <boost/multiprecision/cpp_bin_float.hpp>

#include "reference/errors.h"
#include "reference/flash1.h"
#include "reference/flash3.h"
#include "reference/flash_decoding.h"
#include "reference/online_softmax.h"
#include "reference/standard.h"
#include "reference/trace.h"
#include "tests/reference/small_inputs.h"

namespace flashproof::test {
namespace {

using Wide =
    boost::multiprecision::number<boost::multiprecision::cpp_bin_float_50::backend_type, boost::multiprecision::et_off>;
using Ops = ExactOps<Wide>;
using Forward = std::function<HeadOutputs<Wide>(const Head<Wide>&)>;
using Backward = std::function<void(const Head<Wide>&, const HeadOutputs<Wide>&, HeadGradients<Wide>&)>;

/// 50 digits less what a few hundred operations on numbers up to about 1e3 lose.
bool equal(const Wide& a, const Wide& b) { return abs(a - b) <= Wide("1e-40") * (1 + abs(b)); }

bool equal(const Matrix<Wide>& a, const std::vector<Wide>& b, int64_t first, int64_t step) {
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t c = 0; c < a.columns; ++c)
      if (!equal(a.row(i)[c], b[(first + i * step) * a.columns + c])) return false;
  return true;
}

/// The first head and output in which the algorithm differs from `exact`; "" if none does.
std::string forward_difference(const Inputs& in, const ExactOutputs<Wide>& exact, const Forward& forward) {
  for (int64_t b = 0; b < in.problem.batch; ++b)
    for (int64_t h = 0; h < in.problem.heads; ++h) {
      const HeadIndex at = head_index(in, b, h);
      const HeadOutputs<Wide> out = forward(head_of<Wide>(in, at));
      if (!equal(out.o, exact.o, at.query_row(0), at.heads)) return "O of head " + std::to_string(h);
      for (int64_t i = 0; i < at.seq_q; ++i) {
        const bool minus_infinity = out.l[i] == Ops::minus_infinity();
        if (minus_infinity != exact.l_is_minus_infinity[at.query_row(i)]) return "where L is -infinity";
        if (!minus_infinity && !equal(out.l[i], exact.l[at.query_row(i)])) return "L of head " + std::to_string(h);
      }
    }
  return "";
}

std::string backward_difference(const Inputs& in, const ExactOutputs<Wide>& exact, const Backward& backward) {
  const Problem& p = in.problem;
  std::vector<Wide> dbias(in.bias.size(), Wide(0)), dsink(p.heads, Wide(0));
  for (int64_t b = 0; b < p.batch; ++b) {
    HeadGradients<Wide> gradients;
    for (int64_t h = 0; h < p.heads; ++h) {
      const HeadIndex at = head_index(in, b, h);
      const Head<Wide> head = head_of<Wide>(in, at);
      if (h % (p.heads / p.kv_heads) == 0) {
        gradients.dk = Matrix<Wide>(at.seq_k, p.head_dim);
        gradients.dv = Matrix<Wide>(at.seq_k, p.value_dim);
      }
      gradients.dq = Matrix<Wide>(at.seq_q, p.head_dim);
      gradients.dbias.assign(head.rule.bias.size(), Wide(0));
      gradients.dsink = dsink[h];
      backward(head, flash2_forward(Ops(), head, {1, 1}), gradients);
      finish_gradient(Ops(), gradients.dq, head.rule.scale);
      if (!equal(gradients.dq, exact.dq, at.query_row(0), at.heads)) return "dQ of head " + std::to_string(h);
      dsink[h] = gradients.dsink;
      for (int64_t i = 0; p.bias && i < at.seq_q; ++i)
        for (int64_t j = 0; j < at.seq_k; ++j) dbias[bias_index(in, b, h, i, j)] += gradients.dbias[i * at.seq_k + j];
      if ((h + 1) % (p.heads / p.kv_heads) != 0) continue;
      finish_gradient(Ops(), gradients.dk, head.rule.scale);
      finish_gradient(Ops(), gradients.dv, head.rule.value_factor);
      if (!equal(gradients.dk, exact.dk, at.key_row(0), at.kv_heads)) return "dK of head " + std::to_string(h);
      if (!equal(gradients.dv, exact.dv, at.key_row(0), at.kv_heads)) return "dV of head " + std::to_string(h);
    }
  }
  for (size_t n = 0; n < dbias.size(); ++n)
    if (!equal(dbias[n], exact.dbias[n])) return "dbias";
  for (int64_t h = 0; p.sink && h < p.heads; ++h)
    if (!equal(dsink[h], exact.dsink[h])) return "dsink of head " + std::to_string(h);
  return "";
}

/// The forwards that have tiles.
struct TiledForward {
  const char* name;
  std::function<HeadOutputs<Wide>(const Head<Wide>&, TileSize)> run;
};
const std::vector<TiledForward> tiled_forwards = {
    {"online_softmax", [](auto& head, TileSize tile) { return online_softmax_forward(Ops(), head, tile); }},
    {"rabe_staats", [](auto& head, TileSize tile) { return rabe_staats_forward(Ops(), head, tile); }},
    {"flash1", [](auto& head, TileSize tile) { return flash1_forward(Ops(), head, tile); }},
    {"flash2", [](auto& head, TileSize tile) { return flash2_forward(Ops(), head, tile); }},
    {"flash3", [](auto& head, TileSize tile) { return flash3_forward(Ops(), head, tile, false); }},
    {"flash3 in two levels", [](auto& head, TileSize tile) { return flash3_forward(Ops(), head, tile, true); }},
    {"flash_decoding", [](auto& head, TileSize tile) { return flash_decoding_forward(Ops(), head, tile, tile.rows); }},
};

struct TiledBackward {
  const char* name;
  std::function<void(const Head<Wide>&, TileSize, const HeadOutputs<Wide>&, HeadGradients<Wide>&)> run;
};
const std::vector<TiledBackward> tiled_backwards = {
    {"flash1", [](auto& head, TileSize tile, auto& stored,
                  auto& out) { flash1_backward(Ops(), head, tile, stored.o, stored.l, out); }},
    {"flash2", [](auto& head, TileSize tile, auto& stored,
                  auto& out) { flash2_backward(Ops(), head, tile, stored.o, stored.l, out); }},
};

Inputs draw_case(int64_t longest) { return draw_inputs(draw_problem(DType::bf16, longest)); }

RC_GTEST_PROP(algorithms, forward_is_exact_attention, ()) {
  const Inputs in = draw_case(9);
  const TileSize tile{draw(1, 10), draw(1, 10)};
  const auto exact = exact_attention<Wide>(in);
  RC_LOG() << print(in.problem) << " tile " << tile.rows << "x" << tile.keys;
  RC_ASSERT(forward_difference(in, exact, [](auto& head) { return standard_forward(Ops(), head); }) == "");
  RC_ASSERT(forward_difference(in, exact, [](auto& head) { return rabe_staats_recurrence(Ops(), head); }) == "");
  for (const TiledForward& forward : tiled_forwards) {
    RC_LOG() << " " << forward.name;
    RC_ASSERT(forward_difference(in, exact, [&](auto& head) { return forward.run(head, tile); }) == "");
  }
}

RC_GTEST_PROP(algorithms, backward_is_exact_attention, ()) {
  const Inputs in = draw_case(7);
  const TileSize tile{draw(1, 8), draw(1, 8)};
  const auto exact = exact_attention<Wide>(in);
  RC_LOG() << print(in.problem) << " tile " << tile.rows << "x" << tile.keys;
  RC_ASSERT(backward_difference(in, exact, [](auto& head, auto& stored, auto& out) {
              standard_backward(Ops(), head, stored.o, stored.l, out);
            }) == "");
  for (const TiledBackward& backward : tiled_backwards) {
    RC_LOG() << " " << backward.name;
    RC_ASSERT(backward_difference(in, exact, [&](auto& head, auto& stored, auto& out) {
                backward.run(head, tile, stored, out);
              }) == "");
  }
}

/// P of a head from its scores and L: what Algorithm 0 stores.
Matrix<Wide> stored_p(const Head<Wide>& head, const std::vector<Wide>& l) {
  Matrix<Wide> p = score_tile(Ops(), head, {0, head.seq_q()}, {0, head.seq_k()});
  for (int64_t i = 0; i < p.rows; ++i)
    for (int64_t j = 0; j < p.columns; ++j)
      p.row(i)[j] = sees(head.rule, i, j) ? Ops().exp(p.row(i)[j] - l[i]) : Wide(0);
  return p;
}

RC_GTEST_PROP(algorithms, standard_backward_from_stored_p_is_exact, ()) {
  Problem p = draw_problem(DType::bf16, 7);
  p.softcap = 0;
  p.bias.reset();
  p.sink = false;
  const Inputs in = draw_inputs(p);
  RC_LOG() << print(p);
  RC_ASSERT(backward_difference(in, exact_attention<Wide>(in), [](auto& head, auto& stored, auto& out) {
              standard_backward_stored(Ops(), head, stored_p(head, stored.l), out);
            }) == "");
}

/// Every tile size from one key to more than there are, on one problem with many features.
TEST(algorithms, every_tile_size) {
  Problem p;
  p.heads = 2;
  p.q.slot = 3;
  p.k.slot = 11;
  p.head_dim = p.value_dim = 3;
  p.mask.causal = p.sink = true;
  p.softcap = 3;
  p.dropout = Dropout{0.25f, 5};
  p.direction = Direction::backward;
  Case c;
  c.problem = p;
  const Inputs in = make_inputs(c);
  const auto exact = exact_attention<Wide>(in);
  for (int64_t keys = 1; keys <= 12; ++keys)
    for (int64_t rows = 1; rows <= 4; ++rows) {
      const TileSize tile{rows, keys};
      for (const TiledForward& forward : tiled_forwards)
        EXPECT_EQ(forward_difference(in, exact, [&](auto& head) { return forward.run(head, tile); }), "")
            << forward.name << " " << rows << "x" << keys;
      for (const TiledBackward& backward : tiled_backwards)
        EXPECT_EQ(backward_difference(
                      in, exact, [&](auto& head, auto& stored, auto& out) { backward.run(head, tile, stored, out); }),
                  "")
            << backward.name << " " << rows << "x" << keys;
    }
}

/// The same operations in the same order: FlashAttention 3 in one level is FlashAttention 2 with the keys' tiles
/// reversed. On whole tiles without a mask that is the head with its tiles of keys in reverse order, bit for bit in
/// fp32.
TEST(algorithms, flash3_is_flash2_from_the_last_tile) {
  Case c;
  c.problem.q.slot = 5;
  c.problem.k.slot = 12;
  c.problem.head_dim = c.problem.value_dim = 8;
  const Inputs in = make_inputs(c);
  Head<float> head = head_of<float>(in, head_index(in, 0, 0)), reversed = head;
  for (int64_t j = 0; j < 12; ++j)
    for (int64_t channel = 0; channel < 8; ++channel) {
      const int64_t from = (2 - j / 4) * 4 + j % 4;
      reversed.k.row(j)[channel] = head.k.row(from)[channel];
      reversed.v.row(j)[channel] = head.v.row(from)[channel];
    }
  reversed.k_t = transpose(reversed.k);
  reversed.v_t = transpose(reversed.v);
  RoundedOps ops;
  ops.p_format = DType::bf16;
  const HeadOutputs<float> a = flash3_forward(ops, head, {2, 4}, false), b = flash2_forward(ops, reversed, {2, 4});
  EXPECT_EQ(a.o.data, b.o.data);
  EXPECT_EQ(a.l, b.l);
  EXPECT_NE(a.o.data, flash2_forward(ops, head, {2, 4}).o.data);
  EXPECT_NE(a.o.data, flash3_forward(ops, head, {2, 4}, true).o.data);
}

/// No rescale of earlier sums, and no D: what the properties must not let pass.
struct NoRescale : Ops {
  void rescale(Wide*, int64, const Wide&) const {}
};
struct NoRowSum : Ops {
  Wide row_sum(const Wide*, int64, const Wide&) const { return Wide(0); }
};

Inputs six_keys() {
  Case c;
  c.problem.k.slot = 6;
  c.problem.head_dim = c.problem.value_dim = 2;
  c.problem.direction = Direction::backward;
  return make_inputs(c);
}

/// A row of which dropout drops every key still has O = NaN where its q holds NaN; the row beside it has O = 0.
TEST(algorithms, nan_reaches_o_where_every_key_is_dropped) {
  Case c;
  c.problem.q.slot = 2;
  c.problem.k.slot = 6;
  c.problem.head_dim = c.problem.value_dim = 2;
  const Inputs in = make_inputs(c);
  Head<Wide> head = head_of<Wide>(in, head_index(in, 0, 0));
  head.rule.has_dropout = true;
  head.rule.dropout_words = 0xffffffffu;
  head.q.row(0)[1] = std::numeric_limits<Wide>::quiet_NaN();
  const auto expect_nan = [](const HeadOutputs<Wide>& out, const char* name) {
    EXPECT_TRUE(isnan(out.l[0])) << name;
    EXPECT_FALSE(isnan(out.l[1])) << name;
    for (int64 channel = 0; channel < 2; ++channel) {
      EXPECT_TRUE(isnan(out.o.row(0)[channel])) << name;
      EXPECT_EQ(out.o.row(1)[channel], 0) << name;
    }
  };
  expect_nan(standard_forward(Ops(), head), "standard");
  for (const TiledForward& forward : tiled_forwards) expect_nan(forward.run(head, {2, 2}), forward.name);
}

TEST(algorithms, a_missing_rescale_is_seen) {
  const Inputs in = six_keys();
  const auto exact = exact_attention<Wide>(in);
  const NoRescale wrong;
  const TileSize tile{1, 1};
  const auto difference = [&](const Forward& forward) { return forward_difference(in, exact, forward); };
  for (const TiledForward& forward : tiled_forwards)
    EXPECT_EQ(difference([&](auto& head) { return forward.run(head, tile); }), "") << forward.name;
  EXPECT_EQ(difference([&](auto& head) { return rabe_staats_forward(wrong, head, tile); }), "O of head 0");
  EXPECT_EQ(difference([&](auto& head) { return flash1_forward(wrong, head, tile); }), "O of head 0");
  EXPECT_EQ(difference([&](auto& head) { return flash2_forward(wrong, head, tile); }), "O of head 0");
  EXPECT_EQ(difference([&](auto& head) { return flash3_forward(wrong, head, tile, false); }), "O of head 0");
  EXPECT_EQ(difference([&](auto& head) { return flash_decoding_forward(wrong, head, tile, 2); }), "O of head 0");
}

TEST(algorithms, a_missing_row_sum_of_the_backward_is_seen) {
  const Inputs in = six_keys();
  const auto exact = exact_attention<Wide>(in);
  const NoRowSum wrong;
  const TileSize tile{1, 2};
  const auto difference = [&](const Backward& backward) { return backward_difference(in, exact, backward); };
  for (const TiledBackward& backward : tiled_backwards)
    EXPECT_EQ(difference([&](auto& head, auto& stored, auto& out) { backward.run(head, tile, stored, out); }), "");
  EXPECT_EQ(difference([&](auto& head, auto& stored, auto& out) {
              flash1_backward(wrong, head, tile, stored.o, stored.l, out);
            }),
            "dQ of head 0");
  EXPECT_EQ(difference([&](auto& head, auto& stored, auto& out) {
              flash2_backward(wrong, head, tile, stored.o, stored.l, out);
            }),
            "dQ of head 0");
  EXPECT_EQ(difference([&](auto& head, auto& stored, auto& out) {
              standard_backward_stored(wrong, head, stored_p(head, stored.l), out);
            }),
            "dQ of head 0");
}

const std::vector<double> example_scores = {2, 1, 0.5, 3, -1, 2.5, 0, 4};
const std::vector<double> example_values = {10, 20, 30, 40, 50, 60, 70, 80};

TEST(trace, eight_keys_in_tiles_of_four) {
  const std::vector<TraceStep> steps = trace("flash2", example_scores, example_values, 4);
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].maximum, 3);
  EXPECT_NEAR(*steps[0].output, 30.81, 0.005);
  EXPECT_EQ(steps[1].maximum, 4);
  EXPECT_NEAR(steps[1].rescale, std::exp(-1.0), 1e-15);
  EXPECT_NEAR(*steps[1].output, 61.69, 0.005);
}

TEST(trace, flash3_starts_with_the_last_tile) {
  const std::vector<TraceStep> steps = trace("flash3", example_scores, example_values, 4);
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].first_key, 4);
  EXPECT_NEAR(*steps[0].output, 76.12, 0.005);
  EXPECT_EQ(steps[1].rescale, 1);
  EXPECT_NEAR(*steps[1].output, 61.69, 0.005);
}

TEST(trace, flash1_keeps_the_normalised_output_that_flash2_ends_with) {
  for (int64 tile = 1; tile <= 9; ++tile) {
    const std::vector<TraceStep> one = trace("flash1", example_scores, example_values, tile);
    const std::vector<TraceStep> two = trace("flash2", example_scores, example_values, tile);
    ASSERT_EQ(one.size(), two.size());
    for (size_t n = 0; n < one.size(); ++n) EXPECT_NEAR(*one[n].output, *two[n].output, 1e-10) << tile << " step " << n;
  }
}

TEST(trace, rabe_staats_combines_chunks_that_know_nothing_of_each_other) {
  const std::vector<TraceStep> steps = trace("rabe_staats", example_scores, example_values, 4);
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_NEAR(*steps[0].output, 30.81, 0.005);
  EXPECT_NEAR(*steps[1].output, 76.12, 0.005);
  EXPECT_EQ(steps[2].phase, "combine");
}

TEST(trace, every_algorithm_and_tile_ends_at_the_exact_output) {
  for (const std::string& algorithm : traced_algorithms())
    for (int64 tile = 1; tile <= 9; ++tile)
      EXPECT_NEAR(*trace(algorithm, example_scores, example_values, tile).back().output, 61.6894444404, 1e-10)
          << algorithm << " tile " << tile;
}

TEST(trace, refuses_what_makes_no_row) {
  EXPECT_THROW(trace("flash2", {}, {}, 4), UsageError);
  EXPECT_THROW(trace("flash2", {1}, {1, 2}, 4), UsageError);
  EXPECT_THROW(trace("flash2", {1}, {1}, 0), UsageError);
  EXPECT_THROW(trace("flash22", {1}, {1}, 1), UsageError);
}

}  // namespace
}  // namespace flashproof::test
