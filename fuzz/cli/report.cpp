// `report` and `status`: what is in a campaign's directory.
#include <filesystem>

#include <fmt/format.h>

#include "fuzz/campaign_directory.h"
#include "fuzz/cli/named_case.h"
#include "fuzz/cli/options.h"
#include "fuzz/cli/verbs.h"
#include "fuzz/report/report.h"
#include "reference/errors.h"
#include "reference/nearest_word.h"

namespace flashproof {
namespace {

struct Options {
  std::string directory, out;
  std::vector<std::string> formats = {"md"};
  bool json = false;
};

struct Format {
  const char* name;
  const char* file;
  std::string (*write)(const Report&);
};
constexpr Format formats[] = {{"json", "report.json", report_json},
                              {"md", "report.md", report_markdown},
                              {"paper", "paper.md", report_paper},
                              {"junit", "junit.xml", report_junit}};

const Format& format_named(const std::string& name) {
  std::vector<std::string> names;
  for (const Format& format : formats) {
    if (format.name == name) return format;
    names.push_back(format.name);
  }
  throw UsageError("no report is of format `" + name + "`; did you mean `" + nearest_word(name, names) +
                   "`?\n  example: flashproof report DIR --format md,junit");
}

std::string campaign_of(const Options& o) { return o.directory.empty() ? newest_campaign() : o.directory; }

int report(const Options& o) {
  std::vector<const Format*> wanted;
  for (const std::string& name : o.json ? std::vector<std::string>{"json"} : o.formats)
    wanted.push_back(&format_named(name));
  if (wanted.size() > 1 && o.out.empty()) throw UsageError("several formats need a folder: --out DIR");
  const Report report = read_report(campaign_of(o));
  if (!o.out.empty()) {
    std::error_code error;
    std::filesystem::create_directories(o.out, error);
    if (error) throw UnavailableError("cannot create " + o.out + ": " + error.message());
  }
  for (const Format* format : wanted) {
    if (o.out.empty())
      fmt::print("{}", format->write(report));
    else
      write_file(o.out + "/" + format->file, format->write(report));
  }
  return 0;
}

int status(const Options& o) {
  const Summary summary = summarize(campaign_of(o));
  if (o.json)
    fmt::print("{}\n", json_of(summary).text());
  else
    fmt::print("{}\nstarted {} on {}\n", page_of(summary), summary.manifest.started, summary.manifest.machine);
  return summary.findings.empty() ? 0 : 1;
}

}  // namespace

void add_report(CommandLine& line) {
  auto o = std::make_shared<Options>();
  line.verb("report", "a campaign as JSON, Markdown or JUnit", "report my-campaign --format md",
            [o] { return report(*o); })
      .word("DIR", o->directory, false, "the campaign's folder (the newest in ./flashproof-campaigns)")
      .list("--format", o->formats, "json, md, paper (tables by kernel and dtype) or junit; several with --out (md)")
      .option("--out", o->out, "folder for report.json, report.md, paper.md, junit.xml; stdout without")
      .flag("--json", o->json, "the same as --format json");
}

void add_status(CommandLine& line) {
  auto o = std::make_shared<Options>();
  line.verb("status", "where a campaign stands, from its files alone", "status my-campaign", [o] { return status(*o); })
      .word("DIR", o->directory, false, "the campaign's folder (the newest in ./flashproof-campaigns)")
      .flag("--json", o->json, "one JSON object on stdout");
}

}  // namespace flashproof
