// oracle/farthest_rows: the rows that are wrong come first, and a budget thins out the rows that are compared.
#include "oracle/farthest_rows.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "oracle/value.h"

namespace flashproof {
namespace {

struct Rounded {
  Inputs in;
  Tensor o, lse;
};
Rounded rounded(const std::string& text) {
  Rounded r{make_inputs(parse_case(text)), {}, {}};
  correctly_rounded_forward(r.in, r.o, r.lse);
  return r;
}

TEST(FarthestRows, WrongRowsComeFirst) {
  Rounded r = rounded(
      "bf16 b2 h4/2 q7 k30 d8/4 causal window=9,2 softcap=3 alibi bias=1hqk sink dropout=0.25@5 data=normal seed=2");
  const auto farthest = [&] { return farthest_rows(r.in, r.o, 1e9, 2, 0); };
  const int64_t wrong = 17, not_finite = 40;
  r.o.set_bits(wrong * 4 + 3, encode(DType::bf16, 1.1 * r.o.at(wrong * 4 + 3) + 0.05));
  EXPECT_EQ(farthest()[0], wrong);
  r.o.set_bits(not_finite * 4, encode(DType::bf16, std::numeric_limits<double>::infinity()));
  EXPECT_EQ(farthest(), (std::vector<int64_t>{not_finite, wrong}));
}

TEST(FarthestRows, ComparesAsManyRowsAsTheBudgetAllows) {
  const Rounded r = rounded("bf16 h2 q16 k10 d8 data=normal");
  const double row_work = 10 * 16;
  std::set<int64_t> seen;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const std::vector<int64_t> rows = farthest_rows(r.in, r.o, 8 * row_work, 100, seed);
    EXPECT_EQ(rows.size(), 8u);
    seen.insert(rows.begin(), rows.end());
  }
  EXPECT_EQ(seen.size(), 32u);
}

}  // namespace
}  // namespace flashproof
