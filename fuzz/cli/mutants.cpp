// `mutants`: whether planted bugs are found. Each is a plug-in built from a patched copy of a kernel; the unchanged
// default campaign looks for it with several seeds. Beside it stands what two usual test rules find
// (fuzz/common_rules.h).
#include <algorithm>
#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "fuzz/campaign.h"
#include "fuzz/cli/options.h"
#include "fuzz/cli/verbs.h"
#include "fuzz/common_rules.h"
#include "fuzz/json_text.h"
#include "fuzz/mutant_manifest.h"
#include "fuzz/reduce.h"
#include "reference/errors.h"
#include "reference/nearest_word.h"

namespace flashproof {
namespace {

struct Options {
  std::string directory;
  std::vector<std::string> only;
  double seconds = 60, reduce_seconds = 20;
  int seeds = 3;
  bool json = false;
};

struct Hunt {
  uint64_t seed = 0;
  bool found = false;
  std::string check, why;
  double seconds = 0;  ///< until the first finding
  int64_t cases = 0;
  Witness smallest;
};

struct Row {
  Mutant mutant;
  std::vector<Hunt> hunts;
  std::string allclose, twice;  ///< "found", "missed", or "no use": it rejects the right kernel on every usual case
  std::string unusable;         ///< why the plug-in could not be run

