// Counting of records; see summary.h.
#include "fuzz/summary.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include "reference/errors.h"

namespace flashproof {
namespace {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw UnavailableError("cannot read " + path.string());
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

const char* name_of_dtype(DType dtype) {
  constexpr const char* names[] = {"fp32", "bf16", "fp16", "e4m3", "e5m2"};
  return names[int(dtype)];
}

std::string bucket_of_record(const Record& record, const Verdict& verdict) {
  LoadedKernel kernel;
  kernel.name = record.kernel;
  return bucket_of(kernel, verdict);
}

void add_ratios(Summary& summary, const Record& record, const std::string& dtype, const Verdict& verdict) {
  for (const OutputRatio& r : verdict.ratios) {
    const WorstRatio seen{
        r.ratio,   r.error,         r.bound,           r.ulp, record.kernel, record.config, record.text,
        record.id, verdict.assumed, record.arithmetic, 1};
    keep_larger(summary.accuracy[{record.kernel, dtype}].found[r.output], seen);
    WorstRatio& passed = summary.worst[dtype][name_of(r.output)];
    if (verdict.status != Status::fail)
      keep_larger(passed, seen);
    else
      ++passed.cases;
  }
}

/// The replay line is the worst case's until a reduced one takes its place.
void add_finding(Summary& summary, const Record& record, const Verdict& verdict) {
  Finding& finding = summary.findings[bucket_of_record(record, verdict)];
  if (finding.count++ == 0 || verdict.ratio > finding.worst_ratio) {
    finding.worst_ratio = verdict.ratio;
    finding.worst_id = record.id;
    finding.worst_text = record.text;
    finding.why = verdict.why;
    LoadedKernel named;
    named.name = record.kernel;
    finding.replay = replay_line(named, Job{parse_case(record.text), record.config, {}}, verdict.check);
  }
  finding.bucket = bucket_of_record(record, verdict);
  finding.kernel = record.kernel;
  finding.check = verdict.check;
  finding.kind = verdict.kind;
}

template <class Count>
void count(Count& count, Status status) {
  ++count.cases;
  count.passed += status == Status::pass;
  count.failed += status == Status::fail;
  count.inconclusive += status == Status::inconclusive;
  count.rejected += status == Status::rejected;
}

}  // namespace

std::string bound_status(const WorstRatio& worst) {
  constexpr const char* opening = "bound ";
  if (!worst.assumed.starts_with(opening)) return "";
  const size_t begin = std::strlen(opening);
  return worst.assumed.substr(begin, worst.assumed.find(';') - begin);
}

void keep_larger(WorstRatio& to, const WorstRatio& from) {
  const int64_t cases = to.cases + from.cases;
  if (from.ratio >= to.ratio) to = from;
  to.cases = cases;
}

void add(Accuracy& to, const Accuracy& from) {
  to.cases += from.cases, to.passed += from.passed, to.failed += from.failed;
  to.inconclusive += from.inconclusive, to.rejected += from.rejected;
  for (const auto& [output, worst] : from.found) keep_larger(to.found[output], worst);
}

void add(Summary& summary, const Record& record) {
  const Problem problem = parse_case(record.text).problem;
  const std::string dtype = name_of_dtype(problem.dtype);
  KernelCount& kernel = summary.kernels[record.kernel];
  ++summary.cases;
  count(kernel, record.status());
  count(summary.accuracy[{record.kernel, dtype}], record.status());
  summary.kernel_seconds += record.kernel_seconds;
  summary.oracle_seconds += record.oracle_seconds;
  if (!record.rejected.empty()) ++kernel.reasons["rejected: " + record.rejected];
  if (record.rejected.empty() && record.verdicts.empty()) ++kernel.reasons["inconclusive: nothing to judge"];
  for (const Unjudged& check : record.unjudged) ++kernel.unjudged[check.check + ": " + check.reason];
  for (const Verdict& verdict : record.verdicts) {
    ++summary.checks;
    ++summary.checks_run[verdict.check];
    summary.undecided += verdict.undecided;
    if (verdict.status == Status::inconclusive) ++kernel.reasons[verdict.check + " inconclusive: " + verdict.kind];
    if (verdict.status == Status::fail) add_finding(summary, record, verdict);
    if (verdict.check == "bound") add_ratios(summary, record, dtype, verdict);
  }
  if (record.rejected.empty()) summary.sizes.add(problem, record.arithmetic);
  if (record.tile_m > 0 && record.rejected.empty())
    summary.coverage.visit(problem, TileShape{record.tile_m, record.tile_n});
}

std::vector<Capabilities> capabilities_of(const Manifest& manifest) {
  std::vector<Capabilities> kernels;
  for (size_t k = 0; k < manifest.kernel_features.size(); ++k)
    kernels.emplace_back(manifest.kernel_features[k], manifest.kernel_dtypes[k]);
  return kernels;
}

std::vector<Record> read_records(const std::string& directory) {
  std::vector<Record> records;
  const fs::path folder = fs::path(directory) / "cases";
  std::vector<fs::path> shards;
  if (fs::exists(folder))
    for (const auto& entry : fs::directory_iterator(folder))
      if (entry.path().extension() == ".jsonl") shards.push_back(entry.path());
  std::sort(shards.begin(), shards.end());
  for (const fs::path& shard : shards) {
    const std::string text = read_file(shard);
    int64_t number = 0;
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = text.find('\n', begin);
      if (end == std::string::npos) break;  // torn by a kill in mid-write: that case has no record
      ++number;
      try {
        records.push_back(parse_record(text.substr(begin, end - begin)));
        parse_case(records.back().text);  // a text that cannot be read is told with its line, too
        if (records.back().index < 0) throw UsageError("`index` is below 0: no case of a campaign");
      } catch (const UsageError& error) {
        throw UsageError(shard.string() + " line " + std::to_string(number) + ": " + error.what() +
                         ". Remove that line to go on; its case will be run again");
      }
      begin = end + 1;
    }
  }
  std::sort(records.begin(), records.end(), [](const Record& a, const Record& b) { return a.index < b.index; });
  return records;
}

