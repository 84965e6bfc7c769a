// What goes wrong inside the program hides no finding.
#include "fuzz/campaign.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>

#include "reference/errors.h"

namespace flashproof {
namespace {

TEST(Witnesses, OneBucketThatCannotBeReducedHidesNoFinding) {
  const std::string folder =
      std::filesystem::temp_directory_path() / ("flashproof-witnesses-" + std::to_string(getpid()));
  const auto failing = [](int64_t index, const char* kind) {
    Record record;
    record.index = index, record.kernel = "cpu:flash2", record.text = "bf16 q2 k3 d8";
    Verdict verdict;
    verdict.check = "bound", verdict.status = Status::fail, verdict.kind = kind;
    record.verdicts = {verdict};
    return record;
  };
  int64_t calls = 0;
  const RunJob run = [&](const std::string&, const Job&) -> Judgement {
    if (++calls == 1) throw UsageError("no such word");
    return {};
  };
  const std::atomic<bool> interrupt = false;
  const std::string error = write_witnesses(folder, {failing(0, "nan"), failing(1, "value")}, run, 5, interrupt);
  EXPECT_EQ(error, "reduction failed: cpu-flash2.bound.nan: no such word");
  EXPECT_TRUE(std::filesystem::exists(folder + "/findings/cpu-flash2.bound.nan/worst.json"));
  EXPECT_TRUE(std::filesystem::exists(folder + "/findings/cpu-flash2.bound.value/smallest.json"));
  std::filesystem::remove_all(folder);

  CampaignEnd end;
  end.internal_error = error;
  EXPECT_EQ(exit_code(end), 70);
  end.summary.findings["cpu-flash2.bound.nan"];
  EXPECT_EQ(exit_code(end), 1);
}

}  // namespace
}  // namespace flashproof
