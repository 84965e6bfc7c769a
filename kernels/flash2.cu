// gpu:flash2: the launcher of FlashAttention 2 forward (kernels/flash2_forward.cuh), for chips from sm_80 on; fp8 from
// sm_89 on. A tile that the config names and the table lacks is compiled at run time, where there is NVRTC
// (kernels/flash2_run_time.h).
#include <vector>

#include "kernels/assembler.h"
#include "kernels/builtin.h"
#include "kernels/flash2_host.h"
#include "kernels/flash2_kernels.h"
#include "kernels/flash2_run_time.h"

namespace flashproof::flash2 {
namespace {

/// The chip in use; a Hopper where there is none, so that supports() and arithmetic() answer without a GPU.
struct Chip {
  int capability = 90;  ///< 10 major + minor
  int shared_bytes = largest_shared_bytes;
  bool is_here = false;
};
Chip chip_in_use() {
  Chip chip;
  int device = 0, major = 0, minor = 0, bytes = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess ||
      cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) != cudaSuccess)
    return cudaGetLastError(), chip;  // which also takes the error back, so that the next launch is not blamed for it
  return {10 * major + minor, bytes, true};
}

std::string architecture_of(const Chip& chip) { return architecture_name(chip.capability / 10, chip.capability % 10); }

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

/// Whether the code of an fp8 kernel that the chip runs has a body (kernels/flash2_table.h): an sm_89 may run that of
/// sm_80, and a chip later than all that the program was built for what its driver makes of that. ptxVersion is the
/// virtual architecture that machine code is from (CUDA Runtime API, cudaFuncAttributes): 90 for sm_90a, as the note
/// .note.nv.cuinfo in it says. True without a chip.
bool has_body(const void* function) {
  cudaFuncAttributes code = {};
  if (cudaFuncGetAttributes(&code, function) != cudaSuccess) return cudaGetLastError(), true;
  return code.ptxVersion >= 89;
}

/// What the chip can run.
struct Table {
  std::vector<TileConfig> configs;
  std::vector<const void*> functions;
};
Table table_of(const flashproof_problem& p, const Chip& chip) {
  const bool fp8 = is_fp8(DType(p.dtype));
  if (fp8 && chip.capability < 89) throw Rejected("the GPU has no fp8 instructions: they come with sm_89");
  Table table;
  for (const DeviceKernel& each : kernels_of(p.dtype)) {
    if (shared_bytes(each.config) > chip.shared_bytes || (fp8 && !has_body(each.function))) continue;
    table.configs.push_back(each.config), table.functions.push_back(each.function);
  }
  return table;
}

/// The tiles of the table that the problem may have: "64x64x2x4, 128x64x2x8".
std::string tiles_of(const Table& table, const flashproof_problem& p) {
  std::string list;
  for (const TileConfig& each : table.configs) {
    const Config named = {each.tile_m, each.tile_n, each.stages, each.warps};
    if (find(table.configs, p, named) >= 0 && list.find(tile_name(each)) == std::string::npos)
      list += (list.empty() ? "" : ", ") + tile_name(each);
  }
  return list;
}

TileConfig compiled_at_run_time(const flashproof_problem& p, const Config& config, const Chip& chip,
                                const Table& table) {
  if (const std::string reason = why_no_target(architecture_of(chip)); !reason.empty())
    throw Rejected("this dtype and these head dims are compiled with the tiles " + tiles_of(table, p) +
                   "; another one needs the run-time compiler: " + reason);
  const TileConfig tile = run_time_config(p, config, needed_features(p));
  if (shared_bytes(tile) > chip.shared_bytes) throw Rejected("the tiles need more shared memory than a block has");
  return tile;
}

/// A problem and a config, checked, with what carries it out.
struct Choice {
  Chip chip;
  Config config;
  Table table;
  int n;  ///< in the table; -1: compiled at run time
  TileConfig tile;
};
Choice choice_of(const flashproof_problem& p, const char* config_text) {
  check_problem(p);
  Choice choice = {chip_in_use(), parse_config(config_text, false), {}, 0, {}};
  choice.table = table_of(p, choice.chip);
  const bool names_tile = choice.config.tile_m != 0;
  choice.n = names_tile ? find(choice.table.configs, p, choice.config) : choose(choice.table.configs, p, choice.config);
  choice.tile = choice.n >= 0 ? choice.table.configs[size_t(choice.n)]
                              : compiled_at_run_time(p, choice.config, choice.chip, choice.table);
  return choice;
}

