// JSON of records, manifests and witnesses; see record.h for the files.
#include "fuzz/record.h"

#include <cstdio>
#include <cstdlib>

#include <nlohmann/json.hpp>

#include "reference/errors.h"
#include "reference/sha256.h"

namespace flashproof {
namespace {

using Json = nlohmann::ordered_json;

/// A kernel's message may hold bytes that are no UTF-8; they must not end the campaign.
std::string dump(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

Status parse_status(const std::string& name) {
  for (const Status status : {Status::pass, Status::fail, Status::inconclusive, Status::rejected})
    if (name == name_of(status)) return status;
  throw UsageError("status `" + name + "` is none of pass, fail, inconclusive, rejected");
}

OutputId parse_output(const std::string& name) {
  for (int id = 0; id < output_count; ++id)
    if (name == name_of(OutputId(id))) return OutputId(id);
  throw UsageError("output `" + name + "` is none of O, L, dQ, dK, dV, dsink, dbias");
}

Json json_of(const Where& where) {
  return {{"output", name_of(where.output)}, {"index", where.index}, {"b", where.b},
          {"position", where.position},      {"head", where.head},   {"channel", where.channel}};
}

Where where_from(const Json& json) {
  return {parse_output(json.at("output")),
          json.at("index"),
          json.at("b"),
          json.at("position"),
          json.at("head"),
          json.at("channel")};
}

/// Members at their defaults are left out, so that the line of a passing case stays short.
Json json_of(const Verdict& verdict) {
  Json json = {{"check", verdict.check}, {"status", name_of(verdict.status)}, {"ratio", hex_float(verdict.ratio)}};
  if (verdict.where.index >= 0) json["where"] = json_of(verdict.where);
  if (!verdict.kind.empty()) json["kind"] = verdict.kind;
  if (!verdict.why.empty()) json["why"] = verdict.why;
  if (!verdict.assumed.empty()) json["assumed"] = verdict.assumed;
  json["judged"] = verdict.judged;
  if (verdict.undecided > 0) json["undecided"] = verdict.undecided;
  for (const OutputRatio& ratio : verdict.ratios) {
    json["ratios"][name_of(ratio.output)] = {hex_float(ratio.ratio), ratio.index};
    if (ratio.ulp > 0)
      json["sizes"][name_of(ratio.output)] = {hex_float(ratio.error), hex_float(ratio.bound), hex_float(ratio.ulp)};
  }
  for (const Imposter& imposter : verdict.power) json["power"][imposter.name] = imposter.rejected;
  return json;
}

Verdict verdict_from(const Json& json) {
  Verdict verdict;
  verdict.check = json.at("check");
  verdict.status = parse_status(json.at("status"));
  verdict.ratio = parse_hex_float(json.at("ratio"));
  if (json.contains("where")) verdict.where = where_from(json["where"]);
  verdict.kind = json.value("kind", "");
  verdict.why = json.value("why", "");
  verdict.assumed = json.value("assumed", "");
  verdict.judged = json.at("judged");
  verdict.undecided = json.value("undecided", int64_t(0));
  if (json.contains("ratios"))
    for (const auto& [name, pair] : json["ratios"].items()) {
      OutputRatio ratio{parse_output(name), parse_hex_float(pair.at(0)), pair.at(1)};
      if (const auto sizes = json.find("sizes"); sizes != json.end() && sizes->contains(name)) {
        ratio.error = parse_hex_float(sizes->at(name).at(0));
        ratio.bound = parse_hex_float(sizes->at(name).at(1));
        ratio.ulp = parse_hex_float(sizes->at(name).at(2));
      }
      verdict.ratios.push_back(ratio);
    }
  if (json.contains("power"))
    for (const auto& [name, rejected] : json["power"].items()) verdict.power.push_back({name, rejected});
  return verdict;
}

/// Parses JSON, refuses another format and a newer version with what to do, and lets `read` take its members; what JSON
/// says of a missing or wrong one becomes a UsageError.
template <class Read>
auto read_json(const std::string& text, const std::string& format, Read read) {
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded() || !json.is_object()) throw UsageError("not a " + format + ": the text is no JSON object");
  try {
    if (const std::string found = json.value("format", ""); found != format)
      throw UsageError("not a " + format + ": `format` is `" + found + "`");
    if (const int version = json.value("version", 0); version > campaign_format_version)
      throw UsageError(format + " version " + std::to_string(version) + " is newer than this program reads (" +
                       std::to_string(campaign_format_version) + "); update Flashproof");
    return read(json);
  } catch (const nlohmann::json::exception& error) {
    throw UsageError("damaged " + format + ": " + error.what());
  }
}

}  // namespace

std::string hex_float(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%a", value);
  return text;
}

double parse_hex_float(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0') throw UsageError("`" + text + "` is no number");
  return value;
}

Status Record::status() const {
  Judgement judgement;
  judgement.rejected = rejected;
  judgement.verdicts = verdicts;
  return judgement.status();
}

Record record_of(const LoadedKernel& kernel, const Job& job, const Judgement& judgement) {
  Record record;
  record.index = -1;
  record.kernel = kernel.name;
  record.config = job.config;
  record.text = print(job.c);
  record.id = case_id(job.c);
  record.rejected = judgement.rejected;
  record.verdicts = judgement.verdicts;
  record.unjudged = judgement.unjudged;
  record.arithmetic = judgement.subject.arithmetic;
  record.kernel_seconds = judgement.kernel_seconds;
  record.oracle_seconds = judgement.oracle_seconds;
  return record;
}

std::string print(const Record& record) {
  Json json = {{"format", "flashproof-case"}, {"version", campaign_format_version},
               {"index", record.index},       {"id", record.id},
               {"kernel", record.kernel},     {"config", record.config},
               {"case", record.text},         {"status", name_of(record.status())}};
  if (!record.rejected.empty()) json["rejected"] = record.rejected;
  json["verdicts"] = Json::array();
  for (const Verdict& verdict : record.verdicts) json["verdicts"].push_back(json_of(verdict));
  for (const Unjudged& check : record.unjudged) json["unjudged"][check.check] = check.reason;
  if (!record.arithmetic.empty()) json["arithmetic"] = record.arithmetic;
  if (record.tile_m > 0) json["tile"] = {record.tile_m, record.tile_n};
  json["kernel_seconds"] = record.kernel_seconds;
  json["oracle_seconds"] = record.oracle_seconds;
  return dump(json);
}

Record parse_record(const std::string& line) {
  return read_json(line, "flashproof-case", [](const Json& json) {
    Record record;
    if (const Json& index = json.at("index");
        !index.is_number_integer() || (index.is_number_unsigned() && index.get<uint64_t>() > INT64_MAX))
      throw UsageError("damaged flashproof-case: `index` is no whole number below 2^63");
    record.index = json["index"];
    record.id = json.at("id");
    record.kernel = json.at("kernel");
    record.config = json.at("config");
    record.text = json.at("case");
    record.rejected = json.value("rejected", "");
    for (const Json& verdict : json.at("verdicts")) record.verdicts.push_back(verdict_from(verdict));
    if (json.contains("unjudged"))
      for (const auto& [check, reason] : json["unjudged"].items()) record.unjudged.push_back({check, reason});
    record.arithmetic = json.value("arithmetic", "");
    if (json.contains("tile")) record.tile_m = json["tile"].at(0), record.tile_n = json["tile"].at(1);
    record.kernel_seconds = json.at("kernel_seconds");
    record.oracle_seconds = json.at("oracle_seconds");
    return record;
  });
}

std::string print(const Manifest& m) {
  Json json = {{"format", "flashproof-campaign"},
               {"version", campaign_format_version},
               {"program_version", m.program_version},
               {"seed", m.seed},
               {"cases", m.cases},
               {"seconds", m.seconds},
               {"work", m.work},
               {"kernels", m.kernels},
               {"kernel_hashes", m.kernel_hashes},
               {"checks", m.checks},
               {"data", m.data},
               {"compiler", m.compiler},
               {"machine", m.machine},
               {"gpu", m.gpu},
               {"started", m.started}};
  // The text of a manifest is what its citable id is of: a member that an older one lacks stays away from it.
  if (!m.kernel_features.empty()) json["kernel_features"] = m.kernel_features, json["kernel_dtypes"] = m.kernel_dtypes;
  return dump(json, 2) + "\n";
}

Manifest parse_manifest(const std::string& text) {
  return read_json(text, "flashproof-campaign", [](const Json& json) {
    Manifest m;
    m.program_version = json.at("program_version");
    m.seed = json.at("seed");
    m.cases = json.at("cases");
    m.seconds = json.at("seconds");
    m.work = json.at("work");
    m.kernels = json.at("kernels").get<std::vector<std::string>>();
    m.kernel_hashes = json.at("kernel_hashes").get<std::vector<std::string>>();
    m.checks = json.at("checks").get<std::vector<std::string>>();
    m.data = json.at("data").get<std::vector<std::string>>();
    m.compiler = json.at("compiler");
    m.machine = json.at("machine");
    m.gpu = json.at("gpu");
    m.started = json.at("started");
    if (json.contains("kernel_features")) {
      m.kernel_features = json["kernel_features"].get<std::vector<uint64_t>>();
      m.kernel_dtypes = json.at("kernel_dtypes").get<std::vector<uint64_t>>();
    }
    const size_t kernels = m.kernels.size(), described = m.kernel_features.size();
    if (m.kernel_hashes.size() != kernels || m.kernel_dtypes.size() != described ||
        (described != 0 && described != kernels))
      throw UsageError("damaged flashproof-campaign: `kernel_hashes` and its like must have one entry a kernel");
    return m;
  });
}

std::string print(const Verdict& verdict) { return dump(json_of(verdict)); }

std::string citable_id(const Manifest& manifest) { return sha256(print(manifest)).substr(0, 16); }

Witness witness_of(const LoadedKernel& kernel, const Job& job, const Verdict& verdict) {
  Witness witness;
  witness.bucket = bucket_of(kernel, verdict);
  witness.kernel = kernel.name;
  witness.config = job.config;
  witness.text = print(job.c);
  witness.id = case_id(job.c);
  witness.verdict = verdict;
  witness.replay = replay_line(kernel, job, verdict.check);
  return witness;
}

std::string print(const Witness& w) {
  const Json json = {{"format", "flashproof-witness"},
                     {"version", campaign_format_version},
                     {"bucket", w.bucket},
                     {"id", w.id},
                     {"kernel", w.kernel},
                     {"config", w.config},
                     {"case", w.text},
                     {"verdict", json_of(w.verdict)},
                     {"replay", w.replay},
                     {"reduce_seconds", w.reduce_seconds},
                     {"reduce_runs", w.reduce_runs}};
  return dump(json, 2) + "\n";
}

Witness parse_witness(const std::string& text) {
  return read_json(text, "flashproof-witness", [](const Json& json) {
    Witness w;
    w.bucket = json.at("bucket");
    w.id = json.at("id");
    w.kernel = json.at("kernel");
    w.config = json.at("config");
    w.text = json.at("case");
    w.verdict = verdict_from(json.at("verdict"));
    w.replay = json.at("replay");
    w.reduce_seconds = json.at("reduce_seconds");
    w.reduce_runs = json.at("reduce_runs");
    return w;
  });
}

}  // namespace flashproof
