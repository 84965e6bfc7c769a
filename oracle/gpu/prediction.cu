// The groups of rows on the first CUDA device, a block each; see prediction.h.
#pragma nv_diag_suppress 554  // a View of constants converts to itself (reference/tile_ops.h)
#include "kernels/hardware/device_array.h"
#include "oracle/bits.h"
#include "oracle/gpu/prediction.h"

namespace flashproof {
namespace {

constexpr int block_threads = 256, blocks_a_multiprocessor = 2, decode_blocks = 1024;

/// All threads decode the operands of one head after the other.
__global__ void decode_kernel(const PredictionShape shape, const HeadTask* heads, const int count, const int group) {
  const Team team{int(blockIdx.x * blockDim.x + threadIdx.x), int(gridDim.x * blockDim.x)};
  for (int n = 0; n < count; ++n) {
    const HeadTask head = heads[n];
    decode_queries(shape, head, team);
    if (n % group != 0) continue;
    decode_keys(shape, head, team);
    decode_values(shape, head, team);
  }
}

/// Block n is group n mod `groups` of head n / groups.
__global__ void __launch_bounds__(block_threads, blocks_a_multiprocessor)
    predict_kernel(const PredictionShape shape, const HeadTask* heads, const int64 groups) {
  extern __shared__ uint64 memory[];
  const HeadTask head = heads[blockIdx.x / groups];
  const Span rows = rows_of_group(shape, head.rule.seq_q, blockIdx.x % groups);
  if (rows.begin >= rows.end) return;
  predict_group(shape, head, rows, group_state_at(memory, shape.tile_n, shape.value_dim),
                Team{int(threadIdx.x), int(blockDim.x)});
}

/// Bytes of shared memory that a block may ask for, which become the kernel's limit, or 0 with the reason why no device
/// runs it. The limit is one for all threads of the host: set before a launch, it could be another's by then.
int64_t shared_bytes_of_device(std::string& reason) {
  int bytes = 0;
  cudaError_t error = cudaSetDevice(0);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0);
  if (error == cudaSuccess)
    error = cudaFuncSetAttribute(predict_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error == cudaSuccess) return bytes;
  cudaGetLastError();  // takes the error back
  reason = std::string("no GPU: ") + cudaGetErrorString(error);
  return 0;
}

}  // namespace

std::string gpu_lacks(const Problem& p, const Arithmetic& a) {
  static std::string reason;
  static const int64_t bytes = shared_bytes_of_device(reason);
  if (!reason.empty()) return reason;
  const int64_t needed = group_state_bytes(a.tile_n, p.value_dim);
  if (needed <= bytes) return "";
  return "a group of rows takes " + std::to_string(needed) + " bytes of shared memory, the GPU's blocks have " +
         std::to_string(bytes);
}

Outputs predict_on_gpu(const Inputs& in, const Arithmetic& a) {
  const Problem& p = in.problem;
  if (const std::string reason = unpredictable(p, a); !reason.empty()) throw std::invalid_argument(reason);
  if (const std::string reason = gpu_lacks(p, a); !reason.empty()) throw UnavailableError(reason);
  require_cuda(cudaSetDevice(0), "the oracle's choice of the device");
  const PredictionShape shape = prediction_shape(p, a);
  const OperandCounts counts = operand_counts(in, shape);
  const DeviceArray<uint8_t> q(in.q.bytes), k(in.k.bytes), v(in.v.bytes), bias(in.bias.bytes);
  const DeviceArray<DecodedOperand> decoded_q(counts.q), decoded_k(counts.k), decoded_v(counts.v);
  const size_t rows = in.packing.total_q() * p.heads;
  const DeviceArray<uint32> o(rows * p.value_dim), lse(rows);
  const DeviceArray<HeadTask> heads(head_tasks(in, a,
                                               {q.data(), k.data(), v.data(), bias.data(), decoded_q.data(),
                                                decoded_k.data(), decoded_v.data(), o.data(), lse.data()}));
  decode_kernel<<<decode_blocks, block_threads>>>(shape, heads.data(), int(p.batch * p.heads),
                                                  int(p.heads / p.kv_heads));
  require_cuda(cudaGetLastError(), "the oracle's launch");
  const int64_t groups = groups_of_head(shape, max_used_length(p.q, p.batch)), blocks = groups * p.batch * p.heads;
  const int64_t bytes = group_state_bytes(shape.tile_n, shape.value_dim);
  if (blocks > 0) predict_kernel<<<unsigned(blocks), block_threads, size_t(bytes)>>>(shape, heads.data(), groups);
  require_cuda(cudaGetLastError(), "the oracle's launch");
  std::vector<uint32> o_bits, lse_bits;
  o.read(o_bits);
  lse.read(lse_bits);
  return outputs_of_bits(p, o_bits, lse_bits);
}

}  // namespace flashproof