/// What forward() may need of the compiler, before it is timed: calls whose rows are not aligned take the general
/// kernel. What does not compile is left for forward() to tell of, as an error.
void compile_ahead(const Choice& choice) {
  TileConfig general = choice.tile;
  general.features = Features::general;
  try {
    run_time_code(choice.tile, architecture_of(choice.chip));
    run_time_code(general, architecture_of(choice.chip));
  } catch (const std::exception&) {
  }
}

flashproof_status supports(const flashproof_problem* p, const char* config, char* message, size_t size) {
  return guarded(message, size, [&] {
    const Choice choice = choice_of(*p, config);
    if (choice.n < 0 && choice.chip.is_here) compile_ahead(choice);
  });
}

const char* arithmetic(const flashproof_problem* p, const char* config) {
  return text_unless_thrown([&] {
    const Choice choice = choice_of(*p, config);
    return arithmetic_text(*p, choice.tile, model_of(choice.chip));
  });
}

void require(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(std::string("launch failed: ") + cudaGetErrorString(error));
}

void launch_compiled(const void* function, const TileConfig& config, const Grid& grid, Call call, void* stream) {
  require(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes(config)));
  void* arguments[] = {&call};
  require(cudaLaunchKernel(function, dim3(grid.tiles, grid.heads, grid.entries), dim3(unsigned(thread_count(config))),
                           arguments, size_t(shared_bytes(config)), static_cast<cudaStream_t>(stream)));
}

void launch_at_run_time(const TileConfig& config, const Grid& grid, const Call& call, void* stream) {
  int device = 0;
  require(cudaGetDevice(&device));
  require(cudaFree(nullptr));  // the device's context is current from here on
  launch_kernel(run_time_kernel(config, device), {grid.tiles, grid.heads, grid.entries}, unsigned(thread_count(config)),
                &call, stream);
}

flashproof_status forward(const flashproof_call* call, const char* config, void* stream, char* message, size_t size) {
  return guarded(message, size, [&] {
    const flashproof_problem& p = *call->problem;
    Choice choice = choice_of(p, config);
    const Call c = call_of(*call);
    if (choice.n >= 0) {
      choice.n = choose_for_call(choice.table.configs, choice.n, c, p, choice.config);
      choice.tile = choice.table.configs[size_t(choice.n)];
    } else if (!is_aligned(c)) {
      choice.tile.features = Features::general;
    }
    const Grid grid = grid_of(p, choice.tile);
    if (grid.tiles == 0) return;  // a grid of no blocks is nothing to do, but an error to CUDA
    if (choice.n >= 0)
      launch_compiled(choice.table.functions[size_t(choice.n)], choice.tile, grid, c, stream);
    else
      launch_at_run_time(choice.tile, grid, c, stream);
  });
}

/// The tiles compiled ahead of time, and where there is NVRTC random ones.
const char* tunables() {
  static const std::string text = [] {
    std::vector<TileConfig> configs;
    for (int32_t dtype : {FLASHPROOF_BF16, FLASHPROOF_FP16, FLASHPROOF_E4M3, FLASHPROOF_E5M2})
      for (const DeviceKernel& each : kernels_of(dtype)) configs.push_back(each.config);
    std::string values = tile_values(configs), reason;
    if (!run_time_compiler(compiler_places(), reason).empty())
      values.append(",").append(random_tiles(random_tile_count));
    return "tile=" + values;
  }();
  return text.c_str();
}

}  // namespace
}  // namespace flashproof::flash2

namespace flashproof {

std::string gpu_flash2_assembler(const flashproof_problem* p, const char* config) {
  try {
    const flash2::Choice choice = flash2::choice_of(*p, config);
    return choice.n < 0 ? run_time_assembler() : assembler_of(choice.table.functions[size_t(choice.n)]);
  } catch (const std::exception&) {  // no code of it runs here
    return "";
  }
}

const flashproof_kernel* gpu_flash2_kernel() {
  static const flashproof_kernel kernel = [] {
    flashproof_kernel k = flash2::describe("flash2", FLASHPROOF_CUDA);
    k.tunables = flash2::tunables();
    k.arithmetic = flash2::arithmetic;
    k.supports = flash2::supports;
    k.forward = flash2::forward;
    return k;
  }();
  return &kernel;
}

}  // namespace flashproof
