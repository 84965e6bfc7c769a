// What a campaign's records say, in numbers: the page at the end of `fuzz`, and every report.
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "fuzz/case_sizes.h"
#include "fuzz/coverage.h"
#include "fuzz/record.h"

namespace flashproof {

/// Largest error / bound seen of one output: what was found at least, where 1 is the bound at most.
struct WorstRatio {
  double ratio = 0;
  double error = 0, bound = 0, ulp = 0;  ///< at that element, the ulp of the output's format; ulp 0: not recorded
  std::string kernel, config, text, id;
  std::string assumed;     ///< what the bound assumed: "bound derived; ..."
  std::string arithmetic;  ///< declared for that case; "" unknown
  int64_t cases = 0;       ///< in which the output was judged
};
/// derived, proved or measured: the status of the bound in `assumed`; "" where it has none.
std::string bound_status(const WorstRatio&);
/// The larger of both, for the cases of both.
void keep_larger(WorstRatio& to, const WorstRatio& from);

/// What a kernel showed in one input format.
struct Accuracy {
  int64_t cases = 0, passed = 0, failed = 0, inconclusive = 0, rejected = 0;
  std::map<OutputId, WorstRatio> found;  ///< failing cases included
};
void add(Accuracy& to, const Accuracy& from);

struct KernelCount {
  int64_t cases = 0, passed = 0, failed = 0, inconclusive = 0, rejected = 0;
  std::map<std::string, int64_t> reasons;   ///< of rejections and inconclusive verdicts
  std::map<std::string, int64_t> unjudged;  ///< "CHECK: why it gave no verdict"
};

struct Finding {
  std::string bucket, kernel, check, kind;
  int64_t count = 0;
  double worst_ratio = 0;
  std::string worst_id, worst_text, why;
  std::string smallest_id, smallest_text, smallest_why;  ///< empty: not reduced
  std::string replay;                                    ///< the smallest's line, else the worst's
};

struct Summary {
  Manifest manifest;
  int64_t cases = 0, checks = 0, undecided = 0;
  std::map<std::string, KernelCount> kernels;
  std::map<std::string, std::map<std::string, WorstRatio>> worst;    ///< by dtype, then output: of verdicts that passed
  std::map<std::pair<std::string, std::string>, Accuracy> accuracy;  ///< by kernel and dtype
  std::map<std::string, Finding> findings;                           ///< by bucket
  std::map<std::string, int64_t> checks_run;                         ///< by check id
  CaseSizes sizes;                                                   ///< of the cases that were not rejected
  Coverage coverage;
  Coverage::Summary cells;
  double kernel_seconds = 0, oracle_seconds = 0;
};

/// Adds one record.
void add(Summary&, const Record&);
/// Of the manifest's kernels; empty where it does not say.
std::vector<Capabilities> capabilities_of(const Manifest&);

/// All records of a campaign directory; a torn last line is dropped. Throws UsageError for a damaged one, naming file
/// and line.
std::vector<Record> read_records(const std::string& directory);
Manifest read_manifest(const std::string& directory);
std::vector<Witness> read_witnesses(const std::string& directory);
/// The summary of a directory: of its files alone, whatever kernels this program has.
Summary summarize(const std::string& directory);

/// One page for a person: the number of findings first, each finding's replay line last.
std::string page_of(const Summary&);
std::string page_of(const Finding&);

}  // namespace flashproof
