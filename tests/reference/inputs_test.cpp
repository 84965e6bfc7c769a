// make_inputs: every element is what token_element says of its place, whoever makes it and on however many threads.
#include "reference/inputs.h"

#include <gtest/gtest.h>

#include "reference/threads.h"

namespace flashproof {
namespace {

/// Element n as token_element says, or with `shift` element n + shift in its place.
TokenMaker one_by_one(int64_t shift) {
  return [shift](const TokenPlan& plan, Tensor& tensor) {
    const TokenRecipe recipe{
        plan.recipe,          plan.operand,       int64_t(plan.heads.size()), int64_t(plan.channels.size()),
        plan.contexts.data(), plan.tokens.data(), plan.heads.data(),          plan.channels.data()};
    for (int64_t n = 0; n < tensor.size(); ++n) tensor.set_bits(n, token_element(recipe, (n + shift) % tensor.size()));
  };
}

bool same_tokens(const Inputs& a, const Inputs& b) { return a.q == b.q && a.k == b.k && a.v == b.v && a.d_o == b.d_o; }

TEST(Inputs, AreMadeElementByElement) {
  for (const char* text :
       {"bf16 b2 h4/2 q5 k9 d6/3 data=creeping_max(0.05) seed=9",
        "e4m3 seqq=[3,0,2] seqk=[4,1,7] b3 h2/1 d8 data=normal", "fp32 h2/2 q3 k12 d5 data=late_max usedk=[7]",
        "fp16 b1 h1 q2 k3 d4 data=near_ties batches=2 rows=3,7 "
        "keys=1,4,8 heads=5 kv_heads=5 channels=0,2-4 value_channels=1-4 set=v[0,1,0,2]:0x3c00"}) {
    const Case c = parse_case(text);
    EXPECT_TRUE(same_tokens(make_inputs(c), make_inputs(c, one_by_one(0)))) << text;
    EXPECT_FALSE(same_tokens(make_inputs(c), make_inputs(c, one_by_one(1)))) << text;
  }
}

TEST(Inputs, HaveTheSameBitsOnAnyThreads) {
  const Case c = parse_case("bf16 b2 h2 q600 k700 d64 data=normal");
  default_threads = 1;
  const Inputs one = make_inputs(c);
  default_threads = 5;
  const Inputs five = make_inputs(c);
  default_threads = 0;
  EXPECT_TRUE(same_tokens(one, five));
}

}  // namespace
}  // namespace flashproof
