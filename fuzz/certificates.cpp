// See certificates.h.
#include "fuzz/certificates.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

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
constexpr int format_version = 1;

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

ModelCheck check_from(const Json& json) {
  return {json.at("model"),         json.at("data"),       json.at("assembler"), json.at("skipped"),
          json.at("inputs"),        json.at("mismatches"), json.at("sample"),    json.at("host_mismatches"),
          json.at("counterexample")};
}

std::vector<fs::path> files_in(const std::string& folder) {
  std::vector<fs::path> files;
  std::error_code none;
  for (fs::directory_iterator at(folder, none), end; !none && at != end; at.increment(none))
    if (at->path().extension() == ".json") files.push_back(at->path());
  std::sort(files.begin(), files.end());
  return files;
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
    if (json.at("version").get<int>() > format_version)
      throw UsageError(std::string(format_name) + " of a later version than this program reads; update Flashproof");
    Certificate c;
    c.gpu = json.at("gpu"), c.compute_capability = json.at("compute_capability"), c.driver = json.at("driver");
    c.assembler = json.at("assembler"), c.run_time_assembler = json.at("run_time_assembler");
    c.models = json.at("models");
    for (const Json& check : json.at("checks")) c.checks.push_back(check_from(check));
    for (const Json& a : json.at("alternatives"))
      c.alternatives.push_back({a.at("model"), a.at("assembler"), a.at("rule"), a.at("inputs"), a.at("mismatches")});
    for (const Json& p : json.at("chain"))
      c.chain.push_back({p.at("instruction"), p.at("keys"), p.at("predicted"), p.at("measured")});
    return c;
  } catch (const nlohmann::json::exception& error) {
    throw UsageError(std::string("damaged ") + format_name + ": " + error.what());
  }
}

std::string certificate_folder() {
  const auto named = [](const char* variable) {
    const char* value = std::getenv(variable);
    return std::string(value == nullptr ? "" : value);
  };
  if (std::string folder = named("FLASHPROOF_CERTIFICATES"); !folder.empty()) return folder;
  if (const std::string data = named("XDG_DATA_HOME"); !data.empty()) return data + "/flashproof/certificates";
  const std::string home = named("HOME");
  return home.empty() ? "" : home + "/.local/share/flashproof/certificates";
}

std::vector<Certificate> read_certificates(const std::string& folder) {
  std::vector<Certificate> certificates;
  for (const fs::path& path : files_in(folder)) {
    std::ifstream file(path);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    try {
      certificates.push_back(parse_certificate(text));
    } catch (const UsageError& error) {
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
