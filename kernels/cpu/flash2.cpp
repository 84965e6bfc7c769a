// cpu:flash2: FlashAttention 2 (reference/flash2.h) in fp32 arithmetic.
#include "reference/flash2.h"

#include "kernels/builtin.h"
#include "kernels/cpu/cpu_kernel.h"

namespace flashproof {
namespace {

HeadOutputs<float> forward_head(const RoundedOps& ops, const Head<float>& head, const CpuTiles& config) {
  return flash2_forward(ops, head, {config.tile_m, config.tile_n});
}

constexpr const char* tunables[] = {"tile_m", "tile_n"};
constexpr HeadAlgorithm algorithm{tunables, {}, "ascending", "no", forward_head, backward_by_key_tiles};

constexpr flashproof_kernel kernel = cpu_kernel<algorithm>("cpu_flash2", "tile_m=1:256:1 tile_n=1:256:1");

}  // namespace

const flashproof_kernel* cpu_flash2_kernel() { return &kernel; }

}  // namespace flashproof
