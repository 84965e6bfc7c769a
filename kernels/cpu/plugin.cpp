// The entry point of a CPU kernel built as a plug-in, e.g. with -DFLASHPROOF_PLUGIN_KERNEL=cpu_flash2_kernel; empty
// elsewhere.
#ifdef FLASHPROOF_PLUGIN_KERNEL
#include "kernels/builtin.h"

extern "C" const flashproof_kernel* flashproof_kernel_entry(uint32_t abi) {
  return abi == FLASHPROOF_ABI ? flashproof::FLASHPROOF_PLUGIN_KERNEL() : nullptr;
}
#endif
