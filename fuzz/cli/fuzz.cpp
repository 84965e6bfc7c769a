// `fuzz`: a campaign. Without arguments 60 seconds over every built-in kernel and then a planted bug, which must be
// caught.
#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include "fuzz/campaign.h"
#include "fuzz/cli/named_case.h"
#include "fuzz/cli/options.h"
#include "fuzz/cli/presets.h"
#include "fuzz/cli/verbs.h"
#include "fuzz/panel.h"
#include "fuzz/reduce.h"
#include "fuzz/report/report.h"
#include "reference/errors.h"

namespace flashproof {
namespace {

constexpr double demo_seconds = 10;  // of the default minute
constexpr double not_given = -1;

struct Options {
  Settings settings;
  std::string preset;
  double seconds = not_given, work = not_given;
  int64_t cases = int64_t(not_given);
  bool json = false;
};

/// A kernel whose device is not here is left out of the default list, and said so.
std::vector<std::string> kernels_that_run_here() {
  std::vector<std::string> names;
  for (const std::string& name : builtin_kernels()) {
    std::string reason;
    if (device_available(load_kernel(name), reason))
      names.push_back(name);
    else
      fmt::print(stderr, "flashproof: {} is left out: {}\n", name, reason);
  }
  return names;
}

/// A flag goes before the preset; without either the budget is a minute, or the manifest's.
Settings settings_of(const Options& o) {
  if (o.cases == 0)  // which would be no limit
    throw UsageError("--cases: fuzz needs at least 1 case\n  example: flashproof fuzz cpu:flash2 --cases 1000");
  Settings s = o.settings;
  if (s.resume) {
    if (s.directory.empty()) s.directory = newest_campaign();
    const Manifest manifest = read_manifest(s.directory);
    s.seconds = manifest.seconds, s.cases = manifest.cases, s.kernels = manifest.kernels;
  }
  if (!o.preset.empty()) {
    const Preset& p = preset(o.preset);
    s.seconds = p.seconds, s.cases = p.cases, s.work = p.work, s.reduce_seconds = p.reduce_seconds;
  }
  if (o.seconds >= 0 || o.cases >= 0) s.seconds = std::max(0.0, o.seconds), s.cases = std::max<int64_t>(0, o.cases);
  if (o.work > 0) s.work = o.work;
  if (s.kernels.empty()) s.kernels = kernels_that_run_here();
  return s;
}

CampaignEnd run_with_panel(const Settings& s) {
  tell_of_missing_compiler(s.kernels);
  Panel panel("flashproof fuzz · " + joined(s.kernels, " ") + " · seed " + std::to_string(s.seed), s.seconds, s.cases,
              s.directory);
  return run_campaign(s, interrupt_flag(), [&](const Summary& summary, double seconds, bool reducing) {
    panel.show(summary, seconds, reducing);
  });
}

std::string again_line(const Settings& s, const Summary& summary) {
  std::string line = "./flashproof fuzz";
  for (const std::string& kernel : summary.manifest.kernels) line += " " + shell_word(kernel);
  line += fmt::format(" --seed {} --cases {}", summary.manifest.seed, summary.cases);
  if (!s.checks.empty()) line += " --check " + joined(s.checks, ",");
  for (const std::string& data : s.data) line += " --data " + shell_word(data);
  return line;
}

void print_end(const Settings& s, const CampaignEnd& end) {
  fmt::print("{}stopped after {}: {}{}\n", page_of(end.summary), print_duration(end.seconds), name_of(end.reason),
             end.storage_error.empty() ? "" : ": " + end.storage_error);
  if (!end.internal_error.empty()) fmt::print("INTERNAL ERROR: {}\n", end.internal_error);
  fmt::print("records in {}\nas a page: ./flashproof report {}\nthe same cases again: {}\n", s.directory,
             shell_word(s.directory), again_line(s, end.summary));
}

/// The alarm is shown to work: a planted bug must be found. Returns 0, or the exit code of a failed show; 2 where there
/// is no planted bug, as beside the program of one file: nothing shows then that a pass means anything.
int show_alarm(const Settings& main) {
  const std::string plugin = demo_plugin_path();
  if (plugin.empty()) {
    fmt::print(
        "\nTHE ALARM WAS NOT SHOWN: there is no planted bug in {}/mutants, so nothing shows here that a bug would be "
        "found (exit code 2).\nA build of the sources has it: ./flashproof fuzz. A campaign of your own does without: "
        "flashproof fuzz --for 60s\n",
        program_folder());
    return 2;
  }
  Settings s;
  s.kernels = {plugin};
  s.seed = main.seed;
  s.seconds = 3 * demo_seconds;
  s.max_findings = 1;
  s.reduce_seconds = demo_seconds / 2;
  s.directory = main.directory + "/demo";
  const CampaignEnd end = run_with_panel(s);
  if (end.reason == StopReason::interrupted) return 130;
  if (!end.internal_error.empty()) fmt::print("\nINTERNAL ERROR: {}\n", end.internal_error);
  if (end.summary.findings.empty()) {
    fmt::print(
        "\nTHE ALARM FAILED: a planted bug (a window off by one) was not found in {} cases. Do not trust passes of "
        "this build.\n",
        end.summary.cases);
    return 70;
  }
  double reducing = 0;
  const Finding* shown = nullptr;  // one is enough here: the one with the smallest witness
  for (const Witness& witness : read_witnesses(s.directory)) reducing += witness.reduce_seconds;
  const auto size = [](const Finding& f) {
    return size_of(parse_case(f.smallest_text.empty() ? f.worst_text : f.smallest_text));
  };
  for (const auto& [bucket, finding] : end.summary.findings)
    if (!shown || size(finding) < size(*shown)) shown = &finding;
  fmt::print(
      "\nWANTED: a planted bug (a window off by one) was found in {} cases, {:.1f} s. This is the alarm "
      "working:\nWANTED {}",
      end.summary.cases, end.seconds - reducing, page_of(*shown));
  return end.internal_error.empty() ? 0 : 70;
}

int fuzz(const Options& o) {
  Settings s = settings_of(o);
  std::optional<NewCampaignFolder> folder;
  if (s.directory.empty()) s.directory = folder.emplace(utc_stamp()).path();
  const bool bare =
      o.settings.kernels.empty() && o.preset.empty() && o.seconds < 0 && o.cases < 0 && !s.resume && s.data.empty();
  if (bare) s.seconds -= demo_seconds;
  const CampaignEnd end = run_with_panel(s);
  const int code = exit_code(end);
  if (o.json)
    fmt::print("{}\n", json_object({{"directory", s.directory},
                                    {"stopped", name_of(end.reason)},
                                    {"seconds", end.seconds},
                                    {"exit_code", code},
                                    {"internal_error", end.internal_error},
                                    {"summary", json_of(end.summary)}})
                           .text());
  else
    print_end(s, end);
  if (!bare || o.json || code == 130 || code == 69 || code == 70) return code;
  const int alarm = show_alarm(s);
  return alarm != 0 && code != 1 ? alarm : code;
}

}  // namespace

void add_fuzz(CommandLine& line) {
  auto o = std::make_shared<Options>();
  Settings& s = o->settings;
  line.verb("fuzz", "random cases on kernels, each judged by every check",
            "fuzz cpu:flash2 ./mine.so --for 10m --out my-campaign", [o] { return fuzz(*o); })
      .words("KERNEL", s.kernels, false, "kernels to fuzz; every built-in one without")
      .positive_duration("--for", o->seconds, "stop after this time (60s)")
      .option("--cases", o->cases, "stop after so many cases")
      .option("--preset", o->preset, "named settings: smoke, ci or nightly (`flashproof list presets`)")
      .option("--seed", s.seed, "seed of the campaign (1); equal seeds give equal cases")
      .option("--out", s.directory, "folder of the campaign (flashproof-campaigns/TIME)")
      .flag("--resume", s.resume, "go on with the campaign in --out (the newest without); no case is lost or run twice")
      .list("--check", s.checks,
            "only these checks (`flashproof list checks`); without, all, of repeat and relations one a case")
      .list("--data", s.data, "safetensors files or folders of them, instead of generated data")
      .option("--jobs", s.jobs, "engine threads, each with its own workers (one a core)")
      .number("--work", o->work, "multiply-adds of a case, about (3e6)")
      .option("--max-findings", s.max_findings, "stop after so many different findings")
      .duration("--reduce-for", s.reduce_seconds, "time to reduce each finding (20s)")
      .positive_duration("--timeout", s.limits.seconds, "limit of one run, then it is a finding (20s)")
      .flag("--json", o->json, "one JSON object on stdout at the end");
}

}  // namespace flashproof
