// The report for programs; keys in fuzz/JSON.md.
#include "fuzz/report/report.h"

namespace flashproof {
namespace {

JsonText json_of(const Finding& finding) {
  return json_object(
      {{"bucket", finding.bucket},
       {"kernel", finding.kernel},
       {"check", finding.check},
       {"kind", finding.kind},
       {"cases", finding.count},
       {"worst_ratio", finding.worst_ratio},
       {"why", finding.why},
       {"worst", json_object({{"id", finding.worst_id}, {"case", finding.worst_text}})},
       {"smallest",
        json_object({{"id", finding.smallest_id}, {"case", finding.smallest_text}, {"why", finding.smallest_why}})},
       {"replay", finding.replay}});
}

JsonText json_of(const KernelCount& count) {
  std::vector<JsonMember> reasons, unjudged;
  for (const auto& [reason, times] : count.reasons) reasons.push_back({reason, times});
  for (const auto& [reason, times] : count.unjudged) unjudged.push_back({reason, times});
  return json_object({{"cases", count.cases},
                      {"passed", count.passed},
                      {"failed", count.failed},
                      {"inconclusive", count.inconclusive},
                      {"rejected", count.rejected},
                      {"reasons", json_object(reasons)},
                      {"unjudged", json_object(unjudged)}});
}

/// `error`, `bound` and both in ulp stand only where they were recorded.
JsonText json_of(const WorstRatio& worst) {
  std::vector<JsonMember> members = {{"ratio", worst.ratio},
                                     {"kernel", worst.kernel},
                                     {"config", worst.config},
                                     {"case", worst.text},
                                     {"id", worst.id},
                                     {"assumed", worst.assumed},
                                     {"cases", worst.cases},
                                     {"bound_status", bound_status(worst)},
                                     {"arithmetic", worst.arithmetic}};
  if (worst.ulp > 0)
    for (const JsonMember& member :
         {JsonMember{"error", worst.error}, JsonMember{"bound", worst.bound},
          JsonMember{"error_ulp", worst.error / worst.ulp}, JsonMember{"bound_ulp", worst.bound / worst.ulp}})
      members.push_back(member);
  return json_object(members);
}

JsonText json_of(const std::pair<const std::pair<std::string, std::string>, Accuracy>& entry) {
  const auto& [key, accuracy] = entry;
  std::vector<JsonMember> found;
  for (const auto& [output, worst] : accuracy.found) found.push_back({name_of(output), json_of(worst)});
  return json_object({{"kernel", key.first},
                      {"dtype", key.second},
                      {"cases", accuracy.cases},
                      {"passed", accuracy.passed},
                      {"failed", accuracy.failed},
                      {"inconclusive", accuracy.inconclusive},
                      {"rejected", accuracy.rejected},
                      {"bound_at_most", 1},
                      {"found_at_least", json_object(found)}});
}

JsonText json_of(const CaseSizes::Summary& sizes) {
  std::vector<JsonMember> members = {{"cases", sizes.cases},
                                     {"tiled", sizes.tiled},
                                     {"several_tiles", sizes.several_tiles},
                                     {"long_keys", sizes.long_keys}};
  for (int m = 0; m < measure_count; ++m) {
    const auto& q = sizes.quartiles[size_t(m)];
    if (q) members.push_back({name_of(Measure(m)), json_array({q->least, q->lower, q->median, q->upper, q->largest})});
  }
  return json_object(members);
}

}  // namespace

JsonText json_of(const Summary& s) {
  std::vector<JsonMember> kernels, worst, checks;
  std::vector<JsonText> findings, accuracy;
  for (const auto& [name, count] : s.kernels) kernels.push_back({name, json_of(count)});
  for (const auto& [dtype, outputs] : s.worst) {
    std::vector<JsonMember> members;
    for (const auto& [output, ratio] : outputs) members.push_back({output, json_of(ratio)});
    worst.push_back({dtype, json_object(members)});
  }
  for (const auto& entry : s.accuracy) accuracy.push_back(json_of(entry));
  for (const auto& [bucket, finding] : s.findings) findings.push_back(json_of(finding));
  for (const auto& [check, count] : s.checks_run) checks.push_back({check, count});
  return json_object(
      {{"id", citable_id(s.manifest)},
       {"cite", citation(s.manifest)},
       {"manifest", JsonText::raw(print(s.manifest))},
       {"cases", s.cases},
       {"checks", json_object(checks)},
       {"undecided", s.undecided},
       {"findings", json_array(findings)},
       {"kernels", json_object(kernels)},
       {"worst", json_object(worst)},
       {"accuracy", json_array(accuracy)},
       {"cells",
        json_object({{"visited", s.cells.visited}, {"feasible", s.cells.feasible}, {"emptiest", s.cells.emptiest}})},
       {"sizes", json_of(s.sizes.summary())},
       {"kernel_seconds", s.kernel_seconds},
       {"oracle_seconds", s.oracle_seconds}});
}

std::string report_json(const Report& report) { return json_of(report.summary).text() + "\n"; }

}  // namespace flashproof
