// The entry point of a CPU kernel built as a plug-in. FLASHPROOF_PLUGIN_KERNEL names the kernel, e.g. cpu_flash2_kernel.
#include "kernels/builtin.h"

extern "C" const flashproof_kernel* flashproof_kernel_entry(uint32_t abi) {
  return abi == FLASHPROOF_ABI ? flashproof::FLASHPROOF_PLUGIN_KERNEL() : nullptr;
}
