// What a campaign's records say, in numbers: the page at the end of `fuzz`, and every report.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "fuzz/coverage.h"
#include "fuzz/record.h"

namespace flashproof {

/// Largest ratio seen for one dtype and output.
struct WorstRatio {
  double ratio = 0;
  std::string kernel, config, text, id;
  std::string status;  ///< of the bound: derived, proved, measured
  int64_t cases = 0;   ///< in which the output was judged
};

struct KernelCount {
  int64_t cases = 0, passed = 0, failed = 0, inconclusive = 0, rejected = 0;
  std::map<std::string, int64_t> reasons;  ///< of rejections and inconclusive verdicts
};

struct Finding {
  std::string bucket, kernel, check, kind;
  int64_t count = 0;
  double worst_ratio = 0;
  std::string worst_id, worst_text, smallest_id, smallest_text, replay, why;
};

struct Summary {
  Manifest manifest;
  int64_t cases = 0, checks = 0, undecided = 0;
  std::map<std::string, KernelCount> kernels;
  std::map<std::string, std::map<std::string, WorstRatio>> worst;  ///< by dtype, then output
  std::map<std::string, Finding> findings;                         ///< by bucket
  std::map<std::string, int64_t> checks_run;                       ///< by check id
  Coverage coverage;
  Coverage::Summary cells;
  double kernel_seconds = 0, oracle_seconds = 0;
};

/// Adds one record. `kernel` is needed for tile edges; nullptr (a plug-in that is gone) counts no cells.
void add(Summary&, const Record&, const LoadedKernel* kernel);

/// All records of a campaign directory; a torn last line is dropped. Throws UsageError for a damaged one, naming file and line.
std::vector<Record> read_records(const std::string& directory);
Manifest read_manifest(const std::string& directory);
std::vector<Witness> read_witnesses(const std::string& directory);
/// The summary of a directory; cells are counted for kernels that can still be loaded.
Summary summarize(const std::string& directory);

/// One page for a person: the number of findings first, each finding's replay line last.
std::string page_of(const Summary&);
std::string page_of(const Finding&);

}  // namespace flashproof
