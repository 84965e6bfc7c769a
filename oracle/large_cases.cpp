// The choice between host and GPU, and their comparison; see large_cases.h.
#include "oracle/large_cases.h"

#include <optional>

#include "oracle/bits.h"
#include "oracle/gpu/prediction.h"
#include "oracle/gpu/tokens.h"
#include "oracle/verdict.h"
#include "reference/errors.h"

namespace flashproof {
namespace {

/// The first element in which the tensors differ: its index; -1 if none.
int64_t first_difference(const Tensor& a, const Tensor& b) {
  if (a.bytes == b.bytes) return -1;
  int64_t index = 0;
  while (a.bits(index) == b.bits(index)) ++index;
  return index;
}

std::string difference_of_inputs(const Inputs& gpu, const Inputs& host) {
  const struct {
    const char* name;
    const Tensor &gpu, &host;
  } tensors[] = {{"q", gpu.q, host.q}, {"k", gpu.k, host.k}, {"v", gpu.v, host.v}, {"dO", gpu.d_o, host.d_o}};
  for (const auto& [name, of_gpu, of_host] : tensors)
    if (const int64_t index = first_difference(of_gpu, of_host); index >= 0)
      return std::string("element ") + std::to_string(index) + " of " + name + " is made as " +
             bits_text(of_gpu, index) + " by the GPU, as " + bits_text(of_host, index) + " by the host";
  return "";
}

std::string difference_of_outputs(const Problem& p, const Outputs& gpu, const Outputs& host) {
  for (const OutputId id : {OutputId::o, OutputId::lse}) {
    const Tensor &of_gpu = tensor_of(gpu, id), &of_host = tensor_of(host, id);
    if (const int64_t index = first_difference(of_gpu, of_host); index >= 0)
      return print(locate(p, id, index)) + " is predicted as " + bits_text(of_gpu, index) + " by the GPU, as " +
             bits_text(of_host, index) + " by the host";
  }
  return "";
}

/// Nothing where the GPU is not for this case.
std::optional<CasePrediction> predict_by_gpu(const Case& c, const Arithmetic& a, const GpuOracle& gpu) {
  if (products_of(c.problem) < least_products_for_gpu || !gpu.lacks(c.problem, a).empty()) return {};
  CasePrediction prediction;
  prediction.on_gpu = true;
  try {
    prediction.in = gpu.inputs(c);
    prediction.outputs = gpu.predict(prediction.in, a);
  } catch (const UnavailableError&) {
    return {};
  }
  return prediction;
}

}  // namespace

const GpuOracle cuda_oracle = {gpu_lacks, [](const Case& c) { return make_inputs(c, tokens_by_gpu()); },
                               predict_on_gpu};

double products_of(const Problem& p) {
  double pairs = 0;
  for (int64_t b = 0; b < p.batch; ++b) pairs += double(used_length(p.q, b)) * double(used_length(p.k, b));
  return pairs * double(p.heads) * double(p.head_dim + p.value_dim);
}

bool is_predicted_twice(const Case& c) { return std::stoull(case_id(c), nullptr, 16) % 100 == 0; }

CasePrediction predict_case(const Case& c, const Arithmetic& a, const GpuOracle& gpu) {
  std::optional<CasePrediction> by_gpu = predict_by_gpu(c, a, gpu);
  if (by_gpu && !is_predicted_twice(c)) return *by_gpu;
  CasePrediction prediction;
  prediction.in = make_inputs(c);
  prediction.outputs = predict(prediction.in, a);
  if (!by_gpu) return prediction;
  prediction.on_gpu = prediction.compared = true;
  prediction.difference = difference_of_inputs(by_gpu->in, prediction.in);
  if (prediction.difference.empty())
    prediction.difference = difference_of_outputs(c.problem, by_gpu->outputs, prediction.outputs);
  return prediction;
}

}  // namespace flashproof
