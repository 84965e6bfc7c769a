// Runs that differ in anything are made, on a kernel that keeps state; a run reaches a worker as it was planned.
#include "fuzz/execute.h"

#include <gtest/gtest.h>

#include "fuzz/worker_protocol.h"

namespace flashproof {
namespace {

TEST(Execute, FindsStateAndWorkspaceByRepetition) {
  const std::string path = FLASHPROOF_TEST_PLUGINS "/faulty.so";
  const LoadedKernel& kernel = load_kernel(path);
  Worker worker(path, {.seconds = 10});
  const auto kind = [&](const std::string& config) {
    const Judgement judgement = execute(worker, kernel, {parse_case("bf16 q5 k6 d8 data=normal"), config, {"repeat"}});
    return judgement.verdicts.at(0).kind;
  };
  EXPECT_EQ(kind(""), "");
  EXPECT_EQ(kind("counts_calls"), "same-call");
  EXPECT_EQ(kind("reads_workspace"), "workspace");
}

TEST(Execute, IsInconclusiveWhereNoCheckHasAnythingToJudge) {
  const LoadedKernel& kernel = load_kernel("cpu:flash2");
  Worker worker(kernel.name, {});
  const Case no_rows = parse_case("bf16 q0 k40 d8");
  const Judgement relations = execute(worker, kernel, {no_rows, "", {"relations"}});
  EXPECT_TRUE(relations.verdicts.empty());
  EXPECT_EQ(relations.status(), Status::inconclusive);
  EXPECT_EQ(execute(worker, kernel, {no_rows, "", {}}).status(), Status::pass);
}

TEST(ReplayLine, IsOfWordsThatAShellTakesAsTheyAre) {
  EXPECT_EQ(shell_word("tile_m=26,tile_n=90"), "tile_m=26,tile_n=90");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("a 'b' $c"), "'a '\\''b'\\'' $c'");
  for (const char* special : {"~", "*", "a;b", "a&b", "#a", "a\nb", "\"", "\\", "!", "(", "<", "|", "`", "{a,b}"})
    EXPECT_EQ(shell_word(special), "'" + std::string(special) + "'");
  LoadedKernel kernel;
  kernel.name = "./my kernel.so";
  EXPECT_EQ(replay_line(kernel, Job{parse_case("bf16 q1 k1 d1 seed=2"), "tile=64x64x2x4 schedule=3", {}}, "bits"),
            "./flashproof replay --kernel './my kernel.so' --config 'tile=64x64x2x4 schedule=3' --check bits '" +
                print(parse_case("bf16 q1 k1 d1 seed=2")) + "'");
}

TEST(WorkerProtocol, CarriesWhatTellsRunsApart) {
  Request request;
  request.run = {.c = parse_case("bf16 h2 q5 k6 d8 data=normal seed=3"),
                 .placement = {.nan_outside = false, .largest_hidden = true, .poison = 7},
                 .mutation = IllegalMutation::scale_nan,
                 .scaling = {.q = 1, .v = -2, .d_o = 3}};
  request.threads = 3;
  EXPECT_EQ(decode_request(encode(request)).run, request.run);
  EXPECT_EQ(decode_request(encode(request)).threads, 3);
}

}  // namespace
}  // namespace flashproof
