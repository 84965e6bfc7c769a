// See named_case.h.
#include "fuzz/cli/named_case.h"

#include <algorithm>
#include <filesystem>
#include <tuple>

#include "fuzz/cli/options.h"
#include "fuzz/execute.h"
#include "fuzz/summary.h"
#include "reference/errors.h"

namespace flashproof {
namespace {

namespace fs = std::filesystem;

bool is_id(const std::string& name) {
  return name.size() == 16 &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isxdigit(c) && !std::isupper(c); });
}

NamedCase of_record(const Record& record) {
  NamedCase named{record.text, record.kernel, record.config, {}};
  for (const Verdict& verdict : record.verdicts)
    if (verdict.status == Status::fail) named.checks = {verdict.check};
  return named;
}

NamedCase of_witness(const Witness& witness) {
  return {witness.text, witness.kernel, witness.config, {witness.verdict.check}};
}

NamedCase in_file(const std::string& path) {
  const std::string text = read_text(path);
  if (text.find("\"flashproof-witness\"") != std::string::npos) return of_witness(parse_witness(text));
  if (text.find("\"flashproof-case\"") != std::string::npos)
    return of_record(parse_record(text.substr(0, text.find('\n'))));
  return {text.substr(0, text.find('\n')), "", "", {}};
}

NamedCase by_id(const std::string& id, const std::string& campaign) {
  for (const Witness& witness : read_witnesses(campaign))
    if (witness.id == id) return of_witness(witness);
  for (const Record& record : read_records(campaign))
    if (record.id == id) return of_record(record);
  throw UsageError("the campaign " + campaign + " has no case with the id " + id +
                   "; name another with --campaign DIR");
}

}  // namespace

NewCampaignFolder::NewCampaignFolder(const std::string& name) {
  std::error_code error;
  fs::create_directories(campaigns_folder, error);
  const std::string first = std::string(campaigns_folder) + "/" + name;
  path_ = first;
  for (int n = 2; !error && !fs::create_directory(path_, error) && !error; ++n) path_ = first + "-" + std::to_string(n);
  if (error) throw UnavailableError("cannot create the campaign directory " + path_ + ": " + error.message());
}

NewCampaignFolder::~NewCampaignFolder() {
  std::error_code holds_a_campaign;
  fs::remove(path_, holds_a_campaign);
}

std::string newest_campaign() {
  std::string newest, started;
  if (fs::exists(campaigns_folder))
    for (const auto& entry : fs::directory_iterator(campaigns_folder)) {
      if (!fs::exists(entry.path() / "manifest.json")) continue;
      const std::string directory = entry.path().string(), start = read_manifest(directory).started;
      if (std::tie(start, directory) > std::tie(started, newest)) newest = directory, started = start;
    }
  if (newest.empty()) throw UsageError(std::string("there is no campaign in ./") + campaigns_folder + "; name one");
  return newest;
}

NamedCase find_case(const std::string& name, const std::string& campaign) {
  std::error_code too_long_for_a_path;
  if (fs::is_regular_file(name, too_long_for_a_path)) return in_file(name);
  const std::string first = name.substr(0, name.find(' '));
  if (first != name && (is_id(first) || first.ends_with(".json") || fs::is_regular_file(first, too_long_for_a_path)))
    throw UsageError("one case at a time: `" + first + "` names one, and `" + name.substr(first.size() + 1) +
                     "` follows it");
  if (is_id(name)) return by_id(name, campaign.empty() ? newest_campaign() : campaign);
  if (name.find(' ') == std::string::npos && (name.find('/') != std::string::npos || name.ends_with(".json")))
    throw UsageError("there is no file " + name + "; a case's text looks like 'bf16 q4 k8 d64 causal seed=1'");
  return {name, "", "", {}};
}

NamedCase find_failing_case(const std::string& verb, const std::string& name, const std::string& campaign,
                            const NamedCase& flags, const std::string& check) {
  NamedCase named = find_case(name, campaign);
  if (!flags.kernel.empty()) named.kernel = flags.kernel;
  if (!flags.config.empty()) named.config = flags.config;
  if (!check.empty()) named.checks = {check};
  validate_check_ids(named.checks);
  if (named.kernel.empty())
    throw UsageError("which kernel? A case's text names none\n  example: flashproof " + verb +
                     " --kernel ./mine.so 'bf16 q64 k64 d64 causal'");
  return named;
}

}  // namespace flashproof
