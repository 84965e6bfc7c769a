// `selftest`: whether this build on this machine can be believed. Each line is a test that can fail; all take under 20
// s.
#include <cfenv>
#include <chrono>
#include <cmath>
#include <stdexcept>

#include <fmt/format.h>

#include "fuzz/campaign.h"
#include "fuzz/cli/options.h"
#include "fuzz/cli/verbs.h"
#include "fuzz/generate.h"
#include "fuzz/json_text.h"
#include "fuzz/steady_seconds.h"
#include "oracle/slow_problem.h"
#include "oracle/value.h"

namespace flashproof {
namespace {

struct TestResult {
  const char* test;
  bool passed;
  std::string figure;
};

/// A plug-in or a compiler flag may have set flush-to-zero or another rounding, which would void every bound.
TestResult floating_point() {
  const volatile double smallest = 0x1p-1074, half_step = 0x1p-53, one = 1;
  const bool subnormals = smallest * 2 == 0x1p-1073 && smallest > 0;
  const bool to_nearest = std::fegetround() == FE_TONEAREST && one + half_step == 1 && one + half_step * 1.5 > 1;
  return {"floating point: to nearest, with subnormals", subnormals && to_nearest, ""};
}

struct Comparison {
  int64_t cases = 0, outputs = 0, outside = 0, shifted_seen = 0, shifted = 0;
};

/// Every element with a finite radius must hold the slow oracle's value; the same enclosure moved by three radii must
/// not.
void compare(const Inputs& inputs, Comparison& comparison) {
  const Values values = value_double(inputs, Sample{});
  const slow::Result exact = slow::forward_backward(slow_problem(inputs), has_backward(inputs.problem));
  ++comparison.cases;
  for (int n = 0; n < output_count; ++n) {
    const OutputValues& fast = values[OutputId(n)];
    const std::vector<slow::Value>& slow_values = values_of(exact, OutputId(n));
    for (size_t i = 0; i < fast.mid.size(); ++i) {
      if (!fast.known[i] || std::isnan(fast.mid[i]) || !std::isfinite(fast.radius[i])) continue;
      ++comparison.outputs;
      comparison.outside += !encloses(fast.mid[i], fast.radius[i], slow_values[i]);
      if (fast.radius[i] == 0 || fast.radius[i] < std::abs(fast.mid[i]) * 0x1p-50) continue;
      ++comparison.shifted;
      comparison.shifted_seen += !encloses(fast.mid[i] + 3 * fast.radius[i], fast.radius[i], slow_values[i]);
    }
  }
}

TestResult oracle_against_slow(double seconds) {
  Comparison comparison;
  const LoadedKernel& kernel = load_kernel("cpu:flash2");
  const double end = now() + seconds;
  for (uint64_t index = 0; now() < end; ++index) {
    try {
      compare(make_inputs(generate(kernel, Range{2e4, {}}, 1, index).c), comparison);
    } catch (const std::invalid_argument&) {
      continue;  // data that are not finite are not the slow oracle's to judge
    }
  }
  const bool passed =
      comparison.outputs > 1000 && comparison.outside == 0 && comparison.shifted_seen == comparison.shifted;
  return {
      "oracle against the slow oracle", passed,
      fmt::format("{} outputs of {} cases, {} outside their radius; {} of {} shifted values seen", comparison.outputs,
                  comparison.cases, comparison.outside, comparison.shifted_seen, comparison.shifted)};
}

CampaignEnd short_campaign(const std::string& kernel, double seconds) {
  const TemporaryFolder folder;
  Settings s;
  s.kernels = {kernel};
  s.seconds = seconds;
  s.max_findings = 1;
  s.reduce_seconds = 0;
  s.directory = folder.path() + "/campaign";
  return run_campaign(s, interrupt_flag(), {});
}

TestResult right_kernel_passes() {
  const CampaignEnd end = short_campaign("cpu:flash2", 5);
  return {"a right kernel passes", exit_code(end) == 0,
          fmt::format("{} cases", end.summary.cases) + (end.internal_error.empty() ? "" : ": " + end.internal_error)};
}

TestResult planted_bug_is_found() {
  const std::string plugin = demo_plugin_path();
  if (plugin.empty())
    return {"the planted bug is found", false,
            "it is not in the folder `mutants` beside the program: build all targets"};
  const CampaignEnd end = short_campaign(plugin, 10);
  return {"the planted bug is found", !end.summary.findings.empty(), fmt::format("in {} cases", end.summary.cases)};
}

int selftest(bool json) {
  std::vector<JsonText> list;
  bool passed = true;
  const auto report = [&](const TestResult& result) {
    if (interrupt_flag()) return;  // the campaign was cut short
    passed &= result.passed;
    list.push_back(json_object({{"test", result.test}, {"passed", result.passed}, {"figure", result.figure}}));
    if (!json)
      fmt::print("{} {}{}\n", result.passed ? "pass" : "FAIL", result.test,
                 result.figure.empty() ? "" : ": " + result.figure);
    std::fflush(stdout);
  };
  report(floating_point());
  report(oracle_against_slow(4));
  report(right_kernel_passes());
  report(planted_bug_is_found());
  report(floating_point());  // the kernels have run by now
  if (interrupt_flag()) return 130;
  if (json) fmt::print("{}\n", json_object({{"passed", passed}, {"tests", json_array(list)}}).text());
  return passed ? 0 : 70;
}

}  // namespace

void add_selftest(CommandLine& line) {
  auto json = std::make_shared<bool>(false);
  line.verb("selftest", "whether this build on this machine can be believed (under 20 s)", "selftest",
            [json] { return selftest(*json); })
      .flag("--json", *json, "one JSON object on stdout");
}

}  // namespace flashproof
