// The CPU kernels in fp8 as a campaign runs them: random cases with every feature, each check.
#include <gtest/gtest.h>

#include "fuzz/execute.h"
#include "fuzz/generate.h"

namespace flashproof {
namespace {

struct Seen {
  int cases = 0, descales = 0, backwards = 0, e5m2 = 0, inconclusive = 0;
};

Seen judge_fp8_cases(const LoadedKernel& kernel, int cases) {
  Seen seen;
  for (uint64_t index = 0; seen.cases < cases; ++index) {
    const Drawn drawn = generate(kernel, Range{3e4, {}}, 11, index);
    const Problem& p = drawn.c.problem;
    if (output_dtype(p) == p.dtype) continue;
    const auto run = [&](const Run& planned, const std::string& config) {
      return run_in_process(kernel, planned, config);
    };
    const Judgement judgement = execute(run, kernel, Job{drawn.c, drawn.config, {}});
    EXPECT_EQ(judgement.rejected, "") << print(drawn.c);
    for (const Verdict& verdict : judgement.verdicts)
      EXPECT_NE(verdict.status, Status::fail) << verdict.check << ": " << verdict.why << "\n" << print(drawn.c);
    ++seen.cases;
    seen.descales += p.descale;
    seen.backwards += has_backward(p);
    seen.e5m2 += p.dtype == DType::e5m2;
    seen.inconclusive += judgement.status() == Status::inconclusive;
  }
  return seen;
}

TEST(Fp8, CpuKernelsPassEveryCheck) {
  for (const char* name : {"cpu:standard", "cpu:flash1", "cpu:flash2", "cpu:flash3", "cpu:decode"}) {
    const Seen seen = judge_fp8_cases(load_kernel(name), 50);
    EXPECT_GE(seen.descales, 5) << name;
    EXPECT_GE(seen.backwards, 5) << name;
    EXPECT_GE(seen.e5m2, 10) << name;
    EXPECT_LE(seen.inconclusive, 3) << name;
  }
}

}  // namespace
}  // namespace flashproof
