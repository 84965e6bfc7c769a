#include "kernels/flash2_run_time.h"

#include <iterator>
#include <map>
#include <mutex>
#include <utility>

#include "reference/philox.h"

namespace flashproof::flash2 {

KernelText kernel_text(const TileConfig& c, const std::string& architecture) {
  std::string fields = "DType(" + std::to_string(int(c.dtype)) + ")";
  for (int field : {c.tile_m, c.tile_n, c.stages, c.warps, c.head_dim, c.value_dim})
    fields += ", " + std::to_string(field);
  fields += ", Features(" + std::to_string(int(c.features)) + ")";
  return {R"(#include "kernels/flash2_forward.cuh"
namespace flashproof {
template <TileConfig config>
__global__ void __launch_bounds__(thread_count(config), resident_blocks(config))
    flash2_forward(const __grid_constant__ flash2::Call call) {
  flash2::forward<config>(call);
}
constexpr TileConfig config = {)" +
              fields + "};\n}\n",
          "flashproof::flash2_forward<flashproof::config>", architecture};
}

TileConfig run_time_config(const flashproof_problem& p, const Config& config, Features features) {
  const int64_t dim = p.head_dim > p.value_dim ? p.head_dim : p.value_dim;
  const int padded = dim <= 64 ? 64 : dim <= 128 ? 128 : 256;
  const TileConfig c = {DType(p.dtype), config.tile_m, config.tile_n, config.stages,
                        config.warps,   padded,        padded,        features};
  if (const char* reason = feasible(c)) throw Rejected("tile " + tile_name(c) + ": " + reason + " (" + print(c) + ")");
  return c;
}

const CompiledKernel& run_time_code(const TileConfig& c, const std::string& architecture) {
  struct Code {
    std::mutex mutex;  // of its own: threads compile different kernels side by side
    std::optional<CompiledKernel> compiled;
  };
  static std::mutex mutex;
  static std::map<std::pair<std::string, std::string>, Code> codes;  // a reference into it stays good
  std::unique_lock lock(mutex);
  Code& code = codes[{architecture, print(c)}];
  lock.unlock();
  const std::lock_guard one(code.mutex);
  if (!code.compiled) code.compiled = compile_kernel(kernel_text(c, architecture));
  return *code.compiled;
}

const LaunchableKernel& run_time_kernel(const TileConfig& c, int device) {
  static std::mutex mutex;
  static std::map<std::pair<int, std::string>, LaunchableKernel> kernels;  // a reference into it stays good
  const std::lock_guard lock(mutex);
  const std::pair key(device, print(c));
  auto at = kernels.find(key);
  if (at == kernels.end()) {
    const CompiledKernel& code = run_time_code(c, device_architecture());
    at = kernels.emplace(key, load_kernel(code, unsigned(shared_bytes(c)))).first;
  }
  return at->second;
}

TileConfig random_config(uint64 seed, uint64 index) {
  const auto words = [&](uint32 call) {
    return philox4x32_10({uint32(index), uint32(index >> 32), call, 0}, uint32(seed), uint32(seed >> 32));
  };
  const Philox tile = words(0), rest = words(1);
  constexpr DType dtypes[] = {DType::bf16, DType::fp16, DType::e4m3, DType::e5m2};
  TileConfig c = {};
  c.dtype = dtypes[rest.word[0] % std::size(dtypes)];
  c.warps = 1 + int(tile.word[0] % 8);
  c.tile_m = c.warps * (tile.word[1] % 2 == 0 ? 16 : 32);
  const int step = is_fp8(c.dtype) ? 32 : 16;
  c.tile_n = step * (1 + int(tile.word[2] % uint32(256 / step)));
  c.stages = 1 + int(tile.word[3] % 5);
  c.head_dim = padded_dims[rest.word[1] % std::size(padded_dims)];
  c.value_dim = rest.word[2] % 4 == 0 ? padded_dims[rest.word[2] / 4 % std::size(padded_dims)] : c.head_dim;
  c.features = Features(rest.word[3] % 2);
  return c;
}

std::string random_tiles(int count) {
  std::string list;
  for (uint64 index = 0; count > 0; ++index) {
    TileConfig c = random_config(1, index);
    c.dtype = DType::bf16, c.head_dim = c.value_dim = 128, c.features = Features::general;
    const std::string name = tile_name(c);
    if (feasible(c) != nullptr || ("," + list + ",").find("," + name + ",") != std::string::npos) continue;
    list += (list.empty() ? "" : ",") + name;
    --count;
  }
  return list;
}

std::string print(const TileConfig& c) {
  constexpr const char* dtypes[] = {"fp32", "bf16", "fp16", "e4m3", "e5m2"};
  return std::string(dtypes[int(c.dtype)]) + " " + tile_name(c) + " d" + std::to_string(c.head_dim) + "/" +
         std::to_string(c.value_dim) + (c.features == Features::plain ? " plain" : " general");
}

}  // namespace flashproof::flash2
