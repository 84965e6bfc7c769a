// A campaign: cases 0, 1, 2, ... of a seed, executed on all cores, recorded one line each, resumable after any
// interruption.
//
// The engine never calls a kernel itself; workers do (fuzz/runner.h). Case `index` is a pure function of the seed
// (fuzz/generate.h), so a resumed campaign runs exactly the indices that have no record: none is lost or run twice. The
// last tenth of a time budget is kept for reducing what was found.
#pragma once
#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "fuzz/record.h"
#include "fuzz/summary.h"

namespace flashproof {

struct Settings {
  std::vector<std::string> kernels;
  std::vector<std::string> checks;  ///< ids; empty: all, of `repeat` and `relations` one a case
  std::vector<std::string> data;    ///< safetensors files or folders of them; empty: generated data
  uint64_t seed = 1;
  int64_t cases = 0;           ///< stop after this many; 0: no limit
  double seconds = 60;         ///< stop after this time; 0: no limit
  double work = 3e6;           ///< multiply-adds of a case, about
  int jobs = 0;                ///< engine threads, each with its own workers; 0: one a core
  int64_t max_findings = 0;    ///< stop after this many buckets; 0: no limit
  double reduce_seconds = 20;  ///< for each bucket
  Limits limits;
  std::string directory;  ///< created; must not hold a campaign unless `resume`
  bool resume = false;    ///< settings other than the budget come from the manifest
};

enum class StopReason { cases_done, time_over, interrupted, findings, storage, internal };
const char* name_of(StopReason);

struct CampaignEnd {
  StopReason reason = StopReason::cases_done;
  std::string storage_error;   ///< why records could not be written, for StopReason::storage
  std::string internal_error;  ///< what went wrong in the program itself; findings made so far stand
  Summary summary;
  double seconds = 0;  ///< of this run, not of earlier ones
};

/// Called about twice a second with a running summary.
using ShowProgress = std::function<void(const Summary&, double seconds, bool reducing)>;

/// Runs until a budget is used up, `interrupt` becomes true, or the disk refuses a record. Throws UsageError for wrong
/// settings or a damaged campaign, UnavailableError for kernels, devices or a directory that cannot be had.
CampaignEnd run_campaign(const Settings&, const std::atomic<bool>& interrupt, const ShowProgress&);

/// Exit code of a finished campaign: 69 storage, 1 with findings, 70 internal error, 130 interrupted, 2 when nothing
/// ran, else 0.
int exit_code(const CampaignEnd&);

/// Witnesses for every bucket in the directory: the worst, and the smallest after reduction; a bucket that has been
/// reduced is not again. `run` judges a job. Returns what went wrong in reducing the first bucket that could not be, ""
/// if nothing: the others are reduced all the same.
using RunJob = std::function<Judgement(const std::string& kernel, const Job&)>;
std::string write_witnesses(const std::string& directory, const std::vector<Record>& failures, const RunJob& run,
                            double seconds_a_bucket, const std::atomic<bool>& interrupt);

}  // namespace flashproof
