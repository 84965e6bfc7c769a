#pragma once
#include <cstdint>
#include <string>

namespace flashproof {

struct CompileBench {
  int64_t count = 200;  ///< random TileConfigs, and the seed that draws them
  uint64_t seed = 1;
  std::string architecture = "sm_90a";
  bool json = false;
};

/// Compiles the production table of FlashAttention 2 and random TileConfigs, and prints what became of them. 0; 1 where
/// one that `feasible` lets pass does not compile.
int bench_compile(const CompileBench&);

}  // namespace flashproof
