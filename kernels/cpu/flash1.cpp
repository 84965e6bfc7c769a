// cpu:flash1: FlashAttention 1 (reference/flash1.h), KV outer loop, O normalised at each tile, in fp32 arithmetic.
#include "reference/flash1.h"

#include "kernels/builtin.h"
#include "kernels/cpu/cpu_kernel.h"

namespace flashproof {
namespace {

HeadOutputs<float> forward_head(const RoundedOps& ops, const Head<float>& head, const CpuTiles& config) {
  return flash1_forward(ops, head, {config.tile_m, config.tile_n});
}

void backward_head(const RoundedOps& ops, const Head<float>& head, const CpuTiles& config,
                   const HeadOutputs<float>& stored, HeadGradients<float>& out) {
  flash1_backward(ops, head, {config.tile_m, config.tile_n}, stored.o, stored.l, out);
}

constexpr const char* tunables[] = {"tile_m", "tile_n"};
// Each tile's P V is summed from zero before it joins O. A hidden tile makes (l O) / l of O, which rounds.
constexpr HeadAlgorithm algorithm{tunables,     {.levels = 2}, "ascending", "each-tile",
                                  forward_head, backward_head, false};

constexpr flashproof_kernel kernel = cpu_kernel<algorithm>("cpu_flash1", "tile_m=1:256:1 tile_n=1:256:1");

}  // namespace

const flashproof_kernel* cpu_flash1_kernel() { return &kernel; }

}  // namespace flashproof
