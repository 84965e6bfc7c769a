// cpu:flash3: FlashAttention 3 (reference/flash3.h), last tile of keys first, in fp32 arithmetic; its backward is
// FlashAttention 2's.
#include "reference/flash3.h"

#include "kernels/builtin.h"
#include "kernels/cpu/cpu_kernel.h"

namespace flashproof {
namespace {

HeadOutputs<float> forward_head(const RoundedOps& ops, const Head<float>& head, const CpuTiles& config) {
  return flash3_forward(ops, head, {config.tile_m, config.tile_n}, config.levels == 2);
}

constexpr const char* tunables[] = {"tile_m", "tile_n", "levels"};
constexpr HeadAlgorithm algorithm{tunables, {}, "descending", "no", forward_head, backward_by_key_tiles};

constexpr flashproof_kernel kernel = cpu_kernel<algorithm>("cpu_flash3", "tile_m=1:256:1 tile_n=1:256:1 levels=1,2");

}  // namespace

const flashproof_kernel* cpu_flash3_kernel() { return &kernel; }

}  // namespace flashproof
