/* A plug-in that fails when it is asked what it supports or computes with, and in nothing else: it takes no problem. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "kernels/flashproof_kernel.h"

static int is(const char* config, const char* word) { return strcmp(config, word) == 0; }

static flashproof_status supports(const flashproof_problem* p, const char* config, char* message, size_t size) {
  (void)p;
  if (is(config, "fault=1")) raise(SIGFPE);
  if (is(config, "fault=2") || is(config, "fault=3")) return FLASHPROOF_OK;
  snprintf(message, size, "not today");
  return FLASHPROOF_REJECTED;
}

static const char* arithmetic(const flashproof_problem* p, const char* config) {
  (void)p;
  if (is(config, "fault=2")) raise(SIGFPE);
  return is(config, "fault=3") ? "tile=huge" : "";
}

static flashproof_status forward(const flashproof_call* c, const char* config, void* stream, char* message,
                                 size_t size) {
  (void)c, (void)config, (void)stream, (void)message, (void)size;
  return FLASHPROOF_ERROR;
}

static const flashproof_kernel kernel = {
    .struct_size = sizeof(flashproof_kernel),
    .abi = FLASHPROOF_ABI,
    .name = "describes_badly",
    .version = "1",
    .conventions = FLASHPROOF_DEFAULT_CONVENTIONS,
    .tunables = "fault=1,2,3",
    .arithmetic = arithmetic,
    .supports = supports,
    .forward = forward,
};

const flashproof_kernel* flashproof_kernel_entry(uint32_t abi) { return abi == FLASHPROOF_ABI ? &kernel : NULL; }
