// The kernels that are linked into the program; each is described in its own file.
#pragma once
#include <string>

#include "kernels/flashproof_kernel.h"

namespace flashproof {

const flashproof_kernel* cpu_standard_kernel();  ///< kernels/cpu/standard.cpp: materialised scores
const flashproof_kernel* cpu_flash1_kernel();    ///< kernels/cpu/flash1.cpp: FlashAttention 1
const flashproof_kernel* cpu_flash2_kernel();    ///< kernels/cpu/flash2.cpp: FlashAttention 2
const flashproof_kernel* cpu_flash3_kernel();    ///< kernels/cpu/flash3.cpp: FlashAttention 3
const flashproof_kernel* cpu_decode_kernel();    ///< kernels/cpu/decode.cpp: FlashDecoding, split KV and combine
const flashproof_kernel* sim_flash2_kernel();    ///< kernels/simulator/flash2.cpp: gpu:flash2 without a GPU
#ifdef FLASHPROOF_HAVE_CUDA
const flashproof_kernel* gpu_standard_kernel();  ///< kernels/standard.cu: materialised scores
const flashproof_kernel* gpu_flash2_kernel();    ///< kernels/flash2.cu: FlashAttention 2 forward for the tensor core
std::string gpu_flash2_assembler(const flashproof_problem*, const char* config);
#endif

/// The names of the GPU's, which a build without CUDA lacks.
constexpr const char* gpu_kernel_names[] = {"gpu:standard", "gpu:flash2"};

/// All of them with their names ("cpu:flash2"); the GPU's follow where the build has CUDA.
struct BuiltinKernel {
  const char* name;
  const flashproof_kernel* (*kernel)();
  /// Who made the machine code that carries the problem out (kernels/assembler.h); nullptr where no matrix instruction
  /// is in it, or the host runs it.
  std::string (*assembler)(const flashproof_problem*, const char* config) = nullptr;
};
struct BuiltinKernels {
  const BuiltinKernel* first;
  int count;
};
BuiltinKernels builtin_kernel_table();

}  // namespace flashproof
