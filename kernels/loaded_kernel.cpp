#include "kernels/loaded_kernel.h"

#include <dlfcn.h>

#include "reference/errors.h"

namespace flashproof {
namespace {

using Result = int;  // CUresult, 0 = success

struct Driver {
  std::string reason;  ///< why there is none, or ""
  Result (*get_device)(int*);
  Result (*attribute)(int*, int, int);
  Result (*load_module)(void**, const void*);
  Result (*get_function)(void**, void*, const char*);
  Result (*set_attribute)(void*, int, int);
  Result (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
  Result (*error_text)(Result, const char**);
};

Driver open_driver() {
  Driver driver = {};
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return driver.reason = "no CUDA driver (libcuda.so.1)", driver;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr) driver.reason = std::string("libcuda.so.1 lacks ") + name;
  };
  find(driver.get_device, "cuCtxGetDevice"), find(driver.attribute, "cuDeviceGetAttribute");
  find(driver.load_module, "cuModuleLoadData"), find(driver.get_function, "cuModuleGetFunction");
  find(driver.set_attribute, "cuFuncSetAttribute"), find(driver.launch, "cuLaunchKernel");
  find(driver.error_text, "cuGetErrorString");
  return driver;
}

const Driver& driver() {
  static const Driver opened = open_driver();
  if (!opened.reason.empty()) throw UnavailableError(opened.reason);
  return opened;
}

std::string text_of(Result result) {
  const char* text = nullptr;
  driver().error_text(result, &text);
  return text == nullptr ? "CUDA error " + std::to_string(result) : text;
}

void require(Result result, const std::string& what) {
  if (result != 0) throw std::runtime_error(what + ": " + text_of(result));
}

}  // namespace

std::string architecture_name(int major, int minor) {
  return "sm_" + std::to_string(major) + std::to_string(minor) + (major >= 9 ? "a" : "");
}

std::string device_architecture() {
  constexpr int capability_major = 75, capability_minor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_...
  int device = 0, major = 0, minor = 0;
  Result result = driver().get_device(&device);
  if (result == 0) result = driver().attribute(&major, capability_major, device);
  if (result == 0) result = driver().attribute(&minor, capability_minor, device);
  if (result != 0) throw UnavailableError("the current CUDA device: " + text_of(result));
  return architecture_name(major, minor);
}

LaunchableKernel load_kernel(const CompiledKernel& kernel, unsigned shared_bytes) {
  constexpr int max_dynamic_shared_size_bytes = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
  void* module = nullptr;
  LaunchableKernel loaded = {nullptr, shared_bytes};
  require(driver().load_module(&module, kernel.cubin.data()), "loading " + kernel.symbol);
  require(driver().get_function(&loaded.function, module, kernel.symbol.c_str()), kernel.symbol);
  require(driver().set_attribute(loaded.function, max_dynamic_shared_size_bytes, int(shared_bytes)),
          std::to_string(shared_bytes) + " bytes of shared memory for " + kernel.symbol);
  return loaded;
}

void launch_kernel(const LaunchableKernel& kernel, const unsigned (&grid)[3], unsigned threads, const void* parameter,
                   void* stream) {
  void* parameters[] = {const_cast<void*>(parameter)};
  require(driver().launch(kernel.function, grid[0], grid[1], grid[2], threads, 1, 1, kernel.shared_bytes, stream,
                          parameters, nullptr),
          "launching a kernel");
}

}  // namespace flashproof
