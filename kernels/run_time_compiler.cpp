// NVRTC's C interface (NVRTC user guide, section 3), by the functions that one compilation needs.
#include "kernels/run_time_compiler.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>

#include <dlfcn.h>

#include "kernels/embedded_sources.h"
#include "kernels/kernel_cache.h"
#include "reference/errors.h"
#include "reference/sha256.h"

namespace flashproof {
namespace {

using Result = int;     // nvrtcResult, 0 = success
using Program = void*;  // nvrtcProgram

struct Nvrtc {
  std::string file;  ///< as it was opened
  Result (*version)(int*, int*);
  const char* (*error_text)(Result);
  Result (*create)(Program*, const char*, const char*, int, const char* const*, const char* const*);
  Result (*destroy)(Program*);
  Result (*compile)(Program, int, const char* const*);
  Result (*log_size)(Program, size_t*);
  Result (*log)(Program, char*);
  Result (*cubin_size)(Program, size_t*);
  Result (*cubin)(Program, char*);
  Result (*add_name)(Program, const char*);
  Result (*lowered_name)(Program, const char*, const char**);
  Result (*architecture_count)(int*);
  Result (*architectures)(int*);
};

std::optional<Nvrtc> open_nvrtc(const CompilerPlaces& places, std::string& reason) {
  Nvrtc nvrtc;
  void* library = nullptr;
  const std::vector<std::string> files = places.library.empty()
                                             ? std::vector<std::string>{"libnvrtc.so.13", "libnvrtc.so.12"}
                                             : std::vector<std::string>{places.library};
  reason = "no NVRTC:";
  for (const std::string& file : files) {
    library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    nvrtc.file = file;
    if (library != nullptr) break;
    reason += std::string(&file == &files.front() ? " " : "; ") + dlerror();
  }
  if (library == nullptr) {
    reason += "; NVIDIA's package cuda-nvrtc-13-0 brings it, as the CUDA Toolkit does; FLASHPROOF_NVRTC names its file";
    return {};
  }
  const char* missing = nullptr;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr) missing = name;
  };
  find(nvrtc.version, "nvrtcVersion"), find(nvrtc.error_text, "nvrtcGetErrorString");
  find(nvrtc.create, "nvrtcCreateProgram"), find(nvrtc.destroy, "nvrtcDestroyProgram");
  find(nvrtc.compile, "nvrtcCompileProgram");
  find(nvrtc.log_size, "nvrtcGetProgramLogSize"), find(nvrtc.log, "nvrtcGetProgramLog");
  find(nvrtc.cubin_size, "nvrtcGetCUBINSize"), find(nvrtc.cubin, "nvrtcGetCUBIN");
  find(nvrtc.add_name, "nvrtcAddNameExpression"), find(nvrtc.lowered_name, "nvrtcGetLoweredName");
  find(nvrtc.architecture_count, "nvrtcGetNumSupportedArchs");
  find(nvrtc.architectures, "nvrtcGetSupportedArchs");
  if (missing != nullptr) return reason = nvrtc.file + " lacks " + missing, std::nullopt;
  reason.clear();
  return nvrtc;
}

std::string version_of(const Nvrtc& nvrtc) {
  int major = 0, minor = 0;
  nvrtc.version(&major, &minor);
  return std::to_string(major) + "." + std::to_string(minor);
}

void require(const Nvrtc& nvrtc, Result result, const char* what) {
  if (result != 0) throw std::runtime_error(std::string("NVRTC: ") + what + ": " + nvrtc.error_text(result));
}

/// The language of the project; a header's unmarked functions are the device's; the assembler reports what it allots.
std::vector<std::string> options_of(const KernelText& kernel) {
  return {"--gpu-architecture=" + kernel.architecture, "--std=c++20", "--fmad=false",
          "--device-as-default-execution-space", "--ptxas-options=-v"};
}

/// Names all that the machine code follows from. Each part is preceded by its length, so that no two lists read the
/// same.
std::string key_of(const KernelText& kernel, const std::vector<std::string>& options, const std::string& version) {
  std::string all;
  const auto add = [&](std::string_view part) { all.append(std::to_string(part.size())).append(":").append(part); };
  add(version), add(kernel.text), add(kernel.kernel);
  for (const std::string& option : options) add(option);
  for (const EmbeddedSource& source : embedded_sources()) add(source.path), add(source.text);
  return sha256(all);
}

std::string log_of(const Nvrtc& nvrtc, Program program) {
  size_t size = 0;
  if (nvrtc.log_size(program, &size) != 0 || size < 2) return "";
  std::string log(size, 0);
  nvrtc.log(program, log.data());
  log.resize(size - 1);  // the terminating zero
  return log;
}

