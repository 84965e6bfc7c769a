// Counting by kernel and check; see report.h.
#include "fuzz/report/report.h"

#include <algorithm>

#include "reference/errors.h"

namespace flashproof {
namespace {

void count(Report& report, const Record& record) {
  LoadedKernel kernel;
  kernel.name = record.kernel;
  for (const Verdict& verdict : record.verdicts) {
    CheckCount& count = report.checks[{record.kernel, verdict.check}];
    count.passed += verdict.status == Status::pass;
    count.failed += verdict.status == Status::fail;
    count.inconclusive += verdict.status == Status::inconclusive;
    count.seconds += (record.kernel_seconds + record.oracle_seconds) / double(record.verdicts.size());
    if (verdict.status != Status::fail) continue;
    const std::string bucket = bucket_of(kernel, verdict);
    if (std::find(count.buckets.begin(), count.buckets.end(), bucket) == count.buckets.end())
      count.buckets.push_back(bucket);
  }
}

}  // namespace

std::string citation(const Manifest& manifest) {
  return "Flashproof " + manifest.program_version + ", campaign " + citable_id(manifest);
}

void add(Report& report, const Record& record) {
  add(report.summary, record);
  count(report, record);
}

Report read_report(const std::string& directory) {
  Report report{summarize(directory), {}, {}};
  for (const Record& record : read_records(directory)) count(report, record);
  return report;
}

void merge(Report& report, const Report& other) {
  Summary& to = report.summary;
  const Summary& from = other.summary;
  to.cases += from.cases, to.checks += from.checks, to.undecided += from.undecided;
  to.sizes.add(from.sizes);
  to.kernel_seconds += from.kernel_seconds, to.oracle_seconds += from.oracle_seconds;
  for (const auto& [name, count] : from.kernels) {
    KernelCount& sum = to.kernels[name];
    sum.cases += count.cases, sum.passed += count.passed, sum.failed += count.failed;
    sum.inconclusive += count.inconclusive, sum.rejected += count.rejected;
    for (const auto& [reason, times] : count.reasons) sum.reasons[reason] += times;
    for (const auto& [reason, times] : count.unjudged) sum.unjudged[reason] += times;
  }
  for (const auto& [dtype, outputs] : from.worst)
    for (const auto& [output, worst] : outputs) keep_larger(to.worst[dtype][output], worst);
  for (const auto& [key, accuracy] : from.accuracy) add(to.accuracy[key], accuracy);
  for (const auto& [bucket, finding] : from.findings) {
    Finding& sum = to.findings[bucket];
    const int64_t count = sum.count + finding.count;
    if (sum.count == 0 || finding.worst_ratio > sum.worst_ratio) sum = finding;
    sum.count = count;
  }
  for (const auto& [check, count] : from.checks_run) to.checks_run[check] += count;
  for (const auto& [key, count] : other.checks) {
    CheckCount& sum = report.checks[key];
    sum.passed += count.passed, sum.failed += count.failed, sum.inconclusive += count.inconclusive,
        sum.seconds += count.seconds;
    for (const std::string& bucket : count.buckets)
      if (std::find(sum.buckets.begin(), sum.buckets.end(), bucket) == sum.buckets.end()) sum.buckets.push_back(bucket);
  }
}

}  // namespace flashproof