Manifest read_manifest(const std::string& directory) {
  const fs::path path = fs::path(directory) / "manifest.json";
  if (!fs::exists(path)) throw UsageError(directory + " holds no campaign: there is no manifest.json in it");
  try {
    return parse_manifest(read_file(path));
  } catch (const UsageError& error) {
    throw UsageError(path.string() + ": " + error.what());
  }
}

std::vector<Witness> read_witnesses(const std::string& directory) {
  std::vector<Witness> witnesses;
  const fs::path folder = fs::path(directory) / "findings";
  if (!fs::exists(folder)) return witnesses;
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.path().filename() == "smallest.json") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) {
    try {
      witnesses.push_back(parse_witness(read_file(file)));
    } catch (const UsageError& error) {
      throw UsageError(file.string() + ": " + error.what());
    }
  }
  return witnesses;
}

Summary summarize(const std::string& directory) {
  Summary summary;
  summary.manifest = read_manifest(directory);
  for (const Record& record : read_records(directory)) add(summary, record);
  for (const Witness& witness : read_witnesses(directory)) {
    Finding& finding = summary.findings[witness.bucket];
    finding.smallest_id = witness.id;
    finding.smallest_text = witness.text;
    finding.smallest_why = witness.verdict.why;
    finding.replay = witness.replay;
  }
  summary.cells = summary.coverage.summary(capabilities_of(summary.manifest));
  return summary;
}

namespace {

std::string headline(const Summary& s) {
  const std::string cases = fmt::format("{} cases ({} checks, {} undecided elements)", s.cases, s.checks, s.undecided);
  if (s.findings.empty()) return "no finding in " + cases + "\n";
  return fmt::format("{} finding{} in {}\n", s.findings.size(), s.findings.size() == 1 ? "" : "s", cases);
}

std::string table_of_ratios(const Summary& s) {
  if (s.worst.empty()) return "";
  std::string table = "largest error / bound that passed (1 is the limit)\n       ";
  for (int id = 0; id < output_count; ++id) table += fmt::format("{:>8}", name_of(OutputId(id)));
  for (const auto& [dtype, outputs] : s.worst) {
    table += fmt::format("\n  {:<5}", dtype);
    for (int id = 0; id < output_count; ++id) {
      const auto found = outputs.find(name_of(OutputId(id)));
      table += found == outputs.end() ? fmt::format("{:>8}", "-") : fmt::format("{:>8.3f}", found->second.ratio);
    }
  }
  return table + "\n";
}

std::string lines_of_kernels(const Summary& s) {
  std::string lines;
  for (const auto& [name, count] : s.kernels) {
    lines += fmt::format("  {:<20} {:>6} cases: {} passed, {} failed, {} inconclusive, {} rejected\n", name,
                         count.cases, count.passed, count.failed, count.inconclusive, count.rejected);
    for (const auto& [reason, times] : count.reasons) lines += fmt::format("      {:>6} x {}\n", times, reason);
    for (const auto& [reason, times] : count.unjudged)
      lines += fmt::format("      {:>6} x no verdict of {}\n", times, reason);
  }
  return lines;
}

std::string table_of_sizes(const Summary& s) {
  const CaseSizes::Summary sizes = s.sizes.summary();
  if (sizes.cases == 0) return "";
  std::string table = fmt::format("{:<16}{:>10}{:>10}{:>10}{:>10}{:>10}\n", "sizes of cases", "least", "25 %", "median",
                                  "75 %", "largest");
  for (int m = 0; m < measure_count; ++m) {
    const auto& q = sizes.quartiles[size_t(m)];
    if (!q) continue;
    table += fmt::format("  {:<14}{:>10.4g}{:>10.4g}{:>10.4g}{:>10.4g}{:>10.4g}\n", title_of(Measure(m)), q->least,
                         q->lower, q->median, q->upper, q->largest);
  }
  return table + "  " + shares_of(sizes) + "\n";
}

std::string line_of_cells(const Summary& s) {
  if (s.cells.feasible == 0) return "";
  const std::string line = fmt::format("cells (feature pair x tile edge): {} of {} visited ({:.1f} %)", s.cells.visited,
                                       s.cells.feasible, 100.0 * double(s.cells.visited) / double(s.cells.feasible));
  return line + (s.cells.emptiest.empty() ? "" : "; emptiest: " + s.cells.emptiest.front()) + "\n";
}

}  // namespace

std::string page_of(const Finding& finding) {
  std::string page = fmt::format("FINDING {} ({} cases, worst error / bound {:.3g})\n  {}\n", finding.bucket,
                                 finding.count, finding.worst_ratio, finding.why);
  page += "  worst     " + finding.worst_text + "\n";
  if (!finding.smallest_text.empty()) page += "  smallest  " + finding.smallest_text + "\n";
  if (!finding.smallest_why.empty()) page += "            " + finding.smallest_why + "\n";
  if (!finding.replay.empty()) page += "  replay    " + finding.replay + "\n";
  return page;
}

std::string page_of(const Summary& s) {
  std::string page = headline(s) + table_of_ratios(s) + lines_of_kernels(s) + table_of_sizes(s) + line_of_cells(s);
  for (const auto& [bucket, finding] : s.findings) page += page_of(finding);
  return page + "id " + citable_id(s.manifest) + "\n";
}

}  // namespace flashproof
