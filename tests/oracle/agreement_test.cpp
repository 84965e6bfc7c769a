// oracle/slow_problem, and a reduced run of the comparison of the two oracles; `agreement` runs it in full.
#include "tests/oracle/agreement.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "oracle/slow_problem.h"

namespace flashproof {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();

TEST(Encloses, IsExactAtBothEnds) {
  const slow::Value third = {1.0 / 3, 1.0 / 3 * 0x1p-54, 1, false};  // 1/3 = 0.01010..b repeats beyond 106 bits
  EXPECT_TRUE(encloses(1.0 / 3, 0x1p-55, third));
  EXPECT_FALSE(encloses(1.0 / 3, 0, third));
  EXPECT_FALSE(encloses(1.0 / 3, third.lo, third)) << "the rest is beyond the end";
  EXPECT_TRUE(encloses(1.0 / 3, std::nextafter(third.lo, 1), third));
  EXPECT_FALSE(encloses(1, 2.0 / 3 - 0x1p-60, third));

  const slow::Value one = {1, 0, 0, false}, above_one = {1, 0x1p-200, 0, false}, below_one = {1, 0, -1, false};
  EXPECT_TRUE(encloses(1, 0, one));
  EXPECT_FALSE(encloses(1, 0, above_one));
  EXPECT_FALSE(encloses(1, 0, below_one));
  EXPECT_TRUE(encloses(1, 0x1p-200, above_one));
  EXPECT_FALSE(encloses(1, 0x1p-201, above_one));
  EXPECT_TRUE(encloses(-infinity, 0, {.negative_infinity = true}));
  EXPECT_FALSE(encloses(-infinity, 0, one));
  EXPECT_FALSE(encloses(0, infinity, {.negative_infinity = true}));
  EXPECT_TRUE(encloses(0, infinity, one));
  EXPECT_FALSE(encloses(nan, infinity, one));
}

TEST(SlowProblem, CarriesEveryField) {
  const Inputs in = make_inputs(
      parse_case("e4m3 h4/2 seqq=[2,3] seqk=[5,4] d3/2 causal align=top-left window=2,1 scale=0.5 softcap=3 alibi=bh "
                 "bias=b1qk:fp32 sink dropout=0.25@77 descale bwd seed=4"));
  const slow::Problem s = slow_problem(in);
  EXPECT_EQ(s.dtype, slow::Dtype::e4m3);
  EXPECT_EQ(s.query_lengths, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(s.key_lengths, (std::vector<int64_t>{5, 4}));
  EXPECT_EQ(s.heads, 4);
  EXPECT_EQ(s.kv_heads, 2);
  EXPECT_TRUE(s.causal && s.top_left);
  EXPECT_EQ(s.window_left, 2);
  EXPECT_EQ(s.window_right, 1);
  EXPECT_EQ(s.scale, 0.5f);
  EXPECT_EQ(s.softcap, 3);
  EXPECT_EQ(s.slopes, in.slopes);
  EXPECT_EQ(s.sinks, in.sinks);
  EXPECT_EQ(s.dropout_rate, 0.25f);
  EXPECT_EQ(s.dropout_seed, 77u);
  EXPECT_EQ(s.v_descales, in.v_descale);
  EXPECT_EQ(s.bias_shape, (std::array<int64_t, 4>{2, 1, 3, 5}));
  EXPECT_EQ(s.bias[7], in.bias.bits(7));
  EXPECT_EQ(s.k[20], in.k.bits(20));
  EXPECT_EQ(int64_t(s.d_o.size()), in.d_o.size());
}

TEST(Agreement, ThePlanHasEveryPairAndIsAFunctionOfItsSeed) {
  const test::PlanSettings settings{.outputs = 1000, .pair_outputs = 1, .seed = 5, .real_data = ""};
  const test::Plan plan = test::plan_cases(settings);
  EXPECT_GE(plan.emptiest_outputs, 1);
  EXPECT_GT(plan.pairs, 1000);
  EXPECT_EQ(plan.cases, test::plan_cases(settings).cases);
  std::set<Family> families;
  for (const Case& c : plan.cases) families.insert(c.recipe.family);
  EXPECT_EQ(int(families.size()), family_count - 1);
}

TEST(Agreement, OfBothOraclesOnRandomCases) {
  const test::Plan plan = test::plan_cases({.outputs = 100000,
                                            .pair_outputs = 100,
                                            .seed = 2,
                                            .real_data = FLASHPROOF_TEST_DATA "/data/minilm_layer00.safetensors"});
  const test::Agreement sum = test::compare_cases(plan.cases, 40);
  EXPECT_EQ(sum.disagreements, 0);
  for (const std::string& example : sum.examples) ADD_FAILURE() << example;
  EXPECT_GE(sum.compared(), 100000);
  EXPECT_GE(double(sum.small_radii), 0.999 * double(sum.conditioned));
  EXPECT_GT(sum.conditioned, sum.compared() / 2) << "most outputs are sums of zeros";
  EXPECT_GT(sum.worst_ratio, 0.01) << "radii a hundred times too large would hide mistakes";
  for (const int64_t outputs : sum.outputs) EXPECT_GT(outputs, 0);
  for (const int64_t rounded : sum.rounded_by) EXPECT_GT(rounded, 0) << "a strength was never needed";
}

}  // namespace
}  // namespace flashproof
