// The report as JUnit XML: a test suite a kernel, a test case a check; the campaign's id among the suite's properties.
#include <fmt/format.h>

#include "fuzz/report/report.h"

namespace flashproof {
namespace {

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else if (static_cast<unsigned char>(c) >= 0x20 || c == '\n')
      out += c;  // XML 1.0 has no other control characters
    else
      out += ' ';
  }
  return out;
}

std::string test_case(const Report& report, const std::string& kernel, const std::string& check,
                      const CheckCount& count) {
  std::string test = fmt::format("    <testcase classname=\"{}\" name=\"{}\" time=\"{:.3f}\">\n", escaped(kernel),
                                 escaped(check), count.seconds);
  std::string failures, known;
  for (const std::string& bucket : count.buckets) {
    const auto accepted = report.accepted.find(bucket);
    const auto found = report.summary.findings.find(bucket);
    const std::string text = found == report.summary.findings.end() ? bucket + "\n" : page_of(found->second);
    if (accepted == report.accepted.end())
      failures += text;
    else
      known += "known: " + accepted->second + ": " + text;
  }
  if (!failures.empty())
    test += fmt::format("      <failure message=\"{} of {} cases failed\">{}</failure>\n", count.failed,
                        count.passed + count.failed + count.inconclusive, escaped(failures));
  else if (count.passed == 0 && count.failed == 0)
    test += fmt::format("      <skipped message=\"{} cases, all inconclusive\"/>\n", count.inconclusive);
  if (!known.empty()) test += "      <system-out>" + escaped(known) + "</system-out>\n";
  return test + "    </testcase>\n";
}

std::string property(const std::string& name, const std::string& value) {
  return fmt::format("      <property name=\"{}\" value=\"{}\"/>\n", escaped(name), escaped(value));
}

/// The campaign's id, and what the kernel showed: counts, and the largest error / bound by dtype and output.
std::string properties(const Report& report, const std::string& kernel, const KernelCount& count) {
  const Manifest& manifest = report.summary.manifest;
  std::string text = property("campaign", citable_id(manifest)) + property("version", manifest.program_version) +
                     property("seed", std::to_string(manifest.seed));
  for (const auto& [name, number] :
       {std::pair("cases", count.cases), std::pair("passed", count.passed), std::pair("failed", count.failed),
        std::pair("inconclusive", count.inconclusive), std::pair("rejected", count.rejected)})
    text += property(name, std::to_string(number));
  for (const auto& [key, accuracy] : report.summary.accuracy)
    for (const auto& [output, worst] : accuracy.found)
      if (key.first == kernel)
        text += property(fmt::format("found_at_least.{}.{}", key.second, name_of(output)),
                         fmt::format("{:.6g}", worst.ratio));
  return "    <properties>\n" + text + "    </properties>\n";
}

}  // namespace

std::string report_junit(const Report& report) {
  std::string suites;
  int64_t tests = 0, failures = 0;
  for (const auto& [kernel, count] : report.summary.kernels) {
    std::string cases;
    int64_t suite_tests = 0, suite_failures = 0;
    for (const auto& [key, check_count] : report.checks) {
      if (key.first != kernel) continue;
      const std::string test = test_case(report, kernel, key.second, check_count);
      ++suite_tests;
      suite_failures += test.find("<failure") != std::string::npos;
      cases += test;
    }
    if (suite_tests == 0) {
      cases = fmt::format(
          "    <testcase classname=\"{}\" name=\"cases\"><error message=\"no case ran: {} rejected\"/></testcase>\n",
          escaped(kernel), count.rejected);
      ++suite_tests;
    }
    suites += fmt::format("  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\">\n", escaped(kernel),
                          suite_tests, suite_failures, int(cases.find("<error") != std::string::npos)) +
              properties(report, kernel, count) + cases + "  </testsuite>\n";
    tests += suite_tests, failures += suite_failures;
  }
  return fmt::format(
             "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"flashproof\" tests=\"{}\" "
             "failures=\"{}\">\n",
             tests, failures) +
         suites + "</testsuites>\n";
}

}  // namespace flashproof
