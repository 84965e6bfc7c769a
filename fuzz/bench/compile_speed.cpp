#include "fuzz/bench/compile_speed.h"

#include "fuzz/steady_seconds.h"
#include "kernels/flash2_run_time.h"
#include "kernels/flash2_shapes.h"
#include "reference/errors.h"

namespace flashproof {
namespace {

template <DType dtype>
void append_production(std::vector<TileConfig>& configs) {
  for (const flash2::DeviceShape& shape : flash2::device_shapes<dtype>())
    configs.push_back(flash2::config_of(dtype, shape));
}

}  // namespace

std::vector<ConfigCompilation> compile_each(const std::vector<TileConfig>& configs, const std::string& architecture,
                                            const std::function<void(int64_t done)>& progress) {
  CompilerPlaces places = compiler_places();
  places.cache.clear();
  std::string reason;
  if (run_time_compiler(places, reason).empty()) throw UnavailableError(reason);
  std::vector<ConfigCompilation> all;
  for (const TileConfig& config : configs) {
    ConfigCompilation one;
    one.config = config;
    if (const char* refusal = feasible(config)) {
      one.refused = refusal;
    } else {
      try {
        const double start = thread_seconds();
        const CompiledKernel kernel = compile_kernel(flash2::kernel_text(config, architecture), places);
        one.seconds = thread_seconds() - start;
        one.resources = resources_of(kernel);
      } catch (const std::runtime_error& error) {
        one.error = error.what();
      }
    }
    all.push_back(one);
    progress(int64_t(all.size()));
  }
  return all;
}

std::vector<TileConfig> production_configs() {
  std::vector<TileConfig> configs;
  append_production<DType::bf16>(configs), append_production<DType::fp16>(configs);
  append_production<DType::e4m3>(configs), append_production<DType::e5m2>(configs);
  return configs;
}

std::vector<TileConfig> random_configs(int64_t count, uint64_t seed) {
  std::vector<TileConfig> configs;
  for (int64_t index = 0; index < count; ++index) configs.push_back(flash2::random_config(seed, uint64_t(index)));
  return configs;
}

}  // namespace flashproof
