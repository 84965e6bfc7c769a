// The report for a pull request or $GITHUB_STEP_SUMMARY, and the tables for a paper.
#include <map>
#include <set>

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

std::string lines_of_unjudged(const Summary& s) {
  std::string lines;
  for (const auto& [kernel, count] : s.kernels)
    for (const auto& [reason, times] : count.unjudged)
      lines += fmt::format("- {}: no verdict of {} ({} cases)\n", kernel, reason, times);
  return lines.empty() ? "" : "\n" + lines;
}

/// "0.581 (0.00453 = 1.16 ulp)"; what is in parentheses is left out where it was not recorded.
std::string with_size(const std::string& ratio, double size, double ulp) {
  return ulp > 0 ? ratio + fmt::format(" ({:.3g} = {:.3g} ulp)", size, size / ulp) : ratio;
}

/// Four columns: found at least, bound at most, of what status, the case.
std::string cells_of(const WorstRatio& worst) {
  return fmt::format("{} | {} | {} | `{}`", with_size(fmt::format("{:.3g}", worst.ratio), worst.error, worst.ulp),
                     with_size("1", worst.bound, worst.ulp), bound_status(worst), worst.id);
}

constexpr const char* meaning =
    "Found at least: the largest error / bound seen, failing cases included (in parentheses that error).\n"
    "Bound at most: 1 (the bound at that element), for the arithmetic assumed.\n"
    "An ulp is that of the output's format at the exact value: many to an error where that is near 0.\n";

std::string table_of_ratios(const Summary& s) {
  std::map<std::string, Accuracy> by_dtype;
  for (const auto& [key, accuracy] : s.accuracy) add(by_dtype[key.second], accuracy);
  std::string table =
      "| dtype | output | found at least | bound at most | status | case | kernel | judged in | cases | rejected | "
      "inconclusive |\n|---|---|--:|--:|---|---|---|--:|--:|--:|--:|\n";
  for (const auto& [dtype, accuracy] : by_dtype)
    for (const auto& [output, worst] : accuracy.found)
      table += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} |\n", dtype, name_of(output), cells_of(worst),
                           cell(worst.kernel), worst.cases, accuracy.cases, accuracy.rejected, accuracy.inconclusive);
  return table;
}

std::string table_of_sizes(const Summary& s) {
  const CaseSizes::Summary sizes = s.sizes.summary();
  if (sizes.cases == 0) return "";
  std::string table = "| size of a case | least | 25 % | median | 75 % | largest |\n|---|--:|--:|--:|--:|--:|\n";
  for (int m = 0; m < measure_count; ++m) {
    const auto& q = sizes.quartiles[size_t(m)];
    if (!q) continue;
    table += fmt::format("| {} | {:.4g} | {:.4g} | {:.4g} | {:.4g} | {:.4g} |\n", title_of(Measure(m)), q->least,
                         q->lower, q->median, q->upper, q->largest);
  }
  return table + "\n" + shares_of(sizes) + ".\n";
}

std::string cite_line(const Summary& s) { return fmt::format("\ncite as: {}\n", citation(s.manifest)); }

std::string section_of(const Finding& finding, const std::string& accepted) {
  std::string text = fmt::format("- **{}**: {} cases, worst error / bound {:.3g}. {}\n", finding.bucket, finding.count,
                                 finding.worst_ratio, finding.why);
  if (!finding.smallest_why.empty()) text += "  Reduced: " + finding.smallest_why + "\n";
  if (!accepted.empty()) text += "  Known: " + accepted + "\n";
  if (!finding.replay.empty()) text += "\n      " + finding.replay + "\n\n";
  return text;
}

}  // namespace

std::string report_markdown(const Report& report) {
  const Summary& s = report.summary;
  std::string page = fmt::format("## Flashproof: {} finding{} in {} cases\n\n", s.findings.size(),
                                 s.findings.size() == 1 ? "" : "s", s.cases);
  constexpr size_t most = 9;  // what a reader takes in; beyond that one of each check, the rest is in the campaign
  size_t shown = 0;
  std::set<std::pair<std::string, std::string>> checks;
  for (const auto& [bucket, finding] : s.findings) {
    if (!checks.emplace(finding.kernel, finding.check).second && shown >= most) continue;
    ++shown;
    const auto known = report.accepted.find(bucket);
    page += section_of(finding, known == report.accepted.end() ? "" : known->second);
  }
  if (s.findings.size() > shown) page += fmt::format("- and {} more\n", s.findings.size() - shown);
  page += fmt::format(
      "\nUndecided elements {}{}.\n\n", s.undecided,
      s.cells.feasible == 0 ? "" : fmt::format("; cells visited {} of {}", s.cells.visited, s.cells.feasible));
  return page + table_of_ratios(s) + "\n" + meaning + "\n" + table_of_checks(report) + lines_of_unjudged(s) + "\n" +
         table_of_sizes(s) + fmt::format("\nSeed {}.\n", s.manifest.seed) + cite_line(s);
}

std::string report_paper(const Report& report) {
  const Summary& s = report.summary;
  std::string page = "| kernel | dtype | cases | failed | rejected | inconclusive |\n|---|---|--:|--:|--:|--:|\n";
  std::string errors =
      "\n| kernel | dtype | output | found at least | bound at most | status | case | judged in |\n"
      "|---|---|---|--:|--:|---|---|--:|\n";
  std::map<std::string, const WorstRatio*> cases;  // each case once, whatever outputs it is the worst of
  for (const auto& [key, accuracy] : s.accuracy) {
    page += fmt::format("| {} | {} | {} | {} | {} | {} |\n", cell(key.first), key.second, accuracy.cases,
                        accuracy.failed, accuracy.rejected, accuracy.inconclusive);
    for (const auto& [output, worst] : accuracy.found) {
      errors += fmt::format("| {} | {} | {} | {} | {} |\n", cell(key.first), key.second, name_of(output),
                            cells_of(worst), worst.cases);
      cases[worst.id] = &worst;
    }
  }
  page += lines_of_unjudged(s) + "\n" + table_of_sizes(s) + errors + "\n" + meaning +
          "\nThe cases, and what their bounds assume:\n\n";
  for (const auto& [id, worst] : cases)
    page += fmt::format("- `{}`: `{}`{}; arithmetic {}; {}\n", id, worst->text,
                        worst->config.empty() ? "" : " with `" + worst->config + "`",
                        worst->arithmetic.empty() ? "not recorded or not declared" : "`" + worst->arithmetic + "`",
                        worst->assumed);
  return page + cite_line(s);
}

}  // namespace flashproof
