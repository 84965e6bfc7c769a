// `gate`: for CI. Regressions first, then the same fixed cases for the same version, kernel and seed. A failing case is
// run twice more. One that fails each time is a finding; one that does not is a finding too, and called flaky: a kernel
// that is wrong now and then is wrong. (Wrong half of the time, it fails all three runs in one of four, and is then not
// called so.) Known findings, flaky or not, are accepted until their day of expiry.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <sstream>

#include <fmt/format.h>

#include "fuzz/campaign.h"
#include "fuzz/campaign_directory.h"
#include "fuzz/cli/known_findings.h"
#include "fuzz/cli/named_case.h"
#include "fuzz/cli/options.h"
#include "fuzz/cli/verbs.h"
#include "fuzz/panel.h"
#include "fuzz/report/report.h"
#include "reference/errors.h"

namespace flashproof {
namespace {

namespace fs = std::filesystem;

struct Options {
  Settings settings;
  std::string regressions, known, junit, markdown;
  std::vector<std::string> allow_missing;
  bool json = false;
};

/// Case texts of every file of the folder, one a line; `#` starts a comment. Throws UsageError naming file and line.
std::vector<Case> read_regressions(const std::string& folder) {
  std::vector<Case> cases;
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.is_regular_file() && entry.path().extension() != ".md") files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  for (const std::string& file : files) {
    std::istringstream lines(read_text(file));
    int64_t number = 0;
    for (std::string line; std::getline(lines, line);) {
      ++number;
      const size_t first = line.find_first_not_of(" \t\r");
      if (first == std::string::npos || line[first] == '#') continue;
      try {
        cases.push_back(parse_case(line));
      } catch (const UsageError& error) {
        throw UsageError(fmt::format("{} line {}: {}", file, number, error.what()));
      }
    }
  }
  return cases;
}

std::set<std::string> failing_buckets(const Record& record) {
  LoadedKernel named;
  named.name = record.kernel;
  std::set<std::string> buckets;
  for (const Verdict& verdict : record.verdicts)
    if (verdict.status == Status::fail) buckets.insert(bucket_of(named, verdict));
  return buckets;
}

/// The buckets that fail in each of three runs of the record's case, the recorded one among them.
std::set<std::string> steady_buckets(const Record& record, const Options& o) {
  const LoadedKernel& kernel = load_kernel(record.kernel);
  std::set<std::string> steady = failing_buckets(record);
  for (int run = 1; run < 3; ++run) {
    Worker worker(kernel.name, o.settings.limits);
    const Job job{parse_case(record.text), record.config, o.settings.checks};
    const std::set<std::string> now = failing_buckets(record_of(kernel, job, execute(worker, kernel, job)));
    std::erase_if(steady, [&](const std::string& bucket) { return now.count(bucket) == 0; });
  }
  return steady;
}

/// Buckets that fail steadily, and those whose verdict changed from run to run.
struct Confirmed {
  std::set<std::string> steady, flaky;
};

Confirmed confirm(const std::vector<Record>& failures, const Options& o) {
  constexpr int tries = 5;  // records of one bucket that are run again
  std::map<std::string, int> tried;
  Confirmed confirmed;
  for (const Record& record : failures) {
    const std::set<std::string> buckets = failing_buckets(record);
    const auto open = [&](const std::string& bucket) {
      return confirmed.steady.count(bucket) == 0 && tried[bucket] < tries;
    };
    if (!std::any_of(buckets.begin(), buckets.end(), open)) continue;
    const std::set<std::string> steady = steady_buckets(record, o);
    for (const std::string& bucket : buckets) {
      ++tried[bucket];
      (steady.count(bucket) ? confirmed.steady : confirmed.flaky).insert(bucket);
    }
  }
  for (const std::string& bucket : confirmed.steady) confirmed.flaky.erase(bucket);
  return confirmed;
}

/// Runs the regressions, adding each to the report; returns the records that failed.
std::vector<Record> run_regressions(const std::vector<Case>& cases, const Options& o, Report& report) {
  std::vector<Record> failures;
  for (const std::string& name : o.settings.kernels) {
    const LoadedKernel& kernel = load_kernel(name);
    Worker worker(name, o.settings.limits);
    for (const Case& c : cases) {
      if (interrupt_flag()) return failures;
      const Job job{c, "", o.settings.checks};
      const Record record = record_of(kernel, job, execute(worker, kernel, job));
      add(report, record);
      if (record.status() == Status::fail) failures.push_back(record);
    }
  }
  return failures;
}

/// 0, or the code to end with when a kernel's device is not here.
int missing_device(const Options& o) {
  for (const std::string& name : o.settings.kernels) {
    std::string reason;
    try {
      if (device_available(load_kernel(name), reason)) continue;
    } catch (const UnavailableError& error) {
      if (!name.starts_with("gpu:")) throw;
      reason = error.what();  // a build without CUDA
    }
    const bool allowed = std::find(o.allow_missing.begin(), o.allow_missing.end(), "gpu") != o.allow_missing.end();
    fmt::print(stderr, "flashproof: {} cannot run here: {}{}\n", name, reason,
               allowed ? "; skipped" : "; `--allow-missing gpu` skips it with exit code 77");
    return allowed ? 77 : 69;
  }
  return 0;
}

struct Outcome {
  int code = 0;
  std::vector<std::string> lines;
};

/// What the buckets mean, given what is known. A listed finding that has expired is a finding.
Outcome outcome_of(const Confirmed& confirmed, const std::vector<KnownFinding>& known, Report& report) {
  Outcome outcome;
  const std::string today = today_utc();
  const auto judge = [&](const std::string& bucket, const std::string& how) {
    const auto listed =
        std::find_if(known.begin(), known.end(), [&](const KnownFinding& k) { return k.bucket == bucket; });
    if (listed != known.end() && listed->expires >= today) {
      report.accepted[bucket] = listed->reason;
      outcome.lines.push_back("known: " + bucket + how + " (" + listed->reason + ", until " + listed->expires + ")");
      return;
    }
    outcome.code = 1;
    outcome.lines.push_back(
        (listed == known.end() ? "FINDING: " : "FINDING, known but expired on " + listed->expires + ": ") + bucket +
        how);
  };
  for (const std::string& bucket : confirmed.steady) judge(bucket, "");
  for (const std::string& bucket : confirmed.flaky)
    judge(bucket, ", flaky: it fails in some runs of the same case and not in others");
  for (const KnownFinding& k : known)
    if (confirmed.steady.count(k.bucket) == 0 && confirmed.flaky.count(k.bucket) == 0)
      outcome.lines.push_back("passes again: " + k.bucket + "; take it off the list");
  return outcome;
}

int gate(Options o) {
  Settings& s = o.settings;
  if (s.cases == 0)
    throw UsageError("--cases: gate needs at least 1 case\n  example: flashproof gate ./mine.so --cases 300");
  const std::vector<KnownFinding> known = o.known.empty() ? std::vector<KnownFinding>{} : read_known_findings(o.known);
  std::string folder = o.regressions;
  if (folder.empty() && fs::is_directory("tests/regressions")) folder = "tests/regressions";
  if (!folder.empty() && !fs::is_directory(folder)) throw UnavailableError("no such folder of regressions: " + folder);
  const std::vector<Case> regressions = folder.empty() ? std::vector<Case>{} : read_regressions(folder);
  validate_check_ids(s.checks);
  if (const int code = missing_device(o)) return code;
  tell_of_missing_compiler(o.settings.kernels);

  Report regression_report;
  std::vector<Record> failures = run_regressions(regressions, o, regression_report);
  s.seconds = 0;
  std::optional<NewCampaignFolder> folder_of_campaign;
  if (s.directory.empty()) s.directory = folder_of_campaign.emplace("gate-" + utc_stamp()).path();
  CampaignEnd end;
  {
    Panel panel("flashproof gate · " + joined(s.kernels), 0, s.cases, s.directory);
    end = run_campaign(s, interrupt_flag(), [&](const Summary& summary, double seconds, bool reducing) {
      panel.show(summary, seconds, reducing);
    });
  }
  if (end.reason == StopReason::interrupted || end.reason == StopReason::storage) return exit_code(end);
  Report report = read_report(s.directory);
  for (const Record& record : read_records(s.directory))
    if (record.status() == Status::fail) failures.push_back(record);
  merge(report, regression_report);

  const Confirmed confirmed = confirm(failures, o);
  Outcome outcome = outcome_of(confirmed, known, report);
  if (!end.internal_error.empty()) {
    outcome.lines.push_back("internal error: " + end.internal_error);
    if (outcome.code != 1) outcome.code = 70;
  }
  int64_t passed = 0;
  for (const auto& [name, count] : report.summary.kernels) passed += count.passed;
  if (outcome.code == 0 && passed == 0 && report.accepted.empty())
    outcome.code = 2, outcome.lines.push_back("inconclusive: no case passed");

  if (!o.junit.empty()) write_file(o.junit, report_junit(report));
  if (!o.markdown.empty()) write_file(o.markdown, report_markdown(report));
  if (o.json) {
    fmt::print("{}\n", json_object({{"exit_code", outcome.code},
                                    {"lines", outcome.lines},
                                    {"flaky", std::vector<std::string>(confirmed.flaky.begin(), confirmed.flaky.end())},
                                    {"regressions", regressions.size()},
                                    {"directory", s.directory},
                                    {"summary", json_of(report.summary)}})
                           .text());
    return outcome.code;
  }
  fmt::print("{}{} regressions, then {} cases of seed {}; records in {}\n", page_of(report.summary), regressions.size(),
             end.summary.cases, s.seed, s.directory);
  for (const std::string& line : outcome.lines) fmt::print("{}\n", line);
  return outcome.code;
}

}  // namespace

