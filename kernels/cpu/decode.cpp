// cpu:decode: FlashDecoding (reference/flash_decoding.h), split KV and combine; its backward is FlashAttention 2's.
#include "reference/flash_decoding.h"

#include "kernels/builtin.h"
#include "kernels/cpu/cpu_kernel.h"

namespace flashproof {
namespace {

HeadOutputs<float> forward_head(const RoundedOps& ops, const Head<float>& head, const CpuTiles& config) {
  return flash_decoding_forward(ops, head, {config.tile_m, config.tile_n}, config.splits);
}

constexpr const char* tunables[] = {"tile_m", "tile_n", "splits"};
constexpr HeadAlgorithm algorithm{tunables, {.splits = 4}, "ascending", "no", forward_head, backward_by_key_tiles};

constexpr flashproof_kernel kernel = cpu_kernel<algorithm>("cpu_decode", "tile_m=1:256:1 tile_n=1:256:1 splits=1:64:1");

}  // namespace

const flashproof_kernel* cpu_decode_kernel() { return &kernel; }

}  // namespace flashproof
