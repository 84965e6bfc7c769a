// Planning, running and judging of one case; see execute.h.
#include "fuzz/execute.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <string_view>

#include "fuzz/memory_plan.h"
#include "fuzz/steady_seconds.h"
#include "reference/errors.h"
#include "reference/nearest_word.h"

namespace flashproof {
namespace {

bool wanted(const Job& job, const Check& check) {
  return job.checks.empty() || std::find(job.checks.begin(), job.checks.end(), check.id) != job.checks.end();
}

std::string file_name_of(const std::string& kernel) {
  std::string name = kernel.substr(kernel.rfind('/') + 1);
  if (name.ends_with(".so")) name.resize(name.size() - 3);
  std::replace(name.begin(), name.end(), ':', '-');
  return name;
}

/// No kernel sends itself SIGKILL: a person or the kernel's out-of-memory killer did. Such a run gets a second chance.
bool killed_from_outside(const RunResult& result) {
  return result.status == RunStatus::crash && result.message.starts_with("crashed: SIGKILL");
}

/// Asks the kernel; false where that settles the case.
bool describe(const LoadedKernel& kernel, const Job& job, Judgement& judgement) {
  judgement.subject.name = kernel.name, judgement.subject.config = job.config;
  try {
    if (!supports(kernel, job.c.problem, job.config, judgement.rejected)) return false;
    judgement.subject = subject_of(kernel, job.c.problem, job.config);
  } catch (const BadDescription& bad) {
    Verdict verdict;
    verdict.check = job.checks.empty() ? all_checks().front().id : job.checks.front();
    verdict.status = Status::fail;
    verdict.kind = bad.kind, verdict.why = bad.what();
    verdict.ratio = std::numeric_limits<double>::infinity();
    judgement.verdicts.push_back(verdict);
    return false;
  }
  return true;
}

}  // namespace

Status Judgement::status() const {
  if (!rejected.empty()) return Status::rejected;
  Status worst = verdicts.empty() ? Status::inconclusive : Status::pass;
  const auto rank = [](Status s) {
    return s == Status::fail ? 3 : s == Status::inconclusive ? 2 : s == Status::rejected ? 1 : 0;
  };
  for (const Verdict& verdict : verdicts)
    if (rank(verdict.status) > rank(worst)) worst = verdict.status;
  return worst;
}

const Verdict* Judgement::failure() const {
  for (const Verdict& verdict : verdicts)
    if (verdict.status == Status::fail) return &verdict;
  return nullptr;
}

Judgement execute(Worker& worker, const LoadedKernel& kernel, const Job& job) {
  const RunOnce run_once = [&worker](const Run& run, const std::string& config) {
    const RunResult result = worker.run(run, config);
    return killed_from_outside(result) ? worker.run(run, config) : result;
  };
  return execute(run_once, kernel, job);
}

Judgement execute(const RunOnce& run_once, const LoadedKernel& kernel, const Job& job) {
  Judgement judgement;
  if (!describe(kernel, job, judgement)) return judgement;
  require_memory_for(job.c.problem);
  const Subject& subject = judgement.subject;
  std::vector<std::pair<Run, RunResult>> done;
  const auto result_of = [&](const Run& run) {
    for (const auto& [earlier, result] : done)  // checks that plan the same run share its result
      if (earlier == run) return result;
    RunResult result = run_once(run, job.config);
    judgement.kernel_seconds += result.seconds;
    done.emplace_back(run, result);
    return result;
  };
  for (const Check& check : all_checks()) {
    if (!wanted(job, check)) continue;
    if (!check.applies(job.c, subject)) {
      const std::string missing = check.missing ? check.missing(job.c, subject) : "";
      if (!missing.empty()) judgement.unjudged.push_back({check.id, missing});
      continue;
    }
    const double start = now();
    const std::vector<Run> runs = check.plan(job.c, subject);
    std::vector<RunResult> results;
    for (const Run& run : runs) results.push_back(result_of(run));
    const Verdict verdict = check.judge(job.c, subject, runs, results);
    if (!verdict.check.empty()) judgement.verdicts.push_back(verdict);
    judgement.oracle_seconds += now() - start;
  }
  judgement.oracle_seconds -= judgement.kernel_seconds;
  return judgement;
}

void validate_check_ids(const std::vector<std::string>& ids) {
  std::vector<std::string> known;
  for (const Check& check : all_checks()) known.push_back(check.id);
  for (const std::string& id : ids)
    if (std::find(known.begin(), known.end(), id) == known.end())
      throw UsageError("no check is called `" + id + "`; the nearest is `" + nearest_word(id, known) +
                       "`. `flashproof list checks` shows all");
}

std::string bucket_of(const LoadedKernel& kernel, const Verdict& verdict) {
  std::string bucket = file_name_of(kernel.name) + "." + verdict.check + "." + verdict.kind;
  if (verdict.where.index >= 0) bucket += std::string(".") + name_of(verdict.where.output);
  return bucket;
}

const Verdict* failure_in(const Judgement& judgement, const LoadedKernel& kernel, const std::string& bucket) {
  for (const Verdict& verdict : judgement.verdicts)
    if (verdict.status == Status::fail && bucket_of(kernel, verdict) == bucket) return &verdict;
  return nullptr;
}

std::string shell_word(const std::string& text) {
  const bool plain = std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) || std::string_view("_-./=,:+@%").find(char(c)) != std::string_view::npos;
  });
  if (plain && !text.empty()) return text;
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

std::string replay_line(const LoadedKernel& kernel, const Job& job, const std::string& check) {
  std::string line = "./flashproof replay --kernel " + shell_word(kernel.name);
  if (!job.config.empty()) line += " --config " + shell_word(job.config);
  if (!check.empty()) line += " --check " + check;
  return line + " " + shell_word(print(job.c));
}

}  // namespace flashproof
