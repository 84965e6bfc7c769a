// The table of the kernels by name.
#include "kernels/builtin.h"

namespace flashproof {

BuiltinKernels builtin_kernel_table() {
  static constexpr BuiltinKernel kernels[] = {
      {"cpu:standard", cpu_standard_kernel},      {"cpu:flash1", cpu_flash1_kernel},
      {"cpu:flash2", cpu_flash2_kernel},          {"cpu:flash3", cpu_flash3_kernel},
      {"cpu:decode", cpu_decode_kernel},          {"sim:flash2", sim_flash2_kernel},
#ifdef FLASHPROOF_HAVE_CUDA
      {gpu_kernel_names[0], gpu_standard_kernel}, {gpu_kernel_names[1], gpu_flash2_kernel, gpu_flash2_assembler},
#endif
  };
  return {kernels, int(sizeof kernels / sizeof kernels[0])};
}

}  // namespace flashproof
