// A campaign as JSON, Markdown or JUnit: pure functions of what is in its directory.
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "fuzz/json_text.h"
#include "fuzz/summary.h"

namespace flashproof {

/// How often a check of a kernel ended how.
struct CheckCount {
  int64_t passed = 0, failed = 0, inconclusive = 0;
  double seconds = 0;
  std::vector<std::string> buckets;  ///< of its findings
};

struct Report {
  Summary summary;
  std::map<std::pair<std::string, std::string>, CheckCount> checks;  ///< by (kernel, check id)
  std::map<std::string, std::string> accepted;  ///< bucket to reason: findings that are known (verb gate)
};
void add(Report&, const Record&);
Report read_report(const std::string& directory);
/// Adds what `other` counted (of cases outside the directory); cells stay those of `report`.
void merge(Report& report, const Report& other);

/// "Flashproof 0.1.0 0123abcd, campaign 0123456789abcdef": names the program and, by the manifest's hash, the cases.
std::string citation(const Manifest&);

JsonText json_of(const Summary&);
std::string report_json(const Report&);
std::string report_markdown(const Report&);  ///< one page, for a pull request
/// The same figures by kernel, dtype and output with the arithmetic that each bound is for: what a paper's author
/// pastes.
std::string report_paper(const Report&);
/// One test case a kernel and check: millions of fuzz cases would choke every viewer.
std::string report_junit(const Report&);

}  // namespace flashproof
