// make_inputs: every element is what token_element says of its place, whoever makes it and on however many threads; and
// threads.h, where the system refuses some.
#include "reference/inputs.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "reference/errors.h"
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

/// Large enough to be left to another maker; reduced ones and lengths of their own among them.
TEST(Inputs, AreMadeElementByElement) {
  for (const char* text :
       {"bf16 b2 h4/2 q300 k600 d64/96 data=creeping_max(0.05) seed=9",
        "e4m3 b3 h2/1 seqq=[900,0,200] seqk=[400,1,1000] d128 data=normal",
        "fp32 h2 q600 k900 d128 data=late_max usedk=[700]",
        "fp16 h2 q700 k800 d100 data=near_ties batches=2 rows=3,5-703 keys=1,4-802 heads=5,2 kv_heads=5,2 "
        "channels=0,2-100 value_channels=1-100"}) {
    const Case c = parse_case(text);
    const Inputs here = make_inputs(c), same = make_inputs(c, one_by_one(0)), shifted = make_inputs(c, one_by_one(1));
    for (Tensor Inputs::*tensor : {&Inputs::q, &Inputs::k, &Inputs::v, &Inputs::d_o}) {
      EXPECT_TRUE(here.*tensor == same.*tensor) << text;
      EXPECT_FALSE(here.*tensor == shifted.*tensor) << text;
    }
  }
}

TEST(Inputs, AreTheHostsWhereAnotherMakerLacksMemory) {
  const Case c = parse_case("bf16 h2 q700 k700 d128 data=normal");
  int asked = 0;
  const Inputs in = make_inputs(c, [&asked](const TokenPlan& plan, Tensor& tensor) {
    one_by_one(1)(plan, tensor);
    if (++asked > 1) throw UnavailableError("the GPU's memory is too small");
  });
  EXPECT_EQ(asked, 4);
  const Inputs host = make_inputs(c);
  EXPECT_FALSE(in.q == host.q);
  EXPECT_TRUE(in.k == host.k && in.v == host.v && in.d_o == host.d_o);
  const auto broken = [](const TokenPlan&, Tensor&) { throw std::runtime_error("a fault"); };
  EXPECT_THROW(make_inputs(c, broken), std::runtime_error);
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

/// With room in the address space for the stacks of a few threads, of 64; exit code 0 if every item was done once.
[[noreturn]] void do_items_with_few_stacks() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t bytes = rlim_t(pages * sysconf(_SC_PAGESIZE)) + (32 << 20);
  const rlimit limits{bytes, bytes};
  setrlimit(RLIMIT_AS, &limits);
  int times[64] = {};
  for_each_item(64, 64, [&](int64_t n) {
    ++times[n];
    usleep(10000);
  });
  _exit(std::count(times, times + 64, 1) == 64 ? 0 : 1);
}
TEST(Threads, ThatTheSystemRefusesAreDoneWithout) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer's address space has no limit";
#endif
  EXPECT_EXIT(do_items_with_few_stacks(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace flashproof
