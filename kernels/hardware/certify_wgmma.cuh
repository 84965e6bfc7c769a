// wgmma (PTX ISA 8.0, "wgmma.mma_async") on batches of operands in memory, for `certify`: m64n8k16 and m64n8k32, B and,
// by the last parameter, A in shared memory. In machine code for sm_90a alone; elsewhere run() does nothing.
#pragma once
#include "kernels/hardware/certify_mma.cuh"

namespace flashproof::certify_device {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
template <class A, class B, bool shared_a>
__device__ void wgmma(float (&c)[4], const uint32 (&a)[4], uint64 a_matrix, uint64 b_matrix);

#define FLASHPROOF_WGMMA(A, B, types, transpose_a, transpose_b)                                                  \
  template <>                                                                                                    \
  FLASHPROOF_DEVICE void wgmma<A, B, false>(float(&c)[4], const uint32(&a)[4], uint64, uint64 b_matrix) {        \
    asm volatile("wgmma.mma_async.sync.aligned.m64n8" types                                                      \
                 " {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, 1, 1, 1" transpose_b ";"                              \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                                \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b_matrix));                                   \
  }                                                                                                              \
  template <>                                                                                                    \
  FLASHPROOF_DEVICE void wgmma<A, B, true>(float(&c)[4], const uint32(&)[4], uint64 a_matrix, uint64 b_matrix) { \
    asm volatile("wgmma.mma_async.sync.aligned.m64n8" types                                                      \
                 " {%0, %1, %2, %3}, %4, %5, 1, 1, 1" transpose_a transpose_b ";"                                \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                                \
                 : "l"(a_matrix), "l"(b_matrix));                                                                \
  }
FLASHPROOF_WGMMA(Bf16, Bf16, "k16.f32.bf16.bf16", ", 0", ", 0")
FLASHPROOF_WGMMA(Fp16, Fp16, "k16.f32.f16.f16", ", 0", ", 0")
FLASHPROOF_WGMMA(E4m3, E4m3, "k32.f32.e4m3.e4m3", "", "")
FLASHPROOF_WGMMA(E4m3, E5m2, "k32.f32.e4m3.e5m2", "", "")
FLASHPROOF_WGMMA(E5m2, E4m3, "k32.f32.e5m2.e4m3", "", "")
FLASHPROOF_WGMMA(E5m2, E5m2, "k32.f32.e5m2.e5m2", "", "")
#undef FLASHPROOF_WGMMA

/// Descriptor of a matrix without swizzle, k contiguous: its two halves in k 128 bytes apart, groups of 8 lines 256
/// bytes.
FLASHPROOF_DEVICE uint64 matrix_descriptor(const void* cores) {
  const uint64 address = __cvta_generic_to_shared(cores);
  return (address & 0x3ffff) >> 4 | uint64(128 >> 4) << 16 | uint64(256 >> 4) << 32;
}
#endif

template <class A, class B, bool shared_a>
struct Wgmma {
  using FormatA = A;
  using FormatB = B;
  static constexpr MatrixInstruction instruction = MatrixInstruction::wgmma;
  static constexpr int rows = 64, threads = 128, products = is_fp8(A::dtype) ? 32 : 16;
  static constexpr int place = shared_a ? 1 : 0;  ///< of the operands, among matrix_models()

  FLASHPROOF_DEVICE static void run(float (&c)[4], const uint32* rows_of_a, const uint32* columns_of_b) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    // 8 lines of 16 bytes lie together; the halves of a line in k follow each other.
    __shared__ alignas(128) uint32 a_cores[rows / 8][2][8][4], b_cores[2][8][4];
    const int thread = thread_index();
    block_barrier();
    for (int n = thread; n < rows * 8; n += threads)
      a_cores[n / 64][n % 8 / 4][n / 8 % 8][n % 4] = word_of<products>(rows_of_a + n / 8 * products, n % 8);
    for (int n = thread; n < columns * 8; n += threads)
      b_cores[n % 8 / 4][n / 8][n % 4] = word_of<products>(columns_of_b + n / 8 * products, n % 8);
    uint32 a[4];
    take_rows<products>(a, rows_of_a + thread / 32 * 16 * products, thread % 32 / 4, thread % 4);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    block_barrier();
    // The registers are operands of what comes before and after, so that nothing touches them while the product runs.
    asm volatile("wgmma.fence.sync.aligned;"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+r"(a[0]), "+r"(a[1]), "+r"(a[2]), "+r"(a[3])
                 :
                 : "memory");
    wgmma<A, B, shared_a>(c, a, matrix_descriptor(a_cores), matrix_descriptor(b_cores));
    asm volatile("wgmma.commit_group.sync.aligned;\n\twgmma.wait_group.sync.aligned 0;"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 :
                 : "memory");
#endif
  }
};

}  // namespace flashproof::certify_device
