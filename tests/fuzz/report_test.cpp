// Reports say what the records say: counts, findings, known findings, and text that is safe in XML and Markdown.
#include "fuzz/report/report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace flashproof {
namespace {

Record record(int64_t index, Status status, double ratio) {
  Record r;
  r.index = index, r.kernel = "./a<b>.so", r.text = "bf16 q4 k8 d16 causal data=normal seed=" + std::to_string(index),
  r.id = std::to_string(index);
  Verdict v;
  v.check = "bound", v.status = status, v.kind = status == Status::fail ? "value" : "", v.ratio = ratio;
  v.where = {OutputId::o, 1, 0, 0, 0, 1};
  v.why = "error & \"bound\" <1>";
  v.ratios = {{OutputId::o, ratio, 1}};
  v.judged = 10;
  r.verdicts = {v};
  return r;
}

Report report_of(const std::vector<Record>& records) {
  Report report;
  report.summary.manifest.kernels = {"./a<b>.so"};
  for (const Record& r : records) add(report, r, nullptr);
  return report;
}

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++n;
  return n;
}

TEST(Report, CountsPassesAndFindings) {
  const Report report = report_of({record(0, Status::pass, 0.5), record(1, Status::fail, 3), record(2, Status::fail, 7),
                                   record(3, Status::pass, 0.75)});
  const auto json = nlohmann::json::parse(report_json(report));
  EXPECT_EQ(json["cases"], 4);
  EXPECT_EQ(json["kernels"]["./a<b>.so"]["passed"], 2);
  EXPECT_EQ(json["kernels"]["./a<b>.so"]["failed"], 2);
  ASSERT_EQ(json["findings"].size(), 1u) << "equal failures are one finding";
  EXPECT_EQ(json["findings"][0]["cases"], 2);
  EXPECT_EQ(json["findings"][0]["worst_ratio"], 7);
  EXPECT_EQ(json["findings"][0]["worst"]["id"], "2");
  EXPECT_EQ(json["worst"]["bf16"]["O"]["ratio"], 0.75) << "a failing case is no measure of right kernels";
  EXPECT_NE(report_markdown(report).find("1 finding in 4 cases"), std::string::npos);
}

TEST(Report, JUnitFailsForAFindingAndNotForAKnownOne) {
  Report report = report_of({record(0, Status::pass, 0.5), record(1, Status::fail, 3)});
  const std::string failing = report_junit(report);
  EXPECT_EQ(count(failing, "<failure"), 1);
  EXPECT_EQ(count(failing, "failures=\"1\""), 2) << failing;
  EXPECT_EQ(failing.find("<1>"), std::string::npos) << "text must be escaped";
  EXPECT_NE(failing.find("&lt;1&gt;"), std::string::npos);
  report.accepted[report.summary.findings.begin()->first] = "issue 5";
  const std::string known = report_junit(report);
  EXPECT_EQ(count(known, "<failure"), 0) << known;
  EXPECT_NE(known.find("issue 5"), std::string::npos);
}

TEST(Report, AKernelThatRanNothingIsAnErrorInJUnit) {
  Record rejected;
  rejected.kernel = "k", rejected.text = "bf16 q1 k1 d16 data=normal seed=0", rejected.rejected = "fp16 only";
  const Report report = report_of({rejected});
  EXPECT_EQ(count(report_junit(report), "<error"), 1) << report_junit(report);
}

TEST(Report, MergeAddsCountsAndKeepsTheWorst) {
  Report a = report_of({record(0, Status::pass, 0.5)});
  merge(a, report_of({record(1, Status::fail, 3), record(2, Status::pass, 0.9)}));
  EXPECT_EQ(a.summary.cases, 3);
  EXPECT_EQ(a.summary.findings.size(), 1u);
  EXPECT_EQ(a.summary.worst["bf16"]["O"].ratio, 0.9);
  const CheckCount& check = a.checks[std::pair<std::string, std::string>("./a<b>.so", "bound")];
  EXPECT_EQ(check.passed, 2);
  EXPECT_EQ(check.failed, 1);
  EXPECT_EQ(check.buckets.size(), 1u);
  merge(a, report_of({record(4, Status::fail, 8)}));
  EXPECT_EQ(a.summary.findings.begin()->second.count, 2);
  EXPECT_EQ(a.summary.findings.begin()->second.worst_ratio, 8);
  EXPECT_EQ(a.summary.findings.begin()->second.worst_id, "4");
}

}  // namespace
}  // namespace flashproof
