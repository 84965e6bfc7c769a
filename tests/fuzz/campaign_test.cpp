// A campaign's records and witnesses depend on its seed alone, not on the number of threads or the order in which cases
// end; what goes wrong inside the program hides no finding.
#include "fuzz/campaign.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "reference/errors.h"

namespace flashproof {
namespace {

namespace fs = std::filesystem;

/// A folder that is removed at the end.
struct Folder {
  fs::path path = fs::temp_directory_path() / ("flashproof-campaign-test-" + std::to_string(getpid()));
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
  std::string operator/(const std::string& name) const { return (path / name).string(); }
};

const std::atomic<bool> never = false;

/// Records by index, without their timings.
std::vector<std::string> records_of(const std::string& directory) {
  std::vector<std::string> lines;
  for (Record record : read_records(directory)) {
    record.kernel_seconds = record.oracle_seconds = 0;
    lines.push_back(print(record));
  }
  return lines;
}

TEST(Campaign, RecordsTheSameWithOneThreadAndWithSeveral) {
  const Folder folder;
  Settings settings;
  settings.kernels = {"cpu:flash2", "cpu:decode"};
  settings.seed = 5, settings.cases = 24, settings.seconds = 0, settings.work = 1e5;
  for (const int jobs : {1, 3}) {
    settings.jobs = jobs;
    settings.directory = folder / std::to_string(jobs);
    const CampaignEnd end = run_campaign(settings, never, {});
    EXPECT_EQ(end.reason, StopReason::cases_done);
    EXPECT_EQ(end.summary.cases, 24);
  }
  EXPECT_EQ(records_of(folder / "1"), records_of(folder / "3"));
}

TEST(Campaign, TakesRepeatOrRelationsOfEachCaseUnlessNamed) {
  const Folder folder;
  Settings settings;
  settings.kernels = {"cpu:flash2"};
  settings.cases = 12, settings.seconds = 0, settings.work = 1e4, settings.jobs = 1;
  const auto checks_run = [&](const std::string& name) {
    settings.directory = folder / name;
    return run_campaign(settings, never, {}).summary.checks_run;
  };
  std::map<std::string, int64_t> all = checks_run("all");
  EXPECT_GT(all["repeat"], 0);
  EXPECT_GT(all["relations"], 0);
  EXPECT_LE(all["repeat"] + all["relations"], 12);
  settings.checks = {"repeat", "relations"};
  std::map<std::string, int64_t> named = checks_run("named");
  EXPECT_GT(named["repeat"] + named["relations"], 12);
}

Record failing(int64_t index, const std::string& text, double ratio) {
  Record record;
  record.index = index, record.kernel = "cpu:flash2", record.text = text;
  Verdict verdict;
  verdict.check = "bound", verdict.status = Status::fail, verdict.kind = "value", verdict.ratio = ratio;
  record.verdicts = {verdict};
  return record;
}

std::string witness_in(const std::string& folder, const std::string& name) {
  std::ostringstream text;
  text << std::ifstream(folder + "/findings/cpu-flash2.bound.value/" + name).rdbuf();
  return parse_witness(text.str()).text;
}

TEST(Witnesses, AreTheSameWhateverOrderTheFailuresCameIn) {
  const Folder folder;
  const RunJob passes = [](const std::string&, const Job&) { return Judgement{}; };  // nothing can be reduced
  const std::string first = "bf16 q2 k3 d8 data=normal seed=1", second = "bf16 q2 k3 d8 data=normal seed=2";
  std::vector<Record> failures = {failing(0, first, 2), failing(1, second, 7),
                                  failing(2, "bf16 q2 k3 d8 data=normal seed=3", 7)};
  for (const char* order : {"forward", "backward"}) {
    write_witnesses(folder / order, failures, passes, 1, never);
    EXPECT_EQ(witness_in(folder / order, "worst.json"), second);
    EXPECT_EQ(witness_in(folder / order, "smallest.json"), first);
    std::reverse(failures.begin(), failures.end());
  }
  // A resumed campaign that fails worse says so, and keeps the case that it has reduced.
  const std::string worse = "bf16 q1 k1 d8 data=normal seed=4";
  failures.push_back(failing(3, worse, 9));
  write_witnesses(folder / "forward", failures, passes, 1, never);
  EXPECT_EQ(witness_in(folder / "forward", "worst.json"), worse);
  EXPECT_EQ(witness_in(folder / "forward", "smallest.json"), first);
}

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
