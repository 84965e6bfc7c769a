/* A plug-in that fails in one way while the file FLASHPROOF_TEST_TOGGLE is not there, makes it, and then fails in
 * another. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "kernels/flashproof_kernel.h"

static flashproof_status supports(const flashproof_problem* p, const char* config, char* message, size_t size) {
  (void)p, (void)config, (void)message, (void)size;
  return FLASHPROOF_OK;
}

static flashproof_status forward(const flashproof_call* c, const char* config, void* stream, char* message,
                                 size_t size) {
  (void)c, (void)config, (void)stream;
  const char* toggle = getenv("FLASHPROOF_TEST_TOGGLE");
  if (access(toggle, F_OK) == 0) return FLASHPROOF_OK; /* nothing written */
  FILE* file = fopen(toggle, "w");
  if (file) fclose(file);
  snprintf(message, size, "this once");
  return FLASHPROOF_ERROR;
}

static const flashproof_kernel kernel = {
    .struct_size = sizeof(flashproof_kernel),
    .abi = FLASHPROOF_ABI,
    .name = "flaky",
    .version = "1",
    .conventions = FLASHPROOF_DEFAULT_CONVENTIONS,
    .supports = supports,
    .forward = forward,
};

const flashproof_kernel* flashproof_kernel_entry(uint32_t abi) { return abi == FLASHPROOF_ABI ? &kernel : NULL; }
