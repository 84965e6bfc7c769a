// The command line as a user meets it: exit codes, the nearest right word, an example, and what each verb prints.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include <nlohmann/json.hpp>

#include "fuzz/cli/named_case.h"
#include "kernels/run_time_compiler.h"

namespace {

namespace fs = std::filesystem;

struct Result {
  int code;
  std::string out;  ///< stdout and stderr
};

Result run(const std::string& words, const std::string& redirection = "2>&1") {
  FILE* pipe = popen(("\"" FLASHPROOF_TEST_PROGRAM "\" " + words + " </dev/null " + redirection).c_str(), "r");
  Result result{-1, ""};
  char block[4096];
  for (size_t n; (n = fread(block, 1, sizeof block, pipe)) > 0;) result.out.append(block, n);
  const int status = pclose(pipe);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

nlohmann::json json_of(const std::string& words) { return nlohmann::json::parse(run(words, "2>/dev/null").out); }

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// A folder that is removed at the end.
struct Folder {
  fs::path path = fs::temp_directory_path() / ("flashproof-cli-test-" + std::to_string(getpid()));
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
  std::string operator/(const std::string& name) const { return (path / name).string(); }
};

TEST(CommandLine, WrongWordsGet64TheNearestRightWordAndAnExample) {
  const struct {
    const char* words;
    const char* nearest;
  } table[] = {
      {"fuz", "`fuzz`"},
      {"--vesion", "`--version`"},
      {"fuzz --sede 3", "`--seed`"},
      {"bench compile extra", "takes no folder"},
      {"fuzz --for 3y", "10m"},
      {"fuzz --for 0", "no time above 0"},
      {"check cpu:flash2 bf16 --timeout 0s", "no time above 0"},
      {"fuzz --cases many", "no whole number"},
      {"fuzz cpu:flash2 --cases 0", "at least 1"},
      {"fuzz cpu:flash2 --resume --cases 0 --for 1s", "at least 1"},
      {"fuzz --preset smok", "`smoke`"},
      {"check cpu:flsh2 bf16", "cpu:flash2"},
      {"check gpu:flsh2 bf16", "gpu:flash2"},
      {"bench nonsense", "oracle, accuracy"},
      {"explain worst.json smallest.json", "one case at a time"},
      {"check cpu:flash2 bf17", "`bf16`"},
      {"check cpu:flash2 bf16 --check bond", "`bound`"},
      {"check cpu:flash2", "CASE"},
      {"replay --kernel cpu:flash2 --repeat 0 bf16", "at least 1"},
      {"list kernel", "`kernels`"},
      {"trace --algorithm flash9", "`flash1`"},
      {"trace --scores 1,x --values 1,2", "`x`"},
      {"cost", "needs a problem"},
      {"cost --preset leson", "`lesson`"},
      {"cost --preset lesson bf16", "not both"},
      {"cost bf16 sink", "have no `sink`"},
      {"cost bf16 --tile 64", "ROWSxKEYS"},
      {"cost bf16 --tile 0x64", "at least 1 row"},
      {"cost bf16 --algorithm flash9", "`flash1`"},
      {"cost bf16 bwd --algorithm rabe_staats", "no backward of its own"},
      {"gen bf16", "--out"},
      {"gen bf16 --out /nonexistent/x --conventions lse=bas2", "`lse=base2`"},
      {"bound bf16 --output dW", "`dQ`"},
      {"bound 'b100000000 seqq=uniform(1,1,5)'", "2^20"},
      {"report --format htlm", "`"},
  };
  for (const auto& row : table) {
    const Result result = run(row.words);
    EXPECT_EQ(result.code, 64) << row.words << "\n" << result.out;
    EXPECT_TRUE(has(result.out, row.nearest)) << row.words << "\n" << result.out;
  }
}

TEST(CommandLine, ListsAreOneArgumentAndLeaveThePositionalWordsAlone) {
  const auto checks = [](const std::string& words) {
    std::string ids;
    const Result result = run("check --json " + words, "2>&1");
    const auto json = nlohmann::json::parse(result.out, nullptr, false);
    if (json.is_discarded()) return result.out;
    for (const auto& verdict : json["verdicts"]) ids += verdict["check"].get<std::string>() + " ";
    return ids;
  };
  const std::string kernel = " cpu:flash2 ", words = " 'bf16 q3 k4 d8' ";
  EXPECT_EQ(checks("--check bound,readout" + kernel + words), "bound readout ");
  EXPECT_EQ(checks(kernel + "--check bound,readout" + words), "bound readout ");
  EXPECT_EQ(checks(kernel + "--check=bound,readout" + words), "bound readout ");
  EXPECT_EQ(checks(kernel + words + "--check bound --check readout"), "bound readout ");
  const Folder folder;
  EXPECT_EQ(run("fuzz --check bound cpu:flash2 --cases 1 --out " + (folder / "campaign")).code, 0);
  EXPECT_EQ(run("gen --check bound,readout 'bf16 q3 k4 d8' -o " + (folder / "case")).code, 0);
  EXPECT_TRUE(fs::exists(folder / "case/run-001/inputs.safetensors"));
}

TEST(CommandLine, ListSaysWhatAKernelDeclares) {
  const Result plugin = run("list " FLASHPROOF_TEST_PLUGINS "/faulty.so");
  EXPECT_EQ(plugin.code, 0) << plugin.out;
  for (const char* part : {"dtypes", "head dims", "features", "lse=natural", "tunables"})
    EXPECT_TRUE(has(plugin.out, part)) << part << plugin.out;
  EXPECT_TRUE(has(run("list cpu:flash2").out, "tile_m="));
  EXPECT_EQ(run("list ./not-there.so").code, 69);
}

TEST(CommandLine, SaysWhyACheckThatIsAskedForIsNotForTheCase) {
  const Result asked = run("check cpu:flash2 bf16 --check bits"), all = run("check cpu:flash2 bf16");
  EXPECT_EQ(asked.code, 2);
  EXPECT_TRUE(has(asked.out, "bits          no verdict")) << asked.out;
  EXPECT_TRUE(has(asked.out, "does not declare `chip=`")) << asked.out;
  EXPECT_EQ(all.code, 0);
  EXPECT_FALSE(has(all.out, "no verdict")) << all.out;
}

TEST(CommandLine, ARejectionIsSaidOnceAndHasNoOutputs) {
  const Result result = run("check sim:flash2 fp32");
  EXPECT_EQ(result.code, 2);
  EXPECT_TRUE(has(result.out, "\n  the kernel does not take fp32\n")) << result.out;
  EXPECT_FALSE(has(result.out, "output bits")) << result.out;
  EXPECT_EQ(json_of("check sim:flash2 fp32 --json")["output_bits"], "");
}

TEST(CommandLine, WhatIsNotThereGets69) {
  EXPECT_EQ(run("check ./no_such_plugin.so bf16").code, 69);
  const Result gpu = run("check gpu:flash2 bf16");
  EXPECT_TRUE(gpu.code == 0 || (gpu.code == 69 && has(gpu.out, "CUDA"))) << gpu.out;
  EXPECT_EQ(run("fuzz cpu:flash2 --cases 1 --out /proc/no_campaign_here").code, 69);
  EXPECT_EQ(run("fuzz --data /no/such/folder --cases 1 --out /tmp/never-made").code, 69);
  for (const char* words : {"list kernels", "--help", "check cpu:flash2 bf16 --json"})
    EXPECT_EQ(run(words, ">/dev/full 2>&1").code, 69) << words;
}

TEST(CommandLine, APlugInWhoseArithmeticIsNoneIsNamed) {
  const std::string plugin = FLASHPROOF_TEST_PLUGINS "/unusable_8.so";
  for (const auto& [words, code] : {std::pair("check " + plugin + " bf16 --check bits", 1),
                                    std::pair("fuzz --cases 1 --out /tmp/never-made " + plugin, 69)}) {
    const Result result = run(words);
    EXPECT_EQ(result.code, code) << result.out;
    EXPECT_TRUE(has(result.out, plugin + ": its arithmetic() answers `tile=huge`")) << result.out;
    EXPECT_FALSE(has(result.out, "does not declare")) << result.out;
  }
}

TEST(CommandLine, APlugInThatEndsTheProgramIsNamedAndNoPass) {
  const struct {
    const char* words;
    const char* says;
  } table[] = {
      {"unusable_6.so bf16", "its code (loading it) ended the program"},
      {"unusable_7.so bf16", "its code (loading it) crashed"},
  };
  for (const auto& row : table) {
    const Result result = run(std::string("check " FLASHPROOF_TEST_PLUGINS "/") + row.words);
    EXPECT_EQ(result.code, 69) << row.words;
    EXPECT_TRUE(has(result.out, row.says)) << result.out;
  }
}

TEST(CommandLine, APlugInThatFailsToDescribeItselfHasFailedTheCase) {
  const struct {
    const char* words;
    const char* says;
  } table[] = {
      {"faulty.so 'bf16 d8' --config leave_in_supports", "its supports() exited with code 0"},
      {"faulty.so 'bf16 d8' --config crash_in_supports", "its supports() crashed: SIGFPE"},
      {"describes_badly.so 'bf16 d8' --config fault=2", "its arithmetic() crashed: SIGFPE"},
      {"describes_badly.so 'bf16 d8' --config fault=3", "its arithmetic() answers `tile=huge`"},
  };
#ifndef __SANITIZE_ADDRESS__  // which ends the process with a report and a code of its own
  for (const auto& row : table) {
    const Result result = run(std::string("check " FLASHPROOF_TEST_PLUGINS "/") + row.words);
    EXPECT_EQ(result.code, 1) << row.words;
    EXPECT_TRUE(has(result.out, row.says)) << result.out;
  }
#endif
  const Folder folder;
  const auto json =
      json_of("fuzz " FLASHPROOF_TEST_PLUGINS "/describes_badly.so --cases 200 --reduce-for 1s --json --out " +
              (folder / "campaign"));
  EXPECT_EQ(json["exit_code"], 1) << json;
  EXPECT_EQ(json["summary"]["cases"], 200) << "a crash costs its case, not the campaign";
  std::set<std::string> kinds;
  for (const auto& finding : json["summary"]["findings"]) {
    kinds.insert(finding["kind"]);
    const std::string replay = finding["replay"];
    EXPECT_EQ(run(replay.substr(replay.find("replay"))).code, 1) << replay;
  }
  EXPECT_EQ(kinds, (std::set<std::string>{"arithmetic", "crash-in-arithmetic", "crash-in-supports"}));
  EXPECT_GT(json["summary"]["kernels"][FLASHPROOF_TEST_PLUGINS "/describes_badly.so"]["rejected"], 0);
}

TEST(CommandLine, ALongCaseShowsThatItIsNotStuck) {
  const Result result =
      run("check " FLASHPROOF_TEST_PLUGINS "/faulty.so 'bf16 d8' --check bound --config hang --timeout 4s");
  EXPECT_EQ(result.code, 1);
  EXPECT_TRUE(has(result.out, " s, the kernel is in run 1")) << result.out;
  EXPECT_FALSE(has(run("check cpu:flash2 'bf16 d8' --check bound").out, " s, the kernel"));
}

TEST(CommandLine, ASizeBeyondTheMemoryIsRefused) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer ends the program where std::bad_alloc would be thrown";
#endif
  for (const char* verb : {"check cpu:flash2", "bound", "gen -o /tmp/never-made"})
    EXPECT_EQ(run(std::string(verb) + " 'q1 k2147483647 d256'").code, 69) << verb;
}

TEST(CommandLine, EveryVerbHasHelpThatOpensWithAnExample) {
  const Result all = run("--help");
  EXPECT_EQ(all.code, 0);
  EXPECT_EQ(all.out.rfind("Example: flashproof", 0), 0u) << all.out;
  for (const char* verb : {"fuzz", "check", "replay", "gate", "reduce", "bound", "gen", "verify", "trace", "cost",
                           "list", "status", "report", "mutants", "selftest", "doctor", "bench"}) {
    EXPECT_TRUE(has(all.out, verb)) << verb;
    const Result help = run(std::string(verb) + " --help");
    EXPECT_EQ(help.code, 0);
    EXPECT_EQ(help.out.rfind(std::string("Example: flashproof ") + verb, 0), 0u) << help.out;
    EXPECT_TRUE(has(help.out, "--json")) << verb;
  }
  EXPECT_FALSE(has(all.out, "worker")) << "the worker is not for users";
}

TEST(CommandLine, SaysWhyThereIsNoRunTimeCompiler) {
  const char* before = std::getenv("FLASHPROOF_NVRTC");
  const std::string library = before == nullptr ? "" : before;
  setenv("FLASHPROOF_NVRTC", "/nonexistent/libnvrtc.so", 1);
  const Result doctor = run("doctor"), bench = run("bench compile --count 1");
  if (before == nullptr) {
    unsetenv("FLASHPROOF_NVRTC");
  } else {
    setenv("FLASHPROOF_NVRTC", library.c_str(), 1);
  }
  EXPECT_TRUE(has(doctor.out, "/nonexistent/libnvrtc.so: cannot open")) << doctor.out;
  EXPECT_EQ(bench.code, 69);
  EXPECT_TRUE(has(bench.out, "/nonexistent/libnvrtc.so: cannot open")) << bench.out;
  EXPECT_TRUE(has(bench.out, "FLASHPROOF_NVRTC names its file")) << bench.out;
}

TEST(CommandLine, RefusesToCompileNothingAndForAChipThatIsNone) {
  const Result none = run("bench compile --count 0");
  EXPECT_EQ(none.code, 64);
  EXPECT_TRUE(has(none.out, "--count must be from 1")) << none.out;
  std::string reason;
  if (flashproof::run_time_compiler(flashproof::compiler_places(), reason).empty()) GTEST_SKIP() << reason;
  for (const char* chip : {"garbage", "sm_1", "sm_80a", "compute_90", "''"}) {
    const Result result = run(std::string("bench compile --count 1 --architecture ") + chip);
    EXPECT_EQ(result.code, 64) << chip;
    EXPECT_TRUE(has(result.out, "--architecture must be a chip")) << result.out;
  }
}

TEST(CommandLine, TraceReachesTheExactValueFromEveryTileSize) {
  for (int tile = 1; tile <= 8; ++tile) {
    const auto json = json_of("trace --algorithm all --json --tile " + std::to_string(tile));
    EXPECT_EQ(json["exact"], "61.68944444042202372234710296173838728359");
    ASSERT_EQ(json["algorithms"].size(), 7u);
    for (const auto& [name, steps] : json["algorithms"].items())
      EXPECT_NEAR(steps.back()["output"].get<double>(), 61.6894444404, 1e-10) << name;
    if (tile == 4) {
      EXPECT_NEAR(json["algorithms"]["flash2"][0]["output"].get<double>(), 30.81, 0.005);
      EXPECT_NEAR(json["algorithms"]["flash3"][0]["output"].get<double>(), 76.12, 0.005);
    }
  }
}

TEST(CommandLine, CostCountsByRunningAndBeyondThatInClosedForm) {
  const auto small = json_of("cost --json --tile 64x64 'bf16 h2 q128 k128 d32 causal bwd'");
  EXPECT_EQ(small["counted"], "by running");
  EXPECT_EQ(small["forward"].size(), 6u);
  EXPECT_EQ(small["backward"].size(), 5u);
  EXPECT_EQ(small["forward"]["flash2"]["multiply_adds"], 2 * 3 * 64 * 64 * 64);
  EXPECT_EQ(small["forward"]["standard"]["extra_bytes"], 2 * 2 * 2 * 128 * 128);
  EXPECT_FALSE(small["backward"]["flash1"]["moves"].empty());
  const auto large = json_of("cost --json 'bf16 q65536 k65536 d32'");
  EXPECT_EQ(large["counted"], "closed form");
  EXPECT_EQ(large["forward"]["flash2"]["multiply_adds"].get<int64_t>(), int64_t(65536) * 65536 * 64);
  const Result lines = run("cost bf16 q64 k64 d32 --algorithm flash1");
  EXPECT_TRUE(has(lines.out, "2205.14135 Algorithm 1, line 8")) << lines.out;
}

TEST(CommandLine, CostPresetsShowTheLessonAndThePublishedFigure) {
  const auto lesson = json_of("cost --preset lesson --json");
  EXPECT_EQ(lesson["score_bytes"].get<int64_t>(), int64_t(64) << 30);
  EXPECT_EQ(lesson["row_statistics_bytes"].get<int64_t>(), int64_t(4) << 20);
  const auto figure = json_of("cost --preset gpt2-medium --json");
  EXPECT_EQ(figure["tile"], "64x384");
  EXPECT_EQ(figure["standard"]["passes_nd"], 12);
  EXPECT_EQ(figure["standard"]["passes_n2"], 11);
  EXPECT_EQ(figure["flash1"]["passes_nd"], 34);
  EXPECT_NEAR(figure["standard"]["passes_published_has_more"].get<double>(), 7.02, 0.01);
  EXPECT_NEAR(figure["flash1"]["gflop_64_heads"]["products"].get<double>() -
                  figure["standard"]["gflop_64_heads"]["products"].get<double>(),
              8.59, 0.01);
  EXPECT_TRUE(has(run("cost --preset gpt2-medium").out, "Algorithm 4, line 10"));
}

TEST(CommandLine, ReplaysAgreeBitForBitAcrossTextFileAndRepeats) {
  const std::string words = "'bf16 h2 q5 k9 d16 causal bwd seed=4'";
  const auto first = json_of("check cpu:flash2 --json " + words),
             again = json_of("replay --kernel cpu:flash2 --json " + words);
  EXPECT_EQ(first["status"], "pass");
  EXPECT_EQ(first["output_bits"], again["output_bits"]);
  EXPECT_EQ(first["id"], again["id"]);
  const auto other = json_of("check cpu:flash2 --json 'bf16 h2 q5 k9 d16 causal bwd seed=5'");
  EXPECT_NE(first["output_bits"], other["output_bits"]);
  const Result repeated = run("replay --kernel cpu:flash2 --repeat 3 " + words);
  EXPECT_EQ(repeated.code, 0);
  EXPECT_TRUE(has(repeated.out, "3 times, 0 with other bits")) << repeated.out;
  const Result in_process = run("check cpu:flash2 --in-process --json " + words, "2>/dev/null");
  EXPECT_EQ(nlohmann::json::parse(in_process.out)["output_bits"], first["output_bits"]);
}

TEST(CommandLine, ACampaignIsFoundByIdResumesAndReports) {
  const Folder folder;
  const std::string out = folder / "campaign";
  const auto json = json_of("fuzz cpu:flash2 --cases 6 --seed 3 --json --out " + out);
  EXPECT_EQ(json["exit_code"], 0) << json;
  EXPECT_EQ(json["summary"]["cases"], 6);
  EXPECT_EQ(run("fuzz cpu:flash2 --cases 6 --out " + out).code, 64)
      << "a second campaign must not write into the first";
  EXPECT_EQ(json_of("fuzz --resume --cases 9 --json --out " + out)["summary"]["cases"], 9);

  std::string line;
  std::ifstream shard(out + "/cases/shard-0.jsonl");
  std::getline(shard, line);
  const std::string id = nlohmann::json::parse(line)["id"];
  const Result replay = run("replay --campaign " + out + " " + id);
  EXPECT_TRUE(has(replay.out, id)) << replay.out;
  EXPECT_EQ(run("replay --campaign " + out + " 0000000000000000").code, 64);

  EXPECT_EQ(nlohmann::json::parse(run("report " + out + " --format json", "2>/dev/null").out)["cases"], 9);
  EXPECT_TRUE(has(run("report " + out + " --format md").out, "0 findings in 9 cases"));
  EXPECT_TRUE(has(run("report " + out + " --format junit").out, "<testsuite name=\"cpu:flash2\""));
  EXPECT_EQ(run("status " + out).code, 0);
  for (const char* format : {"json", "md", "paper", "junit"}) {
    const std::string words = "report " + out + " --format " + format;
    const std::string once = run(words).out, again = run(words).out;
    EXPECT_FALSE(once.empty());
    EXPECT_EQ(once, again) << "a report is a function of the directory";
  }

  auto other_case = nlohmann::json::parse(line);
  other_case["case"] = "bf16 q3 kk1";
  std::vector<std::string> damage = {other_case.dump(), "{\"format\":\"flashproof-case\"}"};
  for (const char* index : {"-3", "9.5", "99999999999999999999", "18446744073709551615"}) {
    auto other_index = nlohmann::json::parse(line);
    other_index["index"] = nlohmann::json::parse(index);
    damage.push_back(other_index.dump());
  }
  for (const std::string& wrong : damage) {
    fs::copy(out, folder / "damaged", fs::copy_options::recursive | fs::copy_options::overwrite_existing);
    std::ofstream(folder / "damaged/cases/shard-0.jsonl", std::ios::app) << wrong << "\n";
    const Result damaged = run("status " + (folder / "damaged"));
    EXPECT_EQ(damaged.code, 64) << wrong;
    EXPECT_TRUE(has(damaged.out, "line 10")) << damaged.out;
  }
}

TEST(CommandLine, GateFailsOnAFindingAcceptsAKnownOneAndReportsOneThatPassesAgain) {
  const Folder folder;
  const std::string common = " --regressions " + (folder / "regressions") + " --reduce-for 1s --out ";
  fs::create_directories(folder / "regressions");
  std::ofstream(folder / "regressions/cases.txt") << "# one key\nbf16 q3 k1 d16\n";
  EXPECT_EQ(run("gate cpu:flash2 --cases 5 --junit " + (folder / "j.xml") + common + (folder / "a")).code, 0);
  EXPECT_TRUE(fs::exists(folder / "j.xml"));
  std::ofstream(folder / "known.txt") << "gone.bound.value.O 2999-01-01 issue 1: fixed since\n";
  const Result passes = run("gate cpu:flash2 --cases 5 --known " + (folder / "known.txt") + common + (folder / "b"));
  EXPECT_EQ(passes.code, 0);
  EXPECT_TRUE(has(passes.out, "passes again: gone.bound.value.O")) << passes.out;
  std::ofstream(folder / "known.txt") << "no date and reason\n";
  EXPECT_EQ(run("gate cpu:flash2 --cases 5 --known " + (folder / "known.txt") + common + (folder / "c")).code, 64);
  const Result list_is_folder =
      run("gate cpu:flash2 --cases 5 --known " + folder.path.string() + common + (folder / "e"));
  EXPECT_EQ(list_is_folder.code, 69);
  EXPECT_TRUE(has(list_is_folder.out, "it is a folder")) << list_is_folder.out;
  std::ofstream(folder / "regressions/cases.txt") << "bf16 q3 kk1\n";
  EXPECT_EQ(run("gate cpu:flash2 --cases 5" + common + (folder / "d")).code, 64);
}

TEST(CommandLine, CampaignsOfOneSecondGetFoldersOfTheirOwn) {
  const Folder folder;
  const fs::path before = fs::current_path();
  fs::current_path(folder.path);
  {
    const flashproof::NewCampaignFolder first("t"), second("t"), third("t");
    EXPECT_EQ(first.path(), "flashproof-campaigns/t");
    EXPECT_EQ(second.path(), "flashproof-campaigns/t-2");
    EXPECT_EQ(third.path(), "flashproof-campaigns/t-3");
    std::ofstream(second.path() + "/manifest.json") << "{}";
  }
  EXPECT_FALSE(fs::exists("flashproof-campaigns/t")) << "left empty";
  EXPECT_TRUE(fs::exists("flashproof-campaigns/t-2/manifest.json"));
  fs::current_path(before);
}

TEST(CommandLine, ACampaignOfAnOlderVersionIsReadReplayedAndNotGoneOnWith) {
  const Folder folder;
  const std::string v1 = folder / "v1";
  fs::copy(FLASHPROOF_TEST_DATA "/campaigns/v1", v1, fs::copy_options::recursive);
  const Result status = run("status " + v1);
  EXPECT_EQ(status.code, 1);
  EXPECT_TRUE(has(status.out, "4 findings in 60 cases (249 checks")) << status.out;
  EXPECT_TRUE(has(status.out, "id 8c372c6459cd29f0")) << status.out;
  for (const char* format : {"json", "md", "paper", "junit"}) {
    const Result report = run("report " + v1 + " --format " + format);
    EXPECT_EQ(report.code, 0) << report.out;
    EXPECT_TRUE(has(report.out, "8c372c6459cd29f0")) << format;
  }
  const Result resumed = run("fuzz --resume --cases 61 --out " + v1);
  EXPECT_EQ(resumed.code, 64);
  EXPECT_TRUE(has(resumed.out, "is not the one this campaign was started with")) << resumed.out;
  EXPECT_EQ(json_of("status --json " + v1)["cases"], 60) << "a refusal must write nothing";
  const std::string witness = v1 + "/findings/window_off_by_one.readout.missing-key.O/smallest.json";
  EXPECT_EQ(run("replay " + witness).code, 69) << "its plug-in is not here";
  EXPECT_EQ(run("replay --on cpu:flash2 " + witness).code, 0);
}

TEST(CommandLine, GateCallsAFailureThatComesAndGoesFlakyAndFails) {
  const Folder folder;
  fs::create_directories(folder / "regressions");
  std::ofstream(folder / "regressions/cases.txt") << "bf16 q3 k5 d16\n";
  setenv("FLASHPROOF_TEST_TOGGLE", (folder / "toggle").c_str(), 1);
  const std::string words = "gate " FLASHPROOF_TEST_PLUGINS "/flaky.so --cases 1 --check bound --reduce-for 0s --json" +
                            (" --regressions " + (folder / "regressions")) + " --out ";
  const auto flaky = json_of(words + (folder / "a"));
  EXPECT_EQ(flaky["exit_code"], 1) << flaky;
  EXPECT_EQ(flaky["flaky"], nlohmann::json({"flaky.bound.error"})) << flaky;
  const auto steady = json_of(words + (folder / "b"));
  unsetenv("FLASHPROOF_TEST_TOGGLE");
  EXPECT_EQ(steady["exit_code"], 1) << steady;
  EXPECT_TRUE(steady["flaky"].empty()) << steady;
}

TEST(CommandLine, APlantedBugIsFoundReducedReplayedAndGated) {
  const Folder folder;
  const std::string bug = fs::path(FLASHPROOF_TEST_PROGRAM).parent_path() / "mutants/window_off_by_one.so";
  const Result fuzz =
      run("fuzz " + bug + " --cases 40 --max-findings 1 --reduce-for 2s --out " + (folder / "campaign"));
  EXPECT_EQ(fuzz.code, 1) << fuzz.out;
  std::string smallest;
  for (const auto& entry : fs::recursive_directory_iterator(folder / "campaign/findings"))
    if (entry.path().filename() == "smallest.json") smallest = entry.path();
  ASSERT_FALSE(smallest.empty());
  const auto replayed = json_of("replay --json " + smallest), again = json_of("replay --json " + smallest);
  EXPECT_EQ(replayed["status"], "fail");
  EXPECT_EQ(replayed["output_bits"], again["output_bits"]);
  const std::string line = replayed["replay"];
  EXPECT_EQ(run(line.substr(line.find("replay"))).code, 1) << line;
  EXPECT_EQ(run("replay --on cpu:flash2 " + smallest).code, 0) << "the right kernel passes the same case";
  const Result reduce = run("reduce --for 2s " + smallest);
  EXPECT_EQ(reduce.code, 1) << reduce.out;

  fs::create_directories(folder / "regressions");
  const std::string common =
      "gate " + bug + " --cases 40 --reduce-for 0s --json --regressions " + (folder / "regressions");
  const auto gate = json_of(common + " --out " + (folder / "gate"));
  EXPECT_EQ(gate["exit_code"], 1) << gate;
  std::ofstream known(folder / "known.txt"), expired(folder / "expired.txt");
  for (const auto& finding : gate["summary"]["findings"]) {
    known << finding["bucket"].get<std::string>() << " 2999-01-01 planted\n";
    expired << finding["bucket"].get<std::string>() << " 2020-01-01 planted\n";
  }
  known.close(), expired.close();
  EXPECT_EQ(json_of(common + " --known " + (folder / "known.txt") + " --out " + (folder / "a"))["exit_code"], 0);
  EXPECT_EQ(json_of(common + " --known " + (folder / "expired.txt") + " --out " + (folder / "b"))["exit_code"], 1);
}

/// Bugs that were not looked for are no bugs found.
TEST(CommandLine, PlantedBugsThatAreNotBuiltAreNoSuccess) {
  const Folder folder;
  fs::copy_file(fs::path(FLASHPROOF_TEST_PROGRAM).parent_path() / "mutants/manifest.json", folder / "manifest.json");
  const std::string words = "mutants " + (folder / "") + " --only ";
  const Result absent = run(words + "last_key_dropped,window_off_by_one");
  EXPECT_EQ(absent.code, 2) << absent.out;
  EXPECT_NE(absent.out.find("2 of 2 bugs were not run; those that are not built: cmake --build"), std::string::npos);
  EXPECT_TRUE(has(absent.out, "last_key_dropped                   not built")) << absent.out;
  EXPECT_FALSE(has(absent.out, "no such file") || has(absent.out, "smallest witnesses")) << absent.out;
  const Result misspelt = run(words + "windw_off");
  EXPECT_EQ(misspelt.code, 64);
  EXPECT_NE(misspelt.out.find("the nearest is window_off_by_one"), std::string::npos) << misspelt.out;
}

TEST(CommandLine, OutputsThroughFilesAreJudged) {
  const Folder folder;
  const std::string words = "'bf16 b2 h2 q5 k7 d8 usedk=[7,3] causal bwd seed=2'";
  ASSERT_EQ(run("gen " + words + " -o " + (folder / "case")).code, 0);
  EXPECT_EQ(run("gen " + words + " -o " + (folder / "case")).code, 64) << "old outputs would be judged as new ones";
  EXPECT_EQ(run("verify " + (folder / "no_such_case")).code, 69);
  const Result missing = run("verify " + (folder / "case"));
  EXPECT_EQ(missing.code, 69);
  EXPECT_TRUE(has(missing.out, "outputs.safetensors")) << missing.out;
  // A right kernel's outputs, as `--dump` writes them, pass; those of another case do not.
  ASSERT_EQ(run("check cpu:flash2 --check bound --dump " + (folder / "dump") + " " + words).code, 0);
  fs::copy(folder / "dump/outputs.safetensors", folder / "case/outputs.safetensors");
  const Result right = run("verify " + (folder / "case"));
  EXPECT_EQ(right.code, 0);
  EXPECT_TRUE(has(right.out, "pass it with --arithmetic")) << right.out;
  ASSERT_EQ(run("check cpu:flash2 --check bound --dump " + (folder / "other") +
                " 'bf16 b2 h2 q5 k7 d8 usedk=[7,3] causal bwd seed=3'")
                .code,
            0);
  fs::copy(folder / "other/outputs.safetensors", folder / "case/outputs.safetensors",
           fs::copy_options::overwrite_existing);
  EXPECT_EQ(run("verify " + (folder / "case")).code, 1);
  std::ofstream(folder / "case/outputs.safetensors", std::ios::binary | std::ios::trunc) << "\x08";
  EXPECT_EQ(run("verify " + (folder / "case")).code, 64);

  std::ifstream elements(folder / "dump/elements.jsonl");
  int64_t count = 0;
  for (std::string line; std::getline(elements, line); ++count)
    EXPECT_TRUE(nlohmann::json::parse(line).contains("observed_bits"));
  EXPECT_EQ(count, 2 * 2 * 5 * (8 + 1 + 8) + (7 + 3) * 2 * (8 + 8));
}

}  // namespace
