// cpu:standard: materialised scores, P normalised before P V (reference/standard.h), in fp32 arithmetic.
#include "reference/standard.h"

#include <algorithm>

#include "kernels/builtin.h"
#include "kernels/cpu/cpu_kernel.h"

namespace flashproof {
namespace {

HeadOutputs<float> forward_head(const RoundedOps& ops, const Head<float>& head, const TileConfig&) {
  return standard_forward(ops, head);
}

void backward_head(const RoundedOps& ops, const Head<float>& head, const TileConfig&, const HeadOutputs<float>& stored,
                   HeadGradients<float>& out) {
  standard_backward(ops, head, stored.o, stored.l, out);
}

std::string arithmetic_text(const flashproof_problem& problem, const TileConfig&) {
  const std::string dtype = dtype_name(problem.dtype);
  // The whole row is one tile.
  return "tile=" + std::to_string(std::max<int64_t>(problem.max_seq_q, 1)) + "x" +
         std::to_string(std::max<int64_t>(problem.max_seq_k, 1)) +
         " order=ascending scores=fp32 values=fp32 levels=1 exp=expf arg=sub tanh=accurate s=fp32 prescaled=no p=" +
         dtype + " normalized=yes rowsum=1 splits=1 division=ieee ds=" + dtype + " d=rounded";
}

constexpr HeadAlgorithm algorithm{{}, forward_head, backward_head, arithmetic_text};

constexpr flashproof_kernel kernel = cpu_kernel<algorithm>("cpu_standard", "");

}  // namespace

const flashproof_kernel* cpu_standard_kernel() { return &kernel; }

}  // namespace flashproof
