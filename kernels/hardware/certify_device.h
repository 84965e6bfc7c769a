// What the parts of `certify` share: the chip, the wait for a kernel, and the tally of a comparison.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/hardware/certify.h"
#include "kernels/hardware/device_array.h"
#include "kernels/hardware/tensor_core.h"

namespace flashproof::certify_device {

using Progress = std::function<void(const std::string&)>;

struct Chip {
  Architecture architecture;
  int multiprocessors;
  bool has_fp8, has_wgmma;                    ///< in the machine code or PTX of this program that the device runs
  std::string assembler, run_time_assembler;  ///< as in Certificate
};

/// Waits for the kernel launched last.
inline void finish(const std::string& what) {
  require_cuda(cudaGetLastError(), "certify: " + what);
  require_cuda(cudaDeviceSynchronize(), "certify: " + what);
}

/// Mismatches, and the least input at which one was seen, as its complement: 0 before there is one.
struct Tally {
  unsigned long long mismatches = 0, first_complement = 0;
};
__device__ inline void count_mismatch(Tally* tally, uint64 input) {
  atomicAdd(&tally->mismatches, 1ull);
  atomicMax(&tally->first_complement, ~input);
}

std::string hexadecimal(uint32 bits);  ///< 0x0000002a

/// certify_unary.cu: functions of one number over all 2^32 inputs; arithmetic that must be IEEE 754's.
std::vector<ModelCheck> check_unary(const Chip&, const Progress&);
std::vector<ModelCheck> check_arithmetic(const Chip&, const Progress&);
/// certify_matrix.cu: matrix instructions, and the other rules for those that differ; chains of fp8.
std::vector<ModelCheck> check_matrix(const Chip&, const Progress&, std::vector<Alternative>&);
std::vector<ChainPoint> run_chains(const Chip&, const Progress&);

}  // namespace flashproof::certify_device