CompiledKernel compile(const Nvrtc& nvrtc, const KernelText& kernel, const std::vector<std::string>& options) {
  std::vector<const char*> texts, paths, words;
  for (const EmbeddedSource& source : embedded_sources())
    texts.push_back(source.text.data()), paths.push_back(source.path);
  for (const std::string& option : options) words.push_back(option.c_str());
  const auto start = std::chrono::steady_clock::now();
  Program program = nullptr;
  require(nvrtc,
          nvrtc.create(&program, kernel.text.c_str(), "kernel.cu", int(texts.size()), texts.data(), paths.data()),
          "making a program");
  const auto destroy = [&nvrtc](void** p) { nvrtc.destroy(p); };
  const std::unique_ptr<void*, decltype(destroy)> owner(&program, destroy);

  require(nvrtc, nvrtc.add_name(program, kernel.kernel.c_str()), kernel.kernel.c_str());
  const Result result = nvrtc.compile(program, int(words.size()), words.data());
  CompiledKernel compiled;
  compiled.log = log_of(nvrtc, program);
  if (result != 0)
    throw std::runtime_error(kernel.kernel + " does not compile for " + kernel.architecture + " (NVRTC " +
                             version_of(nvrtc) + ": " + nvrtc.error_text(result) + ")\n" + compiled.log);
  const char* symbol = nullptr;
  require(nvrtc, nvrtc.lowered_name(program, kernel.kernel.c_str(), &symbol), kernel.kernel.c_str());
  compiled.symbol = symbol;
  size_t size = 0;
  require(nvrtc, nvrtc.cubin_size(program, &size), "machine code");
  compiled.cubin.resize(size);
  require(nvrtc, nvrtc.cubin(program, compiled.cubin.data()), "machine code");
  compiled.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return compiled;
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

CompilerPlaces compiler_places() {
  CompilerPlaces places = {environment("FLASHPROOF_NVRTC"), environment("FLASHPROOF_CACHE")};
  if (!places.cache.empty()) return places;
  const std::string caches = environment("XDG_CACHE_HOME"), home = environment("HOME");
  if (!caches.empty()) {
    places.cache = caches + "/flashproof";
  } else if (!home.empty()) {
    places.cache = home + "/.cache/flashproof";
  }
  return places;
}

std::string run_time_compiler(const CompilerPlaces& places, std::string& reason) {
  const auto nvrtc = open_nvrtc(places, reason);
  return nvrtc ? "NVRTC " + version_of(*nvrtc) + " (" + nvrtc->file + ")" : "";
}

std::string run_time_assembler(const CompilerPlaces& places) {
  std::string reason;
  const auto nvrtc = open_nvrtc(places, reason);
  return nvrtc ? "NVRTC " + version_of(*nvrtc) : "";
}

std::string why_no_target(const std::string& architecture, const CompilerPlaces& places) {
  std::string reason;
  const auto nvrtc = open_nvrtc(places, reason);
  if (!nvrtc) return reason;
  int count = 0;
  require(*nvrtc, nvrtc->architecture_count(&count), "chips that it knows");
  std::vector<int> known(size_t(count), 0);
  require(*nvrtc, nvrtc->architectures(known.data()), "chips that it knows");
  const int chip = std::atoi(architecture.c_str() + 3);  // of "sm_90a", 90
  if (std::find(known.begin(), known.end(), chip) != known.end()) return "";
  return "NVRTC " + version_of(*nvrtc) + " makes no code for " + architecture;
}

CompiledKernel compile_kernel(const KernelText& kernel, const CompilerPlaces& places) {
  std::string reason;
  const auto nvrtc = open_nvrtc(places, reason);
  if (!nvrtc) throw UnavailableError(reason);
  const std::vector<std::string> options = options_of(kernel);
  if (places.cache.empty()) return compile(*nvrtc, kernel, options);

  const std::string key = key_of(kernel, options, version_of(*nvrtc));
  if (auto cached = read_cached(places.cache, key)) return *cached;
  CompiledKernel compiled = compile(*nvrtc, kernel, options);
  const std::string failure = write_cached(places.cache, key, compiled);
  static std::once_flag said;
  if (!failure.empty())
    std::call_once(said, [&] {
      std::fprintf(stderr, "flashproof: compiled kernels are not kept: %s: %s; FLASHPROOF_CACHE names another folder\n",
                   places.cache.c_str(), failure.c_str());
    });
  return compiled;
}

std::optional<KernelResources> resources_of(const CompiledKernel& kernel) {
  const size_t entry = kernel.log.find("Compiling entry function '" + kernel.symbol + "'");
  if (entry == std::string::npos) return {};
  const std::string report = kernel.log.substr(entry, kernel.log.find("Compiling entry function", entry + 1) - entry);
  KernelResources r;
  const size_t frame = report.find("Function properties for " + kernel.symbol), used = report.find("Used ");
  if (frame == std::string::npos || used == std::string::npos) return {};
  const size_t numbers = report.find_first_of("0123456789", report.find('\n', frame));
  if (numbers == std::string::npos ||
      std::sscanf(report.c_str() + numbers, "%d bytes stack frame, %d bytes spill stores, %d bytes spill loads",
                  &r.stack_bytes, &r.spill_store_bytes, &r.spill_load_bytes) != 3 ||
      std::sscanf(report.c_str() + used, "Used %d registers", &r.registers) != 1)
    return {};
  return r;
}

}  // namespace flashproof
