// Reduction finds the known minimum of made-up failures, keeps the failure, and stops.
#include "fuzz/reduce.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "reference/inputs.h"

namespace flashproof {
namespace {

const char* large =
    "bf16 b3 h8/2 q70 k130 d64/32 causal window=40,0 softcap=30 alibi sink dropout=0.25@7 bwd data=outliers seed=9";

TEST(Reduce, FindsTheFewestKeysAndRowsThatAFailureNeeds) {
  const Interesting needs = [](const Case& c, const std::string&) {
    const Problem& p = c.problem;
    return p.mask.causal && max_used_length(p.k, p.batch) >= 5 && max_used_length(p.q, p.batch) >= 2;
  };
  const Reduced reduced = reduce(parse_case(large), "tile_m=32", needs, 30);
  EXPECT_TRUE(reduced.complete);
  const Problem& p = reduced.c.problem;
  EXPECT_TRUE(p.mask.causal);
  EXPECT_EQ(max_used_length(p.k, p.batch), 5) << print(reduced.c);
  EXPECT_EQ(max_used_length(p.q, p.batch), 2) << print(reduced.c);
  EXPECT_EQ(p.batch, 1);
  EXPECT_EQ(p.heads, 1);
  EXPECT_EQ(p.head_dim, 1);
  EXPECT_EQ(p.softcap, 0);
  EXPECT_EQ(p.alibi, Alibi::none);
  EXPECT_FALSE(p.sink || p.dropout || p.bias || has_backward(p));
  EXPECT_EQ(p.mask.window_left, open_window);
  EXPECT_EQ(reduced.config, "");
  EXPECT_TRUE(needs(parse_case(print(reduced.c)), "")) << "the reduced case must fail when typed back in";
}

TEST(Reduce, KeepsWhatTheFailureNeeds) {
  const Interesting needs = [](const Case& c, const std::string& config) {
    return c.problem.mask.window_left != open_window && config == "tile_m=32" &&
           c.problem.heads / c.problem.kv_heads > 1;
  };
  const Reduced reduced = reduce(parse_case(large), "tile_m=32", needs, 30);
  EXPECT_EQ(reduced.config, "tile_m=32");
  EXPECT_TRUE(needs(reduced.c, reduced.config));
}

TEST(Reduce, ShrinksTilesSoThatFewerKeysReachTheirEdge) {
  // Fails from the second tile of keys on; the kernel's own tile is 64.
  const Interesting needs = [](const Case& c, const std::string& config) {
    const size_t at = config.find("tile_n=");
    const int64_t tile = at == std::string::npos ? 64 : std::atoll(config.c_str() + at + 7);
    return max_used_length(c.problem.k, c.problem.batch) > tile && tile >= 4;
  };
  const std::vector<Tunable> tunables = {{"tile_m", {"1", "2", "3"}}, {"tile_n", {"1", "2", "4", "8", "16", "32"}}};
  for (const char* config : {"", "tile_m=3,tile_n=32"}) {
    const Reduced reduced = reduce(parse_case(large), config, needs, 30, tunables);
    EXPECT_EQ(max_used_length(reduced.c.problem.k, 1), 5) << print(reduced.c);
    EXPECT_EQ(reduced.config, "tile_m=1,tile_n=4");
  }
}

TEST(Reduce, ShrinksATunableOfWordsToTheFirstThatStillFails) {
  const Interesting needs = [](const Case&, const std::string& config) {
    return config.find("tile=") != std::string::npos && config.find("16x16") == std::string::npos;
  };
  const std::vector<Tunable> tunables = {{"tile", {"16x16", "32x64", "64x32"}}, {"schedule", {"0", "1"}}};
  const Reduced reduced = reduce(parse_case(large), "tile=64x32,schedule=1", needs, 30, tunables);
  EXPECT_EQ(reduced.config, "tile=32x64,schedule=0");
}

TEST(Reduce, DropsRowsTogetherWithKeys) {
  // Fails where there are two keys more than rows, as masks aligned at the bottom right may need.
  const Interesting needs = [](const Case& c, const std::string&) {
    return c.problem.k.slot - c.problem.q.slot == 2 && c.problem.q.slot > 0;
  };
  const Reduced reduced = reduce(parse_case("bf16 q40 k42 d16 data=normal seed=1"), "", needs, 30);
  EXPECT_EQ(reduced.c.problem.q.slot, 1);
  EXPECT_EQ(reduced.c.problem.k.slot, 3);
}

TEST(Reduce, KeepsNoMoreHeadsThanAFailureNeeds) {
  const Interesting needs = [](const Case& c, const std::string&) {
    return c.problem.kv_heads >= 2 && c.problem.heads / c.problem.kv_heads >= 3;
  };
  const Reduced reduced = reduce(parse_case("bf16 h35/7 q4 k4 d16 data=normal seed=1"), "", needs, 30);
  EXPECT_EQ(reduced.c.problem.heads, 6);
  EXPECT_EQ(reduced.c.problem.kv_heads, 2);
}

TEST(Reduce, KeepsTheSourceDataOfWhatIsLeft) {
  // Fails while key 77's data are there: the map must still name it.
  const Interesting needs = [](const Case& c, const std::string&) {
    const int64_t keys = max_used_length(c.problem.k, c.problem.batch);
    if (c.maps.keys.empty()) return keys > 77;
    return std::find(c.maps.keys.begin(), c.maps.keys.end(), 77) != c.maps.keys.end();
  };
  const Reduced reduced = reduce(parse_case("bf16 q4 k130 d16 data=normal seed=1"), "", needs, 30);
  EXPECT_EQ(reduced.c.maps.keys, std::vector<int64_t>{77});
  EXPECT_EQ(reduced.c.problem.k.slot, 1);
}

TEST(Reduce, StopsInTimeAndReturnsAFailingCase) {
  int64_t calls = 0;
  const Interesting slow = [&](const Case& c, const std::string&) {
    ++calls;
    volatile double sink = 0;
    for (int i = 0; i < 2000000; ++i) sink = sink + 1;
    return c.problem.mask.causal;
  };
  const Reduced reduced = reduce(parse_case(large), "", slow, 0.05);
  EXPECT_FALSE(reduced.complete);
  EXPECT_TRUE(reduced.c.problem.mask.causal);
  EXPECT_EQ(reduced.runs, calls);
  EXPECT_LT(reduced.seconds, 5);
}

TEST(Reduce, SizeOrdersCases) {
  EXPECT_LT(size_of(parse_case("bf16 q1 k4 d8")), size_of(parse_case("bf16 q1 k5 d8")));
  EXPECT_LT(size_of(parse_case("bf16 q1 k5 d8")), size_of(parse_case("bf16 h2 q1 k5 d8")));
  EXPECT_LT(size_of(parse_case("bf16 q1 k5 d8")), size_of(parse_case("bf16 q1 k5 d8 causal")));
}

}  // namespace
}  // namespace flashproof
