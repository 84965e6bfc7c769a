/* Plug-ins that cannot be used; FAULT says why. */
#include <signal.h>
#include <stdlib.h>

#include "kernels/flashproof_kernel.h"

static flashproof_status supports(const flashproof_problem* p, const char* config, char* message, size_t size) {
  (void)p, (void)config, (void)message, (void)size;
  return FLASHPROOF_OK;
}

static flashproof_status forward(const flashproof_call* c, const char* config, void* stream, char* message,
                                 size_t size) {
  (void)c, (void)config, (void)stream, (void)message, (void)size;
  return FLASHPROOF_OK;
}

enum {
  no_symbol,
  unknown_abi,
  other_abi,
  other_size,
  no_forward,
  no_supports,
  leaves,
  crashes,
  bad_arithmetic,
  bad_name,
  bad_convention
};

static const char* arithmetic(const flashproof_problem* p, const char* config) {
  (void)p, (void)config;
  return FAULT == bad_arithmetic ? "tile=huge" : "";
}

static const flashproof_kernel kernel = {
    .struct_size = sizeof(flashproof_kernel) - (FAULT == other_size ? 8 : 0),
    .abi = FLASHPROOF_ABI + (FAULT == other_abi ? 1 : 0),
    .name = FAULT == bad_name ? "un usable" : "unusable",
    .version = "1",
    .conventions = {.lse_base = FAULT == bad_convention ? FLASHPROOF_LSE_NONE + 1 : 0},
    .arithmetic = arithmetic,
    .supports = FAULT == no_supports ? NULL : supports,
    .forward = FAULT == no_forward ? NULL : forward,
};

#if FAULT == 0
#define flashproof_kernel_entry another_name
#endif
const flashproof_kernel* flashproof_kernel_entry(uint32_t abi) {
  if (FAULT == leaves) exit(0);
  if (FAULT == crashes) raise(SIGSEGV);
  return FAULT == unknown_abi || abi != FLASHPROOF_ABI ? NULL : &kernel;
}
