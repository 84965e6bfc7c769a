// How long the run-time compiler takes for a TileConfig of FlashAttention 2, and what the kernel then takes of
// registers.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernels/run_time_compiler.h"
#include "kernels/tile_config.h"

namespace flashproof {

/// What became of one TileConfig: refused by `feasible`, refused by the compiler, or compiled.
struct ConfigCompilation {
  TileConfig config = {};
  std::string refused;                       ///< reason of `feasible`, or ""
  std::string error;                         ///< of the compiler, or ""
  double seconds = 0;                        ///< of one core
  std::optional<KernelResources> resources;  ///< nothing where the compiler gave no report

  bool compiled() const { return refused.empty() && error.empty(); }
  bool spills() const { return resources && resources->spill_store_bytes + resources->spill_load_bytes > 0; }
};

/// Each of them, one after the other, by the NVRTC that the environment names; nothing is read from the cache or kept.
/// UnavailableError without NVRTC.
std::vector<ConfigCompilation> compile_each(const std::vector<TileConfig>&, const std::string& architecture,
                                            const std::function<void(int64_t done)>& progress);

/// The table of gpu:flash2 (kernels/flash2_shapes.h), of all dtypes.
std::vector<TileConfig> production_configs();
/// `count` draws of flash2::random_config.
std::vector<TileConfig> random_configs(int64_t count, uint64_t seed);

}  // namespace flashproof
