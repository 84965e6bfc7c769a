// See certificates.h.
#include "fuzz/certificates.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "fuzz/build_info.h"
#include "fuzz/campaign_directory.h"
#include "fuzz/device_memory.h"
#include "kernels/builtin.h"
#include "reference/errors.h"

namespace flashproof {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* format_name = "flashproof-certificate";
constexpr uint64_t format_version = 1;

/// The environment's; "" where it names none.
std::string named(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

Json json_of(const ModelCheck& c) {
  return {{"model", c.model},
          {"data", c.data},
          {"assembler", c.assembler},
          {"skipped", c.skipped},
          {"inputs", c.inputs},
          {"mismatches", c.mismatches},
          {"sample", c.sample},
          {"host_mismatches", c.host_mismatches},
          {"counterexample", c.counterexample}};
}

UsageError damaged(const std::string& what) { return UsageError(std::string("damaged ") + format_name + ": " + what); }

/// What was counted. Any other number would be rounded, or cut to its low bits, and could come out as none.
uint64_t count(const Json& json, const char* key) {
  const Json& value = json.at(key);
  if (!value.is_number_unsigned()) throw damaged(std::string("`") + key + "` is no whole number from 0 to 2^64 - 1");
  return value;
}

float measured(const Json& json, const char* key) {
  const Json& value = json.at(key);
  if (!value.is_number() || std::abs(value.get<double>()) > std::numeric_limits<float>::max())
    throw damaged(std::string("`") + key + "` is no finite float");
  return value;
}

const Json& list(const Json& json, const char* key) {
  const Json& value = json.at(key);
  if (!value.is_array()) throw damaged(std::string("`") + key + "` is no array");
  return value;
}

ModelCheck check_from(const Json& json) {
  return {json.at("model"),         json.at("data"),           json.at("assembler"),  json.at("skipped"),
          count(json, "inputs"),    count(json, "mismatches"), count(json, "sample"), count(json, "host_mismatches"),
          json.at("counterexample")};
}

/// Of the folder, by name. A folder that cannot be read is named on stderr, but for one of the user's that `certify`
/// has not made yet.
std::vector<fs::path> json_files_in(const std::string& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (at->path().extension() == ".json") files.push_back(at->path());
  const bool is_asked_for = !folder.empty() && folder == named("FLASHPROOF_CERTIFICATES");
  if (error && (is_asked_for || error != std::errc::no_such_file_or_directory))
    std::fprintf(stderr, "flashproof: no certificates are read from %s: %s\n", folder.c_str(), error.message().c_str());
  std::sort(files.begin(), files.end());
  return files;
}

/// UnavailableError with the reason. A pipe or a device might never end.
std::string text_of(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (error) throw UnavailableError(error.message());
  if (!fs::is_regular_file(status)) throw UnavailableError("no regular file");
  std::ifstream file(path);
  if (!file) throw UnavailableError(std::strerror(errno));
  return {std::istreambuf_iterator<char>(file), {}};
}

const std::vector<Certificate>& certificates() {
  static const std::vector<Certificate> read = read_certificates(certificate_folder());
  return read;
}

std::string assembler_of(const LoadedKernel& kernel, const Problem& p, const std::string& config) {
  if (!kernel.path.empty()) return "";
  const BuiltinKernels kernels = builtin_kernel_table();
  const auto* at = std::find_if(kernels.first, kernels.first + kernels.count,
                                [&](const BuiltinKernel& each) { return each.name == kernel.name; });
  if (at == kernels.first + kernels.count || at->assembler == nullptr) return "";
  const flashproof_problem problem = abi_problem(p);
  return at->assembler(&problem, config.c_str());
}

}  // namespace

std::string print(const Certificate& c) {
  Json json = {{"format", format_name},
               {"version", format_version},
               {"program_version", build_info().version},
               {"commit", build_info().commit},
               {"gpu", c.gpu},
               {"compute_capability", c.compute_capability},
               {"driver", c.driver},
               {"assembler", c.assembler},
               {"run_time_assembler", c.run_time_assembler},
               {"models", c.models},
               {"holds", c.holds()},
               {"checks", Json::array()},
               {"alternatives", Json::array()},
               {"chain", Json::array()}};
  for (const ModelCheck& check : c.checks) json["checks"].push_back(json_of(check));
  for (const Alternative& a : c.alternatives)
    json["alternatives"].push_back({{"model", a.model},
                                    {"assembler", a.assembler},
                                    {"rule", a.rule},
                                    {"inputs", a.inputs},
                                    {"mismatches", a.mismatches}});
  for (const ChainPoint& p : c.chain)
    json["chain"].push_back(
        {{"instruction", p.instruction}, {"keys", p.keys}, {"predicted", p.predicted}, {"measured", p.measured}});
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Certificate parse_certificate(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("format") || json["format"] != format_name)
    throw UsageError(std::string("not a ") + format_name);
  try {
    if (const uint64_t version = count(json, "version"); version != format_version)
      throw UsageError(std::string(format_name) + " of version " + std::to_string(version) + "; this program reads " +
                       std::to_string(format_version) + (version > format_version ? ": update Flashproof" : ""));
    Certificate c;
    c.gpu = json.at("gpu"), c.compute_capability = json.at("compute_capability"), c.driver = json.at("driver");
    c.assembler = json.at("assembler"), c.run_time_assembler = json.at("run_time_assembler");
    c.models = json.at("models");
    for (const Json& check : list(json, "checks")) c.checks.push_back(check_from(check));
    for (const Json& a : list(json, "alternatives"))
      c.alternatives.push_back(
          {a.at("model"), a.at("assembler"), a.at("rule"), count(a, "inputs"), count(a, "mismatches")});
    for (const Json& p : list(json, "chain"))
      c.chain.push_back(
          {p.at("instruction"), int64_t(count(p, "keys")), measured(p, "predicted"), measured(p, "measured")});
    if (json.at("holds") != c.holds()) throw damaged("`holds` is not what its checks say");
    return c;
  } catch (const nlohmann::json::exception& error) {
    throw damaged(error.what());
  }
}

std::string certificate_folder() {
  if (std::string folder = named("FLASHPROOF_CERTIFICATES"); !folder.empty()) return folder;
  if (const std::string data = named("XDG_DATA_HOME"); !data.empty()) return data + "/flashproof/certificates";
  const std::string home = named("HOME");
  return home.empty() ? "" : home + "/.local/share/flashproof/certificates";
}

std::vector<Certificate> read_certificates(const std::string& folder) {
  std::vector<Certificate> certificates;
  for (const fs::path& path : json_files_in(folder)) {
    try {
      certificates.push_back(parse_certificate(text_of(path)));
    } catch (const std::runtime_error& error) {
      std::fprintf(stderr, "flashproof: %s is left out: %s\n", path.c_str(), error.what());
    }
  }
  for (const std::string& text : shipped_certificates()) certificates.push_back(parse_certificate(text));
  return certificates;
}

std::string keep(const Certificate& certificate, const std::string& folder) {
  if (folder.empty()) throw UnavailableError("no folder for certificates; FLASHPROOF_CERTIFICATES names one");
  std::string name = certificate.gpu;
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c); }, '-');
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw UnavailableError("cannot make the folder " + folder + ": " + error.message());
  std::string path = folder + "/" + name + ".json";
  write_file(path, print(certificate));
  return path;
}

GpuStanding gpu_standing(const std::string& assembler) {
  GpuStanding standing;
  std::string reason;
  if (!cuda_available(reason)) {
    standing.without = "no certificate: " + reason;
    return standing;
  }
  const CudaDevice device = cuda_device();
  standing.code = {device.name, device.compute_capability, assembler};
  standing.certificate = certificate_of(certificates(), standing.code, standing.without);
  return standing;
}

std::optional<GpuStanding> gpu_standing(const LoadedKernel& kernel, const Problem& p, const std::string& config) {
  if (kernel.table->memory != FLASHPROOF_CUDA) return std::nullopt;
  return gpu_standing(assembler_of(kernel, p, config));
}

}  // namespace flashproof
