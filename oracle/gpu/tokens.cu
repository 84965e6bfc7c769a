// The launches of tokens.h.
#include "oracle/gpu/tokens.h"

#include "kernels/hardware/device_array.h"

namespace flashproof {
namespace {

__global__ void token_kernel(const TokenRecipe recipe, const int64 count, const int bytes, uint8_t* out) {
  for (int64 n = int64(blockIdx.x) * blockDim.x + threadIdx.x; n < count; n += int64(gridDim.x) * blockDim.x) {
    const uint32 bits = token_element(recipe, n);
    for (int byte = 0; byte < bytes; ++byte) out[n * bytes + byte] = uint8_t(bits >> 8 * byte);
  }
}

void make_tokens(const TokenPlan& plan, Tensor& tensor) {
  require_cuda(cudaSetDevice(0), "the oracle's choice of the device");
  const DeviceArray<ElementContext> contexts(plan.contexts);
  const DeviceArray<TokenPlace> tokens(plan.tokens);
  const DeviceArray<int64> heads(plan.heads), channels(plan.channels);
  const DeviceArray<uint8_t> out(tensor.bytes.size());
  constexpr unsigned blocks = 4096, threads = 256;
  token_kernel<<<blocks, threads>>>({plan.recipe, plan.operand, int64(plan.heads.size()), int64(plan.channels.size()),
                                     contexts.data(), tokens.data(), heads.data(), channels.data()},
                                    tensor.size(), format_of(tensor.dtype).bits / 8, out.data());
  require_cuda(cudaGetLastError(), "the oracle's launch");
  out.read(tensor.bytes);
}

}  // namespace

TokenMaker tokens_by_gpu() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess) return cudaGetLastError(), TokenMaker{};  // takes the error back
  if (devices == 0) return {};
  return make_tokens;
}

}  // namespace flashproof
