// Sizes of cases: quartiles by place, tiles of the declared arithmetic, and what counts as several tiles.
#include "fuzz/case_sizes.h"

#include <gtest/gtest.h>

namespace flashproof {
namespace {

TEST(CaseSizes, CountsTheLongestEntryAndTheTilesThatTheKernelDeclared) {
  CaseSizes sizes;
  sizes.add(parse_problem("bf16 b2 h3 seqq=[5,17] seqk=[9,2] d8"), "tile=16x4");
  const CaseSizes::Summary s = sizes.summary();
  EXPECT_EQ(s.cases, 1);
  EXPECT_EQ(s.tiled, 1);
  EXPECT_EQ(s.quartiles[int(Measure::rows)]->median, 17);
  EXPECT_EQ(s.quartiles[int(Measure::keys)]->median, 9);
  EXPECT_EQ(s.quartiles[int(Measure::row_tiles)]->median, 2);
  EXPECT_EQ(s.quartiles[int(Measure::key_tiles)]->median, 3);
  EXPECT_EQ(s.quartiles[int(Measure::multiply_adds)]->median, (5 * 9 + 17 * 2) * 3 * 16);
  EXPECT_EQ(s.several_tiles, 0) << "no entry has both";
}

TEST(CaseSizes, SeveralTilesBeginOneElementPastTheTile) {
  const auto several = [](const char* text, const char* arithmetic) {
    CaseSizes sizes;
    sizes.add(parse_problem(text), arithmetic);
    return sizes.summary().several_tiles;
  };
  EXPECT_EQ(several("bf16 q17 k65 d8", "tile=16x32"), 1);
  EXPECT_EQ(several("bf16 q16 k65 d8", "tile=16x32"), 0);
  EXPECT_EQ(several("bf16 q17 k64 d8", "tile=16x32"), 0);
  EXPECT_EQ(several("bf16 b2 q40 k99 usedk=[3,99] d8", "tile=16x32"), 1);
  EXPECT_EQ(several("bf16 b2 q40 k99 usedk=[3,9] d8", "tile=16x32"), 0) << "a slot is no length";
}

TEST(CaseSizes, WithoutADeclaredTileOnlyLengthsCount) {
  CaseSizes sizes;
  sizes.add(parse_problem("bf16 q100 k4096 d8"), "");
  sizes.add(parse_problem("bf16 q100 k4095 d8"), "tile=16x32");
  const CaseSizes::Summary s = sizes.summary();
  EXPECT_EQ(s.cases, 2);
  EXPECT_EQ(s.tiled, 1);
  EXPECT_EQ(s.long_keys, 1);
  EXPECT_EQ(s.several_tiles, 1);
  EXPECT_EQ(shares_of(s),
            "3 or more tiles of keys and 2 of rows: 1 of 1 cases (100.0 %); 4096 or more keys: 1 of 2 cases (50.0 %)");
  EXPECT_EQ(shares_of(CaseSizes().summary()), "4096 or more keys: 0 of 0 cases");
  EXPECT_FALSE(CaseSizes().summary().quartiles[int(Measure::rows)]);
}

TEST(CaseSizes, QuartilesAreValuesThatOccurAndMergingAddsCases) {
  CaseSizes all, first, second;
  for (int rows = 9; rows >= 1; --rows) {
    const Problem p = parse_problem("bf16 q" + std::to_string(rows) + " k1 d8");
    all.add(p, "");
    (rows % 2 ? first : second).add(p, "");
  }
  first.add(second);
  for (const CaseSizes& sizes : {all, first}) {
    const CaseSizes::Quartiles q = sizes.summary().quartiles[int(Measure::rows)].value();
    EXPECT_FALSE(sizes.summary().quartiles[int(Measure::key_tiles)]) << "no tile was declared";
    EXPECT_EQ((std::array{q.least, q.lower, q.median, q.upper, q.largest}), (std::array<double, 5>{1, 3, 5, 7, 9}));
  }
}

}  // namespace
}  // namespace flashproof
