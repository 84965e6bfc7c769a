// The CUDA driver API (CUDA Driver API reference, modules 6.3 to 6.18), by the few functions that buffers need.
#include "fuzz/device_memory.h"

#include <dlfcn.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <utility>

#include "reference/errors.h"

namespace flashproof {
namespace {

using Result = int;  // CUresult, 0 = success
using DevicePointer = unsigned long long;

struct Driver {
  Result (*init)(unsigned);
  Result (*device_count)(int*);
  Result (*device_get)(int*, int);
  Result (*device_name)(char*, int, int);
  Result (*device_attribute)(int*, int, int);
  Result (*retain_primary)(void**, int);
  Result (*set_current)(void*);
  Result (*allocate)(DevicePointer*, size_t);
  Result (*release)(DevicePointer);
  Result (*copy_to_device)(DevicePointer, const void*, size_t);
  Result (*copy_to_host)(void*, DevicePointer, size_t);
  Result (*create_stream)(void**, unsigned);
  Result (*wait_for_stream)(void*);
  Result (*error_name)(Result, const char**);
  Result (*error_text)(Result, const char**);
};

std::string text_of(const Driver& driver, Result result) {
  const char *name = nullptr, *text = nullptr;
  driver.error_name(result, &name);
  driver.error_text(result, &text);
  return std::string(name ? name : "unknown CUDA error") + (text ? std::string(" (") + text + ")" : "");
}

/// The driver with at least one device; NULL with the reason.
const Driver* find_driver(std::string& reason) {
  static Driver driver;
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return reason = "no CUDA driver (libcuda.so.1)", nullptr;
  const char* missing = nullptr;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr) missing = name;
  };
  find(driver.init, "cuInit"), find(driver.device_count, "cuDeviceGetCount"), find(driver.device_get, "cuDeviceGet");
  find(driver.device_name, "cuDeviceGetName"), find(driver.device_attribute, "cuDeviceGetAttribute");
  find(driver.retain_primary, "cuDevicePrimaryCtxRetain"), find(driver.set_current, "cuCtxSetCurrent");
  find(driver.allocate, "cuMemAlloc_v2"), find(driver.release, "cuMemFree_v2");
  find(driver.copy_to_device, "cuMemcpyHtoD_v2"), find(driver.copy_to_host, "cuMemcpyDtoH_v2");
  find(driver.create_stream, "cuStreamCreate"), find(driver.wait_for_stream, "cuStreamSynchronize");
  find(driver.error_name, "cuGetErrorName"), find(driver.error_text, "cuGetErrorString");
  if (missing != nullptr) return reason = std::string("libcuda.so.1 lacks ") + missing, nullptr;
  int devices = 0;
  Result result = driver.init(0);
  if (result == 0) result = driver.device_count(&devices);
  if (result != 0) return reason = "CUDA driver: " + text_of(driver, result), nullptr;
  if (devices == 0) return reason = "the CUDA driver finds no device", nullptr;
  return &driver;
}

struct DriverOrReason {
  std::string reason;
  const Driver* driver = find_driver(reason);
};
const DriverOrReason& driver_once() {
  static const DriverOrReason found;
  return found;
}

/// A device whose primary context is current on the calling thread, with the stream for calls.
struct Cuda {
  const Driver* driver;
  void* context = nullptr;
  void* stream = nullptr;

  Cuda() : driver(driver_once().driver) {
    if (driver == nullptr) throw UnavailableError(driver_once().reason);
    int device = 0;
    Result result = driver->device_get(&device, 0);
    if (result == 0) result = driver->retain_primary(&context, device);
    if (result == 0) result = driver->set_current(context);
    // Flags 0: ordered with the legacy default stream, in which the copies below run.
    if (result == 0) result = driver->create_stream(&stream, 0);
    if (result != 0) throw UnavailableError("CUDA device 0: " + text_of(*driver, result));
  }
};

const Cuda& cuda() {
  static const Cuda instance;
  instance.driver->set_current(instance.context);
  return instance;
}

void require(Result result, const char* what) {
  if (result != 0) throw std::runtime_error(std::string(what) + ": " + text_of(*driver_once().driver, result));
}

constexpr size_t alignment = 256;  // what cuMemAlloc gives, and the ABI promises for the workspace

}  // namespace

bool cuda_available(std::string& reason) {
  reason = driver_once().reason;
  return driver_once().driver != nullptr;
}

CudaDevice cuda_device() {
  constexpr int capability_major = 75, capability_minor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_...
  const Driver* driver = driver_once().driver;
  if (driver == nullptr) throw UnavailableError(driver_once().reason);
  int device = 0, major = 0, minor = 0;
  char name[256] = "";
  Result result = driver->device_get(&device, 0);
  if (result == 0) result = driver->device_name(name, sizeof name, device);
  if (result == 0) result = driver->device_attribute(&major, capability_major, device);
  if (result == 0) result = driver->device_attribute(&minor, capability_minor, device);
  if (result != 0) throw UnavailableError("CUDA device 0: " + text_of(*driver, result));
  return {name, std::to_string(major) + "." + std::to_string(minor)};
}

void* stream_of(flashproof_memory memory) { return memory == FLASHPROOF_CUDA ? cuda().stream : nullptr; }

std::string synchronize(flashproof_memory memory) {
  if (memory != FLASHPROOF_CUDA) return "";
  const Result result = cuda().driver->wait_for_stream(cuda().stream);
  return result == 0 ? "" : text_of(*cuda().driver, result);
}

Allocation::Allocation(flashproof_memory memory, size_t bytes) : memory_(memory), bytes_(bytes) {
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  if (memory == FLASHPROOF_CUDA) {
    constexpr Result out_of_memory = 2;  // CUDA_ERROR_OUT_OF_MEMORY
    DevicePointer pointer = 0;
    const Result result = cuda().driver->allocate(&pointer, rounded);
    if (result != out_of_memory) require(result, "allocation on the device");
    data_ = std::bit_cast<char*>(pointer);
  } else {
    data_ = static_cast<char*>(std::aligned_alloc(alignment, rounded));
  }
  if (data_ == nullptr) throw std::bad_alloc();
}

Allocation::~Allocation() {
  if (data_ == nullptr) return;
  if (memory_ == FLASHPROOF_CUDA) {
    cuda().driver->release(reinterpret_cast<DevicePointer>(data_));
  } else {
    std::free(data_);
  }
}

Allocation::Allocation(Allocation&& other) noexcept { *this = std::move(other); }

Allocation& Allocation::operator=(Allocation&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void Allocation::write(const void* from) {
  if (memory_ == FLASHPROOF_CUDA) {
    require(cuda().driver->copy_to_device(reinterpret_cast<DevicePointer>(data_), from, bytes_), "copy to the device");
  } else {
    std::memcpy(data_, from, bytes_);
  }
}

void Allocation::read(void* to) const {
  if (memory_ == FLASHPROOF_CUDA) {
    require(cuda().driver->copy_to_host(to, reinterpret_cast<DevicePointer>(data_), bytes_), "copy from the device");
  } else {
    std::memcpy(to, data_, bytes_);
  }
}

}  // namespace flashproof
