// mma.sync on batches of operands in memory, for `certify`: as nvcc compiles it into the program, and as the compiler
// at run time does, whose assembler is another one.
#pragma once
#include "kernels/hardware/tensor_core.h"
#include "kernels/ptx.cuh"

namespace flashproof::certify_device {

constexpr int columns = 8;  ///< of B and C

/// Operands and results of a batch of instructions. A by rows and B by columns, so that fused_step reads both in order
/// of k.
struct Operands {
  int rows, products;
  uint32 *a, *b;  ///< [instruction, rows, products], [instruction, columns, products], encoded
  float *c, *d;   ///< [instruction, rows, columns]

  FLASHPROOF_DEVICE const uint32* row(uint64 n, int r) const { return a + (n * rows + r) * products; }
  FLASHPROOF_DEVICE const uint32* column(uint64 n, int k) const { return b + (n * columns + k) * products; }
};

/// Word w of 8 of a line: 4 elements of 8 bits or 2 of 16.
template <int products>
FLASHPROOF_DEVICE uint32 word_of(const uint32* line, int w) {
  if constexpr (products == 32)
    return line[4 * w] | line[4 * w + 1] << 8 | line[4 * w + 2] << 16 | line[4 * w + 3] << 24;
  else
    return line[2 * w] | line[2 * w + 1] << 16;
}

// Lane 4 g + q holds, in both kinds of instruction, words q and q + 4 of rows g and g + 8 of its warp's 16 rows of A,
// and elements 2 q, 2 q + 1 of these rows of C. run() adds A B to them, from the lines of one instruction.

template <int products>
FLASHPROOF_DEVICE void take_rows(uint32 (&a)[4], const uint32* rows, int g, int q) {
  const uint32 *upper = rows + g * products, *lower = upper + 8 * products;
  a[0] = word_of<products>(upper, q), a[1] = word_of<products>(lower, q);
  a[2] = word_of<products>(upper, q + 4), a[3] = word_of<products>(lower, q + 4);
}

template <class A, class B>
struct MmaSync {
  using FormatA = A;
  using FormatB = B;
  static constexpr MatrixInstruction instruction = MatrixInstruction::mma_sync;
  static constexpr int rows = 16, threads = 32, products = is_fp8(A::dtype) ? 32 : 16;
  static constexpr int place = 0;  ///< of the operands, among matrix_models()

  FLASHPROOF_DEVICE static void run(float (&c)[4], const uint32* rows_of_a, const uint32* columns_of_b) {
    const int g = thread_index() / 4, q = thread_index() % 4;
    uint32 a[4];
    take_rows<products>(a, rows_of_a, g, q);
    const uint32* column = columns_of_b + g * products;
    const uint32 b[2] = {word_of<products>(column, q), word_of<products>(column, q + 4)};
    if constexpr (products == 16) multiply_add_16x8x16<A, B>(c, a, b);
#if !defined(__CUDACC__) || __CUDA_ARCH__ >= 890
    if constexpr (products == 32) multiply_add_16x8x32<A, B>(c, a, b);
#endif
  }
};

/// D = A B + C, an instruction a block. A thread's outputs: rows r and r + 8, two neighbouring columns.
struct CarryOut {
  Operands operands;
  uint64 count;  ///< of instructions
};
template <class Instruction>
FLASHPROOF_DEVICE void carry_out(const CarryOut& work) {
  const Operands& s = work.operands;
  const int thread = thread_index(), row = thread / 32 * 16 + thread % 32 / 4, column = thread % 4 * 2;
  for (uint64 n = uint64(block_index(0)); n < work.count; n += uint64(block_count(0))) {
    const uint64 upper = (n * s.rows + row) * columns + column, lower = upper + 8 * columns;
    float c[4] = {s.c[upper], s.c[upper + 1], s.c[lower], s.c[lower + 1]};
    Instruction::run(c, s.row(n, 0), s.column(n, 0));
    s.d[upper] = c[0], s.d[upper + 1] = c[1], s.d[lower] = c[2], s.d[lower + 1] = c[3];
  }
}

}  // namespace flashproof::certify_device