void add_gate(CommandLine& line) {
  auto o = std::make_shared<Options>();
  Settings& s = o->settings;
  s.cases = 300;
  line.verb("gate", "regressions and a fixed budget of cases, for CI",
            "gate ./mine.so --cases 300 --known known.txt --junit junit.xml", [o] { return gate(*o); })
      .words("KERNEL", s.kernels, true, "kernels to gate")
      .option("--cases", s.cases, "cases after the regressions (300): a budget of cases, not of seconds")
      .option("--seed", s.seed, "seed (1): equal seeds give equal cases")
      .option("--regressions", o->regressions,
              "folder of files with one case a line (tests/regressions where there is one)")
      .option("--known", o->known,
              "file of known findings, which must exist: BUCKET YYYY-MM-DD REASON a line, the day being the last on "
              "which it is accepted; it may be empty")
      .option("--junit", o->junit, "write JUnit XML into this file")
      .option("--markdown", o->markdown, "write Markdown into this file, e.g. for $GITHUB_STEP_SUMMARY")
      .list("--allow-missing", o->allow_missing, "`gpu`: end with 77 (skipped) instead of 69 where there is none")
      .list("--check", s.checks, "only these checks")
      .option("--out", s.directory, "folder of the campaign (flashproof-campaigns/gate-TIME)")
      .duration("--reduce-for", s.reduce_seconds, "time to reduce each finding (20s)")
      .positive_duration("--timeout", s.limits.seconds, "limit of one run (20s)")
      .flag("--json", o->json, "one JSON object on stdout");
}

}  // namespace flashproof
