/* A plug-in that answers zeros and, as its config says, does one thing wrong. Dense problems, with seqused and any
 * strides. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/flashproof_kernel.h"

static size_t element_size(const flashproof_tensor* t) { return t->dtype == FLASHPROOF_FP32 ? 4 : 2; }

static char* row_of(const flashproof_tensor* t, int64_t b, int64_t i, int64_t h) {
  return (char*)t->data + (b * t->stride[0] + i * t->stride[1] + h * t->stride[2]) * (int64_t)element_size(t);
}

/* Zeros in every element of a used row. */
static void answer(const flashproof_tensor* t, const flashproof_integers* used) {
  for (int64_t b = 0; b < t->shape[0]; ++b)
    for (int64_t i = 0; i < (used->host ? used->host[b] : t->shape[1]); ++i)
      for (int64_t h = 0; h < t->shape[2]; ++h) memset(row_of(t, b, i, h), 0, t->shape[3] * element_size(t));
}

static void answer_lse(const flashproof_tensor* t, const flashproof_integers* used) {
  for (int64_t b = 0; b < t->shape[0]; ++b)
    for (int64_t h = 0; h < t->shape[1]; ++h)
      for (int64_t i = 0; i < (used->host ? used->host[b] : t->shape[2]); ++i)
        ((float*)t->data)[b * t->stride[0] + h * t->stride[1] + i] = 0;
}

static int is(const char* config, const char* word) { return strcmp(config, word) == 0; }

static flashproof_status supports(const flashproof_problem* p, const char* config, char* message, size_t size) {
  (void)p;
  if (is(config, "leave_in_supports")) exit(0);
  if (is(config, "crash_in_supports")) raise(SIGFPE);
  if (!is(config, "reject")) return FLASHPROOF_OK;
  snprintf(message, size, "not today");
  return FLASHPROOF_REJECTED;
}

static size_t workspace_size(const flashproof_problem* p, const char* config) {
  (void)p;
  return is(config, "absurd_workspace") ? SIZE_MAX / 2 : 100;
}

static void hang(void) {
  for (;;) pause();
}

/* Leaks all memory there is; returns how many MiB. */
static int take_memory(void) {
  int blocks = 0;
  for (volatile char* block; (block = malloc(1 << 20)) != NULL; ++blocks)
    for (int at = 0; at < 1 << 20; at += 4096) block[at] = 1;
  return blocks;
}

static int calls;

static flashproof_status forward(const flashproof_call* c, const char* config, void* stream, char* message,
                                 size_t size) {
  (void)stream;
  const size_t width = element_size(&c->o);
  char* o = c->o.data;
  const int64_t last = c->o.shape[1] - 1; /* last position of the slot */
  answer(&c->o, &c->seqused_q);
  answer_lse(&c->lse, &c->seqused_q);
  if (is(config, "counts_calls")) memset(o, ++calls & 0x3f, width);
  if (is(config, "reads_workspace")) memset(o, ((unsigned char*)c->workspace)[1] & 0x3f, width);
  memset(c->workspace, 0, c->workspace_size);
  if (is(config, "crash")) raise(SIGSEGV);
  if (is(config, "last_words")) fprintf(stderr, "cannot go on\n"), abort();
  if (is(config, "leave")) exit(3);
  if (is(config, "hang")) hang();
  if (is(config, "answer_twice") && fork() == 0) usleep(100000);
  if (is(config, "past_end"))
    memset(row_of(&c->o, c->o.shape[0] - 1, last, c->o.shape[2] - 1) + c->o.stride[2] * width, 0, width);
  if (is(config, "before_start")) memset(o - 3 * width, 0, width);
  if (is(config, "workspace_past_end")) ((char*)c->workspace)[c->workspace_size] = 0;
  if (is(config, "gap")) memset(row_of(&c->o, 0, 0, 0) + c->o.shape[3] * width, 0, width);
  if (is(config, "tail")) memset(row_of(&c->o, 0, last, 0), 0, width);
  if (is(config, "input")) *row_of(&c->k, 0, 0, 0) ^= 1;
  if (is(config, "lengths")) ((int32_t*)(uintptr_t)c->seqused_q.data)[0] = 1;
  if (is(config, "chatter"))
    for (int line = 0; line < 20000; ++line) printf("line %d of what nobody asked for\n", line);
  if (is(config, "babble"))
    for (;;) printf("%65535d\n", 0);
  if (is(config, "memory")) {
    snprintf(message, size, "%d", take_memory());
    return FLASHPROOF_ERROR;
  }
  if (is(config, "error")) {
    snprintf(message, size, "tensor cores are tired");
    return FLASHPROOF_ERROR;
  }
  return is(config, "absurd_status") ? (flashproof_status)7 : FLASHPROOF_OK;
}

/* Leaves one element of O unwritten: answers all but it, whatever it holds. */
static flashproof_status forward_or_less(const flashproof_call* c, const char* config, void* stream, char* message,
                                         size_t size) {
  char* element = row_of(&c->o, 0, c->o.shape[1] - 1, 0) + (c->o.shape[3] - 1) * element_size(&c->o);
  char kept[4];
  memcpy(kept, element, element_size(&c->o));
  const flashproof_status status = forward(c, config, stream, message, size);
  if (is(config, "unwritten")) memcpy(element, kept, element_size(&c->o));
  return status;
}

static flashproof_status backward(const flashproof_call* c, const char* config, void* stream, char* message,
                                  size_t size) {
  (void)stream, (void)message, (void)size;
  answer(&c->dq, &c->seqused_q);
  answer(&c->dk, &c->seqused_k);
  if (!is(config, "unwritten_dv")) answer(&c->dv, &c->seqused_k);
  if (is(config, "input_o")) memset(row_of(&c->o, 0, 0, 0), 1, 1);
  if (is(config, "crash_in_backward")) raise(SIGFPE);
  return FLASHPROOF_OK;
}

static const flashproof_kernel kernel = {
    .struct_size = sizeof(flashproof_kernel),
    .abi = FLASHPROOF_ABI,
    .name = "faulty",
    .version = "1",
    .memory = FLASHPROOF_HOST,
    .features = FLASHPROOF_FEATURE_BACKWARD | FLASHPROOF_FEATURE_SEQUSED | FLASHPROOF_FEATURE_STRIDES,
    .max_head_dim = 64,
    .head_dim_multiple = 4,
    .dtypes = 1u << FLASHPROOF_BF16 | 1u << FLASHPROOF_FP32,
    .conventions = FLASHPROOF_DEFAULT_CONVENTIONS,
    .supports = supports,
    .workspace_size = workspace_size,
    .forward = forward_or_less,
    .backward = backward,
};

const flashproof_kernel* flashproof_kernel_entry(uint32_t abi) { return abi == FLASHPROOF_ABI ? &kernel : NULL; }
