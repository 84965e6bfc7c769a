// Planted bugs of the tensor core kernel on the simulated multiprocessor (tests/mutants/flash2_*.patch): an order of
// operations that is not the declared one fails `bits` while `bound` passes, and what the machine says of a race is
// said again, word for word, by the line that replays it.
#include <gtest/gtest.h>

#include <cstdio>

#include "fuzz/execute.h"

namespace flashproof {
namespace {

std::string plug_in(const std::string& name) { return FLASHPROOF_TEST_MUTANTS "/" + name + ".so"; }

/// A case with several tiles of keys and of rows.
Job job(const std::vector<std::string>& checks) {
  return {parse_case("bf16 h2 q40 k150 d32 causal data=normal seed=4"), "tile=32x32x2x2,schedule=1", checks};
}

Judgement judged(const std::string& kernel, const std::vector<std::string>& checks) {
  Worker worker(kernel, {});
  return execute(worker, load_kernel(kernel), job(checks));
}

/// What the program prints.
std::string output_of(const std::string& words) {
  FILE* pipe = popen(("\"" FLASHPROOF_TEST_PROGRAM "\" " + words + " </dev/null 2>&1").c_str(), "r");
  std::string out;
  char block[4096];
  for (size_t n; (n = fread(block, 1, sizeof block, pipe)) > 0;) out.append(block, n);
  pclose(pipe);
  return out;
}

TEST(Flash2Mutants, AnotherOrderOfOperationsFailsBitsAndPassesBound) {
  EXPECT_EQ(judged("sim:flash2", {"bound", "bits"}).status(), Status::pass);
  for (const char* name :
       {"flash2_order_tile_sum_first", "flash2_order_lanes_in_pairs", "flash2_order_exponent_unfused"}) {
    const Judgement judgement = judged(plug_in(name), {"bound", "bits"});
    ASSERT_EQ(judgement.verdicts.size(), 2u) << name << judgement.rejected;
    for (const Verdict& verdict : judgement.verdicts)
      EXPECT_EQ(verdict.status, verdict.check == "bits" ? Status::fail : Status::pass)
          << name << ", " << verdict.check << ": " << verdict.why;
  }
}

TEST(Flash2Mutants, ARaceIsReplayedByThePrintedLine) {
  const std::string kernel = plug_in("flash2_row_stored_before_written");
  const Judgement judgement = judged(kernel, {"bound"});
  const Verdict* failure = judgement.failure();
  ASSERT_NE(failure, nullptr);
  EXPECT_TRUE(failure->why.starts_with("race: ")) << failure->why;
  EXPECT_NE(failure->why.find("flash2_store.cuh:"), std::string::npos) << failure->why;
  const std::string line = replay_line(load_kernel(kernel), job({"bound"}), failure->check);
  const std::string replayed = output_of(line.substr(line.find("replay")));
  EXPECT_NE(replayed.find(failure->why), std::string::npos) << line << "\n" << replayed;
}

}  // namespace
}  // namespace flashproof
