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

const char* arithmetic(const flashproof_problem* problem, const char* config) {
  return cpu_arithmetic(algorithm, problem, config);
}

flashproof_status supports(const flashproof_problem* problem, const char* config, char* message, size_t size) {
  return cpu_supports(algorithm, problem, config, message, size);
}

flashproof_status forward(const flashproof_call* call, const char* config, void*, char* message, size_t size) {
  return cpu_forward(algorithm, call, config, message, size);
}

flashproof_status backward(const flashproof_call* call, const char* config, void*, char* message, size_t size) {
  return cpu_backward(algorithm, call, config, message, size);
}

constexpr flashproof_kernel kernel = {
    .struct_size = sizeof(flashproof_kernel),
    .abi = FLASHPROOF_ABI,
    .name = "cpu_standard",
    .version = "1",
    .memory = FLASHPROOF_HOST,
    .dtypes = cpu_dtypes,
    .features = cpu_features,
    .max_head_dim = 0,
    .head_dim_multiple = 1,
    .conventions = FLASHPROOF_DEFAULT_CONVENTIONS,
    .tunables = "",
    .arithmetic = arithmetic,
    .supports = supports,
    .workspace_size = nullptr,
    .forward = forward,
    .backward = backward,
};

}  // namespace

const flashproof_kernel* cpu_standard_kernel() { return &kernel; }

}  // namespace flashproof
