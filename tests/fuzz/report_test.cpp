// Reports say what the records say: counts, findings, known findings, and text that is safe in XML and Markdown.
#include "fuzz/report/report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "reference/errors.h"

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
  v.ratios = {{OutputId::o, ratio, 1, ratio * 0x1p-7, 0x1p-7, 0x1p-8}};
  v.assumed = "bound derived; worst case over the arithmetic not declared (tile)";
  v.judged = 10;
  r.verdicts = {v};
  return r;
}

Report report_of(const std::vector<Record>& records) {
  Report report;
  report.summary.manifest.kernels = {"./a<b>.so"};
  for (const Record& r : records) add(report, r);
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

TEST(Report, SaysWhatWasFoundAtLeastAndTheBoundAtMostInUlp) {
  const Report report = report_of({record(0, Status::pass, 0.5), record(1, Status::pass, 0.25)});
  const auto json = nlohmann::json::parse(report_json(report));
  ASSERT_EQ(json["accuracy"].size(), 1u);
  const auto& accuracy = json["accuracy"][0];
  EXPECT_EQ(accuracy["dtype"], "bf16");
  EXPECT_EQ(accuracy["cases"], 2);
  EXPECT_EQ(accuracy["bound_at_most"], 1);
  const auto& found = accuracy["found_at_least"]["O"];
  EXPECT_EQ(found["ratio"], 0.5);
  EXPECT_EQ(found["error_ulp"], 1);
  EXPECT_EQ(found["bound_ulp"], 2);
  EXPECT_EQ(found["bound_status"], "derived");
  EXPECT_EQ(found["id"], "0");
  EXPECT_EQ(found["cases"], 2);
  const std::string row = "| bf16 | O | 0.5 (0.00391 = 1 ulp) | 1 (0.00781 = 2 ulp) | derived | `0` | ";
  EXPECT_NE(report_markdown(report).find(row), std::string::npos) << report_markdown(report);
  EXPECT_NE(report_paper(report).find("./a<b>.so " + row), std::string::npos) << report_paper(report);
  for (const std::string& page : {report_markdown(report), report_paper(report)})
    EXPECT_NE(page.find("\ncite as: Flashproof , campaign " + citable_id(report.summary.manifest) + "\n"),
              std::string::npos);
  const std::string junit = report_junit(report);
  EXPECT_NE(junit.find("<property name=\"campaign\" value=\"" + citable_id(report.summary.manifest) + "\"/>"),
            std::string::npos)
      << junit;
  EXPECT_NE(junit.find("<property name=\"found_at_least.bf16.O\" value=\"0.5\"/>"), std::string::npos) << junit;
}

TEST(Report, SaysHowLargeTheCasesWere) {
  Record large = record(1, Status::pass, 0.5), rejected = record(2, Status::rejected, 0);
  large.text = "bf16 q40 k5000 d8 data=normal seed=1", large.arithmetic = "tile=16x32";
  rejected.text = "bf16 q9000 k9000 d8 data=normal seed=1", rejected.rejected = "too large", rejected.verdicts.clear();
  const Report report = report_of({record(0, Status::pass, 0.5), large, rejected});
  const auto sizes = nlohmann::json::parse(report_json(report))["sizes"];
  EXPECT_EQ(sizes["cases"], 2) << "what was rejected did not run";
  EXPECT_EQ(sizes["tiled"], 1);
  EXPECT_EQ(sizes["several_tiles"], 1);
  EXPECT_EQ(sizes["long_keys"], 1);
  EXPECT_EQ(sizes["rows"], nlohmann::json({4, 4, 4, 4, 40}));
  EXPECT_EQ(sizes["key_tiles"], nlohmann::json({157, 157, 157, 157, 157}));
  EXPECT_EQ(sizes["multiply_adds"][4], 40 * 5000 * 16);
  for (const std::string& page : {report_markdown(report), report_paper(report), page_of(report.summary)})
    EXPECT_NE(page.find("3 or more tiles of keys and 2 of rows: 1 of 1 cases (100.0 %); 4096 or more keys: 1 of 2"),
              std::string::npos)
        << page;
  EXPECT_NE(report_markdown(report).find("| keys | 8 | 8 | 8 | 8 | 5000 |"), std::string::npos);
}

TEST(Report, AFailingKernelsErrorIsWhatWasFound) {
  const auto json =
      nlohmann::json::parse(report_json(report_of({record(0, Status::pass, 0.5), record(1, Status::fail, 3)})));
  EXPECT_EQ(json["accuracy"][0]["found_at_least"]["O"]["ratio"], 3);
  EXPECT_EQ(json["accuracy"][0]["failed"], 1);
}

TEST(Report, ReadsTheCampaignOfVersion1) {
  const std::string directory = FLASHPROOF_TEST_DATA "/campaigns/v1";
  const Report report = read_report(directory);
  const auto json = nlohmann::json::parse(report_json(report));
  EXPECT_EQ(json["id"], "8c372c6459cd29f0") << "an id that was cited must not change";
  EXPECT_EQ(json["cite"], "Flashproof 0.1.0 b494bdc688a2, campaign 8c372c6459cd29f0");
  EXPECT_EQ(json["cases"], 60);
  EXPECT_EQ(json["checks"],
            nlohmann::json({{"bound", 60}, {"exact_inputs", 17}, {"isolation", 60}, {"readout", 52}, {"reject", 60}}));
  EXPECT_EQ(json["kernels"]["cpu:flash2"]["passed"], 19);
  EXPECT_EQ(json["kernels"]["cpu:flash2"]["inconclusive"], 1);
  EXPECT_EQ(json["kernels"]["./window_off_by_one.so"]["failed"], 2);
  ASSERT_EQ(json["findings"].size(), 4u);
  EXPECT_EQ(json["findings"][0]["bucket"], "window_off_by_one.bound.value.L");
  EXPECT_EQ(json["findings"][0]["worst_ratio"], 63703.712194698426);
  EXPECT_EQ(json["findings"][0]["smallest"]["case"], "fp16 q1 k1 d1 window=0,open data=constant_v seed=0");
  const std::string why = json["findings"][0]["smallest"]["why"];
  EXPECT_TRUE(why.starts_with("O[b=0 i=0 h=0 c=0] is 0, exactly 2.01757812")) << why;
  EXPECT_NE(page_of(report.summary).find(why), std::string::npos) << "what the replay line beside it will say";
  EXPECT_EQ(json["worst"]["bf16"]["dV"]["ratio"], 0.908898684378245);
  EXPECT_EQ(json["worst"]["bf16"]["dV"]["id"], "34030d623ca5aae9");
  EXPECT_FALSE(json["worst"]["bf16"]["dV"].contains("error_ulp")) << "not recorded then, so not claimed now";
  EXPECT_EQ(json["cells"]["feasible"], 0) << "not recorded then";
  EXPECT_EQ(json["sizes"]["cases"], 60);
  EXPECT_EQ(json["sizes"]["tiled"], 0) << "not recorded then";
  for (const auto& accuracy : json["accuracy"]) {
    if (accuracy["kernel"] == "./window_off_by_one.so" && accuracy["dtype"] == "fp16") {
      EXPECT_EQ(accuracy["found_at_least"]["L"]["ratio"], 63703.712194698426);
    }
  }
  EXPECT_NE(report_markdown(report).find("4 findings in 60 cases"), std::string::npos);
  EXPECT_NE(report_markdown(report).find("| 1 | derived |"), std::string::npos) << "a bound without its size";
  EXPECT_NE(report_paper(report).find("arithmetic not recorded or not declared"), std::string::npos);
  EXPECT_EQ(count(report_junit(report), "<failure"), 3);
  EXPECT_NE(page_of(report.summary).find("4 findings in 60 cases (249 checks"), std::string::npos);
  for (const auto write : {report_json, report_markdown, report_paper, report_junit})
    EXPECT_EQ(write(report), write(read_report(directory))) << "a report is a function of the directory";
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

/// Each finding in its own words, its reduced case's too: the replay line is that one's. A page is short, but leaves no
/// check out.
TEST(Report, TellsEveryFailingChecksMessage) {
  Record failing = record(0, Status::fail, 3);
  failing.verdicts[0].why = "O[0] is off by 3 bounds";
  failing.verdicts.resize(3, failing.verdicts[0]);
  failing.verdicts[1].check = failing.verdicts[2].check = "isolation";
  failing.verdicts[1].kind = "red-zone", failing.verdicts[1].why = "a red zone was written";
  failing.verdicts[2].kind = "unwritten", failing.verdicts[2].why = "O[0] was not written";
  Report report = report_of({failing});
  report.summary.findings.begin()->second.smallest_why = "one key is off by 2 bounds";
  for (const std::string& page : {report_junit(report), report_markdown(report)})
    for (const char* message : {"off by 3", "off by 2", "a red zone was written", "O[0] was not written"})
      EXPECT_EQ(count(page, message), 1) << message << "\n" << page;
  failing.verdicts.resize(1);
  for (int kind = 0; kind < 12; ++kind) {
    failing.verdicts[0].kind = "kind-" + std::to_string(kind);
    add(report, failing);
  }
  const std::string page = report_markdown(report);
  EXPECT_EQ(count(page, "- **"), 10) << page;
  EXPECT_EQ(count(page, "a red zone was written"), 1) << page;
  EXPECT_EQ(count(page, "- and 5 more"), 1) << page;
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
  EXPECT_EQ(a.summary.sizes.summary().cases, 3);
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
