// gpu:flash2: the launcher of FlashAttention 2 forward (kernels/flash2_forward.cuh), for chips from sm_80 on; fp8 from sm_89 on.
#include <cstdio>
#include <vector>

#include "kernels/builtin.h"
#include "kernels/flash2_host.h"
#include "kernels/flash2_kernels.h"

namespace flashproof::flash2 {
namespace {

/// The chip in use; a Hopper where there is none, so that supports() and arithmetic() answer without a GPU.
struct Chip {
  int capability = 90;  ///< 10 major + minor
  int shared_bytes = largest_shared_bytes;
};
Chip chip_in_use() {
  Chip chip;
  int device = 0, major = 0, minor = 0, bytes = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess ||
      cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) != cudaSuccess)
    return cudaGetLastError(), chip;  // which also takes the error back, so that the next launch is not blamed for it
  return {10 * major + minor, bytes};
}

/// Whose tensor core it has, of those that the models know (kernels/hardware/tensor_core.h).
const char* model_of(const Chip& chip) {
  return chip.capability == 90 ? "sm_90" : chip.capability == 89 ? "sm_89" : chip.capability == 80 ? "sm_80" : "";
}

std::span<const DeviceKernel> kernels_of(int32_t dtype) {
  switch (dtype) {
    case FLASHPROOF_BF16:
      return device_kernels<DType::bf16>();
    case FLASHPROOF_FP16:
      return device_kernels<DType::fp16>();
    case FLASHPROOF_E4M3:
      return device_kernels<DType::e4m3>();
    default:
      return device_kernels<DType::e5m2>();
  }
}

/// What the chip can run.
struct Table {
  std::vector<TileConfig> configs;
  std::vector<const void*> functions;
};
Table table_of(const flashproof_problem& p, const Chip& chip) {
  if (is_fp8(DType(p.dtype)) && chip.capability < 89)
    throw Rejected("the GPU has no fp8 instructions: they come with sm_89");
  Table table;
  for (const DeviceKernel& each : kernels_of(p.dtype)) {
    if (shared_bytes(each.config) > chip.shared_bytes) continue;
    table.configs.push_back(each.config), table.functions.push_back(each.function);
  }
  return table;
}

/// A problem and a config, checked, with what carries it out.
struct Choice {
  Chip chip;
  Config config;
  Table table;
  int n;
};
Choice choice_of(const flashproof_problem& p, const char* config_text) {
  check_problem(p);
  Choice choice = {chip_in_use(), parse_config(config_text, false), {}, 0};
  choice.table = table_of(p, choice.chip);
  choice.n = choose(choice.table.configs, p, choice.config);
  return choice;
}

flashproof_status supports(const flashproof_problem* p, const char* config, char* message, size_t size) {
  try {
    choice_of(*p, config);
    return FLASHPROOF_OK;
  } catch (const Rejected& reason) {
    std::snprintf(message, size, "%s", reason.what());
    return FLASHPROOF_REJECTED;
  }
}

const char* arithmetic(const flashproof_problem* p, const char* config) {
  thread_local std::string text;
  try {
    const Choice choice = choice_of(*p, config);
    text = arithmetic_text(*p, choice.table.configs[size_t(choice.n)], model_of(choice.chip));
  } catch (const Rejected&) {
    text.clear();
  }
  return text.c_str();
}

cudaError_t launch(const void* function, const TileConfig& config, const Grid& grid, Call call, void* stream) {
  const cudaError_t error =
      cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes(config));
  if (error != cudaSuccess) return error;
  void* arguments[] = {&call};
  return cudaLaunchKernel(function, dim3(grid.tiles, grid.heads, grid.entries), dim3(unsigned(thread_count(config))),
                          arguments, size_t(shared_bytes(config)), static_cast<cudaStream_t>(stream));
}

flashproof_status forward(const flashproof_call* call, const char* config, void* stream, char* message, size_t size) {
  try {
    const flashproof_problem& p = *call->problem;
    const Choice choice = choice_of(p, config);
    const Call c = call_of(*call);
    const size_t n = size_t(choose_for_call(choice.table.configs, choice.n, c, p, choice.config));
    const TileConfig& tile = choice.table.configs[n];
    const Grid grid = grid_of(p, tile);
    if (grid.tiles == 0) return FLASHPROOF_OK;  // a grid of no blocks is nothing to do, but an error to CUDA
    const cudaError_t error = launch(choice.table.functions[n], tile, grid, c, stream);
    if (error == cudaSuccess) return FLASHPROOF_OK;
    std::snprintf(message, size, "launch failed: %s", cudaGetErrorString(error));
    return FLASHPROOF_ERROR;
  } catch (const Rejected& reason) {
    std::snprintf(message, size, "%s", reason.what());
    return FLASHPROOF_REJECTED;
  }
}

}  // namespace
}  // namespace flashproof::flash2

namespace flashproof {

const flashproof_kernel* gpu_flash2_kernel() {
  static const flashproof_kernel kernel = [] {
    flashproof_kernel k = flash2::describe("flash2", FLASHPROOF_CUDA);
    k.tunables = "tile=64x64x2x4,128x64x2x4,128x64x2x8";
    k.arithmetic = flash2::arithmetic;
    k.supports = flash2::supports;
    k.forward = flash2::forward;
    return k;
  }();
  return &kernel;
}

}  // namespace flashproof
