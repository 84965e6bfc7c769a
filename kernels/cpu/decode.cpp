// cpu:decode: FlashDecoding (reference/flash_decoding.h), split KV and combine; its backward is FlashAttention 2's.
#include "reference/flash_decoding.h"

#include "kernels/builtin.h"
#include "kernels/cpu/cpu_kernel.h"

namespace flashproof {
namespace {

HeadOutputs<float> forward_head(const RoundedOps& ops, const Head<float>& head, const TileConfig& config) {
  return flash_decoding_forward(ops, head, {config.tile_m, config.tile_n}, config.splits);
}

void backward_head(const RoundedOps& ops, const Head<float>& head, const TileConfig& config,
                   const HeadOutputs<float>& stored, HeadGradients<float>& out) {
  flash2_backward(ops, head, {config.tile_m, config.tile_n}, stored.o, stored.l, out);
}

std::string arithmetic_text(const flashproof_problem& problem, const TileConfig& config) {
  const std::string dtype = dtype_name(problem.dtype);
  return "tile=" + std::to_string(config.tile_m) + "x" + std::to_string(config.tile_n) +
         " order=ascending scores=fp32 values=fp32 levels=1 exp=expf arg=sub tanh=accurate s=fp32 prescaled=no p=" +
         dtype + " normalized=no rowsum=1 splits=" + std::to_string(config.splits) + " division=ieee ds=" + dtype +
         " d=rounded";
}

constexpr const char* tunables[] = {"tile_m", "tile_n", "splits"};
constexpr HeadAlgorithm algorithm{tunables, forward_head, backward_head, arithmetic_text};

constexpr flashproof_kernel kernel = cpu_kernel<algorithm>("cpu_decode", "tile_m=1:256:1 tile_n=1:256:1 splits=1:64:1");

}  // namespace

const flashproof_kernel* cpu_decode_kernel() { return &kernel; }

}  // namespace flashproof
