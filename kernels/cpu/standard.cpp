// cpu:standard: materialised scores, P normalised before P V (reference/standard.h), in fp32 arithmetic.
#include "reference/standard.h"

#include "kernels/builtin.h"
#include "kernels/cpu/cpu_kernel.h"

namespace flashproof {
namespace {

HeadOutputs<float> forward_head(const RoundedOps& ops, const Head<float>& head, const CpuTiles&) {
  return standard_forward(ops, head);
}

void backward_head(const RoundedOps& ops, const Head<float>& head, const CpuTiles&, const HeadOutputs<float>& stored,
                   HeadGradients<float>& out) {
  standard_backward(ops, head, stored.o, stored.l, out);
}

constexpr HeadAlgorithm algorithm{{}, {.tile_m = 0, .tile_n = 0}, "ascending", "yes", forward_head, backward_head};

constexpr flashproof_kernel kernel = cpu_kernel<algorithm>("cpu_standard", "");

}  // namespace

const flashproof_kernel* cpu_standard_kernel() { return &kernel; }

}  // namespace flashproof
