// `doctor`: what this machine and this build have, one line each, with what to do where something is missing.
#include <filesystem>

#include <unistd.h>

#include <fmt/format.h>

#include "fuzz/build_info.h"
#include "fuzz/certificates.h"
#include "fuzz/cli/options.h"
#include "fuzz/cli/verbs.h"
#include "fuzz/device_memory.h"
#include "fuzz/json_text.h"
#include "kernels/run_time_compiler.h"

namespace flashproof {
namespace {

struct Line {
  const char* what;
  std::string found;
  std::string advice;  ///< "" where nothing is missing
};

Line gpu() {
  std::string reason;
  if (cuda_available(reason)) return {"gpu", cuda_device().name, ""};
  return {"gpu", reason, "CPU kernels work; for GPU kernels install NVIDIA's driver"};
}

Line certificate() {
  std::string reason;
  if (!cuda_available(reason)) return {"certificate", "none needed: there is no GPU", ""};
  const GpuStanding standing = gpu_standing("");
  if (standing.certificate == nullptr) return {"certificate", standing.without, "`bits` judges no kernel on the GPU"};
  const Certificate& c = *standing.certificate;
  return {"certificate", fmt::format("of {}, assemblers {}", c.gpu, c.assemblers()),
          c.holds() ? "" : "a model differs from the GPU; `bits` judges no kernel that needs it"};
}

Line nvrtc() {
  const CompilerPlaces places = compiler_places();
  std::string reason;
  const std::string found = run_time_compiler(places, reason);
  if (!found.empty()) return {"nvrtc", found + (places.cache.empty() ? "" : ", cache " + places.cache), ""};
  return {"nvrtc", reason, "needed only to compile GPU kernels at run time"};
}

Line cuda_build() {
  const std::string cuda = build_info().cuda;
  return {"cuda build", cuda,
          cuda == "none"
              ? "built without CUDA; with nvcc (12.0 or later) on PATH build again to include the GPU kernels"
              : ""};
}

Line disk() {
  std::error_code error;
  const auto space = std::filesystem::space(".", error);
  if (error) return {"disk", error.message(), "campaigns are written into the current folder"};
  const double gib = double(space.available) / (1 << 30);
  return {"disk", fmt::format("{:.1f} GiB free here", gib),
          gib < 1 ? "a long campaign writes about 1 kB a case: make room" : ""};
}

Line alarm() {
  const std::string path = demo_plugin_path();
  return path.empty() ? Line{"planted bug", "not beside the program", "`fuzz` cannot show its alarm: build all targets"}
                      : Line{"planted bug", path, ""};
}

int doctor(bool json) {
  const BuildInfo& build = build_info();
  const double gib = double(sysconf(_SC_PHYS_PAGES)) * double(sysconf(_SC_PAGESIZE)) / (1 << 30);
  const std::vector<Line> lines = {
      {"program", fmt::format("flashproof {} (commit {})", build.version, build.commit), ""},
      {"compiler", fmt::format("{}, {}", build.compiler, build.flags), ""},
      cuda_build(),
      {"cores", std::to_string(sysconf(_SC_NPROCESSORS_ONLN)), ""},
      {"memory", fmt::format("{:.1f} GiB", gib), gib < 2 ? "large cases may not fit: use --work 1e6" : ""},
      disk(),
      gpu(),
      certificate(),
      nvrtc(),
      alarm()};
  std::vector<JsonMember> members;
  for (const Line& line : lines) {
    members.push_back({line.what, json_object({{"found", line.found}, {"advice", line.advice}})});
    if (!json)
      fmt::print("{} {:<12} {}{}\n", line.advice.empty() ? "ok  " : "note", line.what, line.found,
                 line.advice.empty() ? "" : ": " + line.advice);
  }
  if (json) fmt::print("{}\n", json_object(members).text());
  return 0;
}

}  // namespace

void add_doctor(CommandLine& line) {
  auto json = std::make_shared<bool>(false);
  line.verb("doctor", "what this machine has, and what is missing", "doctor", [json] { return doctor(*json); })
      .flag("--json", *json, "one JSON object on stdout");
}

}  // namespace flashproof