  int64_t found() const {
    return std::count_if(hunts.begin(), hunts.end(), [](const Hunt& hunt) { return hunt.found; });
  }
  const Witness* smallest() const {
    const Witness* best = nullptr;
    for (const Hunt& hunt : hunts)
      if (hunt.found && !hunt.smallest.text.empty() &&
          (!best || size_of(parse_case(hunt.smallest.text)) < size_of(parse_case(best->text))))
        best = &hunt.smallest;
    return best;
  }
};

Hunt hunt(const std::string& plugin, uint64_t seed, const Options& o) {
  const TemporaryFolder folder;
  Settings s;
  s.kernels = {plugin};
  s.seed = seed;
  s.seconds = o.seconds;
  s.max_findings = 1;
  s.reduce_seconds = o.reduce_seconds;
  s.directory = folder.path() + "/campaign";
  const CampaignEnd end = run_campaign(s, interrupt_flag(), {});
  if (!end.internal_error.empty() && end.summary.findings.empty()) throw std::runtime_error(end.internal_error);
  Hunt hunt;
  hunt.seed = seed, hunt.cases = end.summary.cases, hunt.seconds = end.seconds;
  for (const Witness& witness : read_witnesses(s.directory)) {
    hunt.seconds -= witness.reduce_seconds;
    if (hunt.smallest.text.empty() || size_of(parse_case(witness.text)) < size_of(parse_case(hunt.smallest.text)))
      hunt.smallest = witness;
  }
  for (const auto& [bucket, finding] : end.summary.findings)
    if (!hunt.found) hunt.found = true, hunt.check = finding.check, hunt.why = finding.why;
  return hunt;
}

constexpr const char* no_use = "no use";
constexpr const char* not_built = "not built";

/// A rule finds a bug where it rejects the bug's output and accepts that of the right kernel on the same case: one that
/// rejects both tells nothing.
std::string found_by(bool RuleVerdict::*rule, const std::vector<RuleVerdict>& bug,
                     const std::vector<RuleVerdict>& right) {
  int64_t telling = 0;
  for (const RuleVerdict& b : bug)
    for (const RuleVerdict& r : right) {
      if (b.text != r.text || b.output != r.output || !(r.*rule)) continue;
      ++telling;
      if (!(b.*rule)) return "found";
    }
  return telling == 0 ? no_use : "missed";
}

/// Why the right kernel cannot run here, which then no bug in it can either; "" where it can.
std::string lacks(const std::string& base) {
  std::string reason;
  try {
    device_available(load_kernel(base), reason);
  } catch (const UnavailableError& error) {
    reason = error.what();
  }
  return reason;
}

Row examine(const Mutant& mutant, const Options& o, std::map<std::string, std::vector<RuleVerdict>>& right) {
  Row row{mutant, {}, "-", "-", lacks(mutant.base)};
  if (row.unusable.empty() && !std::filesystem::exists(mutant.library)) row.unusable = not_built;
  if (!row.unusable.empty()) return row;
  const LoadedKernel* kernel = nullptr;
  try {
    kernel = &load_kernel(mutant.library);
  } catch (const UnavailableError& error) {
    row.unusable = error.what();
    return row;
  }
  for (int seed = 1; seed <= o.seeds; ++seed) {
    Hunt result = hunt(mutant.library, uint64_t(seed), o);
    if (interrupt_flag() && !result.found) return row;  // a hunt cut short says nothing
    row.hunts.push_back(std::move(result));
  }
  if (right.count(mutant.base) == 0) {
    Worker worker(mutant.base, Limits{});
    right[mutant.base] = judge_by_common_rules(worker, load_kernel(mutant.base));
  }
  Worker worker(mutant.library, Limits{});
  const std::vector<RuleVerdict> bug = judge_by_common_rules(worker, *kernel);
  row.allclose = found_by(&RuleVerdict::allclose, bug, right[mutant.base]);
  row.twice = found_by(&RuleVerdict::twice, bug, right[mutant.base]);
  return row;
}

int64_t keys_of(const Witness& w) {
  const Problem p = parse_case(w.text).problem;
  return max_used_length(p.k, p.batch);
}
int64_t rows_of(const Witness& w) {
  const Problem p = parse_case(w.text).problem;
  return max_used_length(p.q, p.batch);
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

void print_row(const Row& row) {
  std::string seconds, checks;
  for (const Hunt& hunt : row.hunts) {
    seconds += (seconds.empty() ? "" : " ") + (hunt.found ? fmt::format("{:.1f}", hunt.seconds) : std::string("-"));
    if (hunt.found && checks.find(hunt.check) == std::string::npos) checks += (checks.empty() ? "" : ",") + hunt.check;
  }
  const std::string verdict =
      !row.unusable.empty() ? row.unusable == not_built ? not_built : "not run"
      : row.found() == int64_t(row.hunts.size())
          ? "found"
          : fmt::format("SURVIVED {} of {} seeds", int64_t(row.hunts.size()) - row.found(), row.hunts.size());
  fmt::print("{:<34} {:<10} {:<22} {:<18} {:<8} {:<8} {}\n", row.mutant.name, verdict, checks, seconds, row.allclose,
             row.twice, row.mutant.title);
  if (!row.unusable.empty() && row.unusable != not_built) fmt::print("    {}\n", row.unusable);
  if (const Witness* w = row.smallest())
    fmt::print("    {} keys, {} rows, reduced in {:.1f} s: {}{}\n", keys_of(*w), rows_of(*w), w->reduce_seconds,
               w->text, w->config.empty() ? "" : " with " + w->config);
  std::fflush(stdout);
}

JsonText json_of(const Row& row) {
  std::vector<JsonText> hunts;
  for (const Hunt& h : row.hunts)
    hunts.push_back(json_object({{"seed", h.seed},
                                 {"found", h.found},
                                 {"check", h.check},
                                 {"seconds", h.seconds},
                                 {"cases", h.cases},
                                 {"why", h.why},
                                 {"smallest", h.smallest.text},
                                 {"config", h.smallest.config},
                                 {"reduce_seconds", h.smallest.reduce_seconds}}));
  return json_object({{"name", row.mutant.name},
                      {"title", row.mutant.title},
                      {"category", row.mutant.category},
                      {"base", row.mutant.base},
                      {"not_run", row.unusable},
                      {"found", row.found()},
                      {"seeds", json_array(hunts)},
                      {"allclose", row.allclose},
                      {"twice", row.twice}});
}

/// The folder's, or those of --only. Throws UsageError for a name that the folder lacks.
std::vector<Mutant> chosen_mutants(const Options& o) {
  std::vector<Mutant> all = read_mutants(o.directory.empty() ? program_folder() + "/mutants" : o.directory);
  if (o.only.empty()) return all;
  std::vector<Mutant> chosen;
  for (const std::string& name : o.only) {
    const auto at = std::find_if(all.begin(), all.end(), [&](const Mutant& mutant) { return mutant.name == name; });
    if (at == all.end()) {
      std::vector<std::string> names;
      for (const Mutant& mutant : all) names.push_back(mutant.name);
      throw UsageError("--only: no planted bug is called `" + name + "`; the nearest is " + nearest_word(name, names));
    }
    chosen.push_back(*at);
  }
  return chosen;
}

int mutants(const Options& o) {
  const std::vector<Mutant> chosen = chosen_mutants(o);
  std::vector<Row> rows;
  std::map<std::string, std::vector<RuleVerdict>> right;
  std::set<std::string> lacking;  // right kernels that cannot run here, told once each
  if (!o.json)
    fmt::print("{:<34} {:<10} {:<22} {:<18} {:<8} {:<8} {}\n", "planted bug", "verdict", "by", "seconds a seed",
               "allclose", "2x rule", "what is wrong");
  for (const Mutant& mutant : chosen) {
    Row row = examine(mutant, o, right);
    if (interrupt_flag()) break;
    rows.push_back(std::move(row));
    if (o.json) continue;
    if (const std::string reason = lacks(mutant.base); reason.empty())
      print_row(rows.back());
    else if (lacking.insert(mutant.base).second)
      fmt::print("{:<34} not run    {}\n", "all of " + mutant.base, reason);
  }
  const auto planned = int64_t(chosen.size());
  int64_t ran = 0, always = 0, allclose = 0, twice = 0;
  bool unusable_rule = false;
  std::vector<double> keys, row_counts, reduce_seconds;
  for (const Row& row : rows) {
    ran += !row.hunts.empty();
    always += !row.hunts.empty() && row.found() == int64_t(row.hunts.size());
    allclose += row.allclose == "found", twice += row.twice == "found";
    unusable_rule |= row.allclose == no_use || row.twice == no_use;
    const Witness* w = row.smallest();
    if (w)
      keys.push_back(double(keys_of(*w))), row_counts.push_back(double(rows_of(*w))),
          reduce_seconds.push_back(w->reduce_seconds);
  }
  if (o.json) {
    std::vector<JsonText> list;
    for (const Row& row : rows) list.push_back(json_of(row));
    fmt::print("{}\n", json_object({{"mutants", json_array(list)},
                                    {"planned", planned},
                                    {"ran", ran},
                                    {"found_by_every_seed", always},
                                    {"allclose", allclose},
                                    {"twice", twice}})
                           .text());
  } else {
    fmt::print("\n{} of {} planted bugs found by every seed within {}; allclose finds {}, the 2x rule {}\n", always,
               ran, print_duration(o.seconds), allclose, twice);
    if (interrupt_flag())
      fmt::print("interrupted: {} of {} bugs were not looked for\n", planned - ran, planned);
    else if (ran < planned)
      fmt::print(
          "{} of {} bugs were not run; those that are not built: cmake --build .build/release --target "
          "flashproof_mutants\n",
          planned - ran, planned);
    if (unusable_rule) fmt::print("{}: the rule rejects the right kernel's output on every usual case\n", no_use);
    if (!keys.empty())
      fmt::print("smallest witnesses: median {:.0f} keys, {:.0f} rows, reduced in {:.1f} s\n", median(keys),
                 median(row_counts), median(reduce_seconds));
  }
  if (interrupt_flag()) return 130;
  return always < ran ? 1 : ran == planned ? 0 : 2;
}

}  // namespace

void add_mutants(CommandLine& line) {
  auto o = std::make_shared<Options>();
  line.verb("mutants",
            "whether planted bugs are found (1: one is not; 2: one was not run), beside what usual rules find",
            "mutants .build/release/mutants", [o] { return mutants(*o); })
      .word("DIR", o->directory, false,
            "folder of the planted bugs and their manifest.json (`mutants` beside the program)")
      .list("--only", o->only, "only these bugs, by name")
      .positive_duration("--for", o->seconds, "the campaign's time for each bug and seed (60s)")
      .option("--seeds", o->seeds, "seeds 1 to this (3)")
      .duration("--reduce-for", o->reduce_seconds, "time to reduce each finding (20s)")
      .flag("--json", o->json, "one JSON object on stdout");
}

}  // namespace flashproof
