// One case on one kernel: each check's runs are planned, run by a worker and judged.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "fuzz/runner.h"
#include "oracle/check.h"

namespace flashproof {

/// What to run: a case with the kernel's config, and the ids of the checks (empty: all that apply).
struct Job {
  Case c;
  std::string config;
  std::vector<std::string> checks;
};

/// A check that gave no verdict for want of something that a user can bring: its id, and what.
struct Unjudged {
  std::string check, reason;
};

/// Verdicts in the order of all_checks(); empty when the kernel's supports() rejects the problem, with the reason.
struct Judgement {
  std::vector<Verdict> verdicts;
  std::string rejected;  ///< reason; "" = not rejected
  std::vector<Unjudged> unjudged;
  Subject subject;  ///< what the kernel declared for the case; of a rejected one its name and config alone
  double kernel_seconds = 0, oracle_seconds = 0;
  /// The worst status: fail before inconclusive before rejected before pass; inconclusive where no check had anything
  /// to judge.
  Status status() const;
  /// First verdict that failed, or nullptr.
  const Verdict* failure() const;
};

/// A kernel whose supports() or arithmetic() fails has failed the first of the wanted checks, in a kind of its own.
Judgement execute(Worker&, const LoadedKernel&, const Job&);
/// The same with any way to run: this process, or one that keeps the results.
using RunOnce = std::function<RunResult(const Run&, const std::string& config)>;
Judgement execute(const RunOnce&, const LoadedKernel&, const Job&);

/// Refuses an unknown check id with the nearest one (UsageError).
void validate_check_ids(const std::vector<std::string>& ids);

/// Key of equal failures: kernel, check, kind, output.
std::string bucket_of(const LoadedKernel&, const Verdict&);
/// The failed verdict of that bucket, or nullptr.
const Verdict* failure_in(const Judgement&, const LoadedKernel&, const std::string& bucket);

/// The text as one word of a POSIX shell's command line: in quotes where it needs them.
std::string shell_word(const std::string& text);

/// What a user types to see this job again.
std::string replay_line(const LoadedKernel&, const Job&, const std::string& check);

}  // namespace flashproof
