// The closed form of each cost against the count of the running algorithm, and counts that can be done by hand.
#include "reference/cost.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "reference/errors.h"
#include "tests/reference/small_inputs.h"

namespace flashproof::test {
namespace {

/// A problem that the published algorithms have words for.
Problem draw_published_problem(bool backward) {
  Problem p = draw_problem(DType(draw(0, dtype_count - 1)), 13);
  p.softcap = 0;
  p.alibi = Alibi::none;
  p.bias.reset();
  p.sink = false;
  p.dropout.reset();
  p.descale = false;
  if (backward) p.kv_heads = p.heads;
  return p;
}

/// Where two costs differ; "" if nowhere.
std::string difference(const Cost& a, const Cost& b) {
  const auto unequal = [](const char* what, int64 x, int64 y) {
    return std::string(what) + ": " + std::to_string(x) + " by running, " + std::to_string(y) + " in closed form; ";
  };
  std::string text;
  const auto compare = [&](const std::string& what, int64 x, int64 y) {
    if (x != y) text += unequal(what.c_str(), x, y);
  };
  compare("multiply-adds", a.operations.multiply_adds, b.operations.multiply_adds);
  compare("exponentials", a.operations.exponentials, b.operations.exponentials);
  compare("logarithms", a.operations.logarithms, b.operations.logarithms);
  compare("additions", a.operations.additions, b.operations.additions);
  compare("multiplications", a.operations.multiplications, b.operations.multiplications);
  compare("divisions", a.operations.divisions, b.operations.divisions);
  compare("comparisons", a.operations.comparisons, b.operations.comparisons);
  for (int n = 0; n < array_count; ++n) {
    const std::string name = name_of(Array(n));
    const ArrayCost &x = a[Array(n)], &y = b[Array(n)];
    compare(name + " loaded", x.loaded, y.loaded);
    compare(name + " stored", x.stored, y.stored);
    compare(name + " extent", x.extent, y.extent);
    compare(name + " on chip", x.tile_bytes, y.tile_bytes);
  }
  return text;
}

RC_GTEST_PROP(cost, closed_form_is_the_count_of_the_run, ()) {
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    const Problem p = draw_published_problem(pass == Pass::backward);
    const Schedule schedule{{draw(1, 15), draw(1, 15)}, draw(1, 6)};
    for (const std::string& algorithm : costed_algorithms()) {
      if (pass == Pass::backward && !has_costed_backward(algorithm)) continue;
      const Cost counted = cost_by_running(p, algorithm, pass, schedule);
      RC_LOG() << print(p) << " " << algorithm << (pass == Pass::forward ? " forward " : " backward ")
               << schedule.tile.rows << "x" << schedule.tile.keys << " parts " << schedule.parts << "\n";
      RC_ASSERT(difference(counted, cost_closed_form(p, algorithm, pass, schedule)) == "");
    }
  }
}

/// What the property must not let pass: the form of another algorithm, pass or tile.
TEST(cost, a_wrong_form_is_seen) {
  const Problem p = parse_problem("bf16 h2 q20 k24 d8 causal bwd");
  const Schedule schedule{{4, 6}, 3}, other{{4, 5}, 3};
  const Cost run = cost_by_running(p, "flash2", Pass::forward, schedule);
  EXPECT_EQ(difference(run, cost_closed_form(p, "flash2", Pass::forward, schedule)), "");
  EXPECT_NE(difference(run, cost_closed_form(p, "flash2", Pass::forward, other)), "");
  EXPECT_NE(difference(run, cost_closed_form(p, "flash1", Pass::forward, schedule)), "");
  EXPECT_NE(difference(run, cost_closed_form(p, "flash2", Pass::backward, schedule)), "");
}

/// The moves of a run are its traffic, line by line.
TEST(cost, moves_add_up_to_the_traffic) {
  const Problem p = parse_problem("bf16 b2 h3 q70 k90 d8 causal");
  for (const std::string& algorithm : costed_algorithms()) {
    const Cost cost = cost_by_running(p, algorithm, Pass::forward, {{16, 32}, 2});
    std::array<ArrayCost, array_count> sums{};
    for (const Move& move : cost.moves) {
      ArrayCost& sum = sums[size_t(move.array)];
      (move.is_store ? sum.stored : sum.loaded) += move.elements;
      EXPECT_FALSE(move.source.empty());
    }
    for (size_t a = 0; a < sums.size(); ++a) {
      EXPECT_EQ(sums[a].loaded, cost.arrays[a].loaded) << algorithm;
      EXPECT_EQ(sums[a].stored, cost.arrays[a].stored) << algorithm;
    }
  }
}

/// By hand, for N = 4 tokens in tiles of 2 by 2, d = 8, one head, bf16.
TEST(cost, counts_done_by_hand) {
  const Problem p = parse_problem("bf16 q4 k4 d8 bwd");
  const Schedule schedule{{2, 2}, 1};
  // Algorithm 0: Q, K, V read and O written once; S and P written and read.
  const Cost standard = cost_by_running(p, "standard", Pass::forward, schedule);
  EXPECT_EQ(loaded_bytes(p, standard), 2 * (3 * 32 + 2 * 16));
  EXPECT_EQ(stored_bytes(p, standard), 2 * (32 + 2 * 16));
  EXPECT_EQ(extra_bytes(p, standard), 2 * 2 * 16);
  EXPECT_EQ(standard.operations.multiply_adds, 2 * 16 * 8);
  // FlashAttention 2: Q once, K and V once for each of two tiles of rows, O once, L in fp32.
  const Cost flash2 = cost_by_running(p, "flash2", Pass::forward, schedule);
  EXPECT_EQ(loaded_bytes(p, flash2), 2 * 5 * 32);
  EXPECT_EQ(stored_bytes(p, flash2), 2 * 32 + 4 * 4);
  EXPECT_EQ(extra_bytes(p, flash2), 4 * 4);
  EXPECT_EQ(flash2.operations.exponentials, 16 + 2 * 4);  // P, and a rescale of each row for each of two tiles
  // FlashAttention 1: K and V once; Q, O, l and m for each of two tiles of keys, the last three also back and at first.
  const Cost flash1 = cost_by_running(p, "flash1", Pass::forward, schedule);
  EXPECT_EQ(loaded_bytes(p, flash1), 2 * 6 * 32 + 4 * 2 * 8);
  EXPECT_EQ(stored_bytes(p, flash1), 2 * 3 * 32 + 4 * 2 * 12);
  // Backward: four products in Algorithm 3, which reads P; five where S is computed again.
  EXPECT_EQ(cost_by_running(p, "standard", Pass::backward, schedule).operations.multiply_adds, 4 * 16 * 8);
  for (const char* algorithm : {"flash1", "flash2", "flash3"})
    EXPECT_EQ(cost_by_running(p, algorithm, Pass::backward, schedule).operations.multiply_adds, 5 * 16 * 8);
}

/// Under a causal mask only the tiles at and below the diagonal are visited.
TEST(cost, hidden_tiles_are_passed_over) {
  const Cost cost = cost_by_running(parse_problem("bf16 q64 k64 d8 causal"), "flash2", Pass::forward, {{16, 16}, 1});
  EXPECT_EQ(cost.operations.multiply_adds, 10 * 16 * 16 * (8 + 8));
}

TEST(cost, extra_memory_is_quadratic_or_linear) {
  const auto extra = [](const char* algorithm, const char* problem) {
    const Problem p = parse_problem(problem);
    return extra_bytes(p, cost_closed_form(p, algorithm, Pass::forward, {{64, 64}, 8}));
  };
  for (const char* algorithm : {"standard", "flash1", "flash2", "flash3", "flash_decoding"}) {
    const int64 once = extra(algorithm, "bf16 h2 q4096 k4096 d64"), twice = extra(algorithm, "bf16 h2 q8192 k8192 d64");
    EXPECT_EQ(twice, (std::string(algorithm) == "standard" ? 4 : 2) * once) << algorithm;
  }
  EXPECT_EQ(extra("flash2", "bf16 h32 q32768 k32768 d128"), int64(4) << 20);
}

TEST(cost, refuses_what_the_papers_do_not_have) {
  for (const char* problem : {"bf16 softcap=3", "bf16 alibi", "bf16 bias=1h1k", "bf16 sink", "bf16 dropout=0.5@1",
                              "e4m3 descale", "bf16 pages=shuffle(7,16)"})
    EXPECT_THROW(cost_by_running(parse_problem(problem), "flash2", Pass::forward, {}), UsageError) << problem;
  const Problem p;
  EXPECT_THROW(cost_closed_form(p, "flash4", Pass::forward, {}), UsageError);
  EXPECT_THROW(cost_closed_form(p, "flash2", Pass::forward, {{0, 1}, 1}), UsageError);
  EXPECT_THROW(cost_closed_form(p, "rabe_staats", Pass::backward, {}), UsageError);
  EXPECT_THROW(cost_closed_form(parse_problem("bf16 h4/2 bwd"), "flash2", Pass::backward, {}), UsageError);
}

}  // namespace
}  // namespace flashproof::test
