// The report for a pull request or $GITHUB_STEP_SUMMARY.
#include <fmt/format.h>

#include "fuzz/report/report.h"

namespace flashproof {
namespace {

/// Text inside a table's cell.
std::string cell(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.replace(at, 1, "\\|");
  return text;
}

std::string table_of_checks(const Report& report) {
  std::string table = "| kernel | check | passed | failed | inconclusive |\n|---|---|--:|--:|--:|\n";
  for (const auto& [key, count] : report.checks)
    table += fmt::format("| {} | {} | {} | {} | {} |\n", cell(key.first), key.second, count.passed, count.failed,
                         count.inconclusive);
  return table;
}

std::string table_of_ratios(const Summary& s) {
  std::string table = "| dtype | output | largest error / bound | case | assumed |\n|---|---|--:|---|---|\n";
  for (const auto& [dtype, outputs] : s.worst)
    for (const auto& [output, worst] : outputs)
      table += fmt::format("| {} | {} | {:.3f} | `{}` on {} | {} |\n", dtype, output, worst.ratio, worst.id,
                           cell(worst.kernel), cell(worst.status));
  return table;
}

std::string section_of(const Finding& finding, const std::string& accepted) {
  std::string text = fmt::format("- **{}**: {} cases, worst error / bound {:.3g}. {}\n", finding.bucket, finding.count,
                                 finding.worst_ratio, finding.why);
  if (!accepted.empty()) text += "  Known: " + accepted + "\n";
  if (!finding.replay.empty()) text += "\n      " + finding.replay + "\n\n";
  return text;
}

}  // namespace

std::string report_markdown(const Report& report) {
  const Summary& s = report.summary;
  int64_t rejected = 0, inconclusive = 0;
  for (const auto& [name, count] : s.kernels) rejected += count.rejected, inconclusive += count.inconclusive;
  std::string page = fmt::format("## Flashproof: {} finding{} in {} cases\n\n", s.findings.size(),
                                 s.findings.size() == 1 ? "" : "s", s.cases);
  constexpr size_t most = 9;  // what a reader takes in; the rest is in the campaign
  size_t shown = 0;
  for (const auto& [bucket, finding] : s.findings) {
    if (shown++ == most) break;
    const auto known = report.accepted.find(bucket);
    page += section_of(finding, known == report.accepted.end() ? "" : known->second);
  }
  if (s.findings.size() > most) page += fmt::format("- and {} more\n", s.findings.size() - most);
  page += fmt::format("\nRejected {}, inconclusive {}, undecided elements {}; cells visited {} of {}.\n\n", rejected,
                      inconclusive, s.undecided, s.cells.visited, s.cells.feasible);
  page += table_of_ratios(s) + "\n" + table_of_checks(report);
  return page + fmt::format("\nCampaign id `{}`, seed {}, Flashproof {}.\n", citable_id(s.manifest), s.manifest.seed,
                            s.manifest.program_version);
}

}  // namespace flashproof
