// A tile of a matrix product, C[o][n] += sum_x A[o][x] B[x][n], by one thread block in fp32.
//
// Each element is one chain of fmas, x ascending, whatever the shapes: the order that `scores=fp32 values=fp32
// levels=1` of reference/arithmetic.h declares. The block copies panels of 32 x into shared memory; each of its 256
// threads owns 4 x 4 elements of the 64 x 64 tile.
//
// A may hold weights of an attention matrix. A weight that the mask hides adds nothing, also where B is NaN or
// infinite, which a product with 0 would spread; it is marked by a NaN that no instruction produces.
#pragma once
#include "kernels/ptx.cuh"

namespace flashproof::gpu {

constexpr int tile_size = 64;    // rows and columns of a block's tile
constexpr int thread_size = 4;   // rows and columns of a thread's part of it
constexpr int panel_depth = 32;  // x in shared memory at a time
constexpr int tile_threads = (tile_size / thread_size) * (tile_size / thread_size);

/// Results of fp32 instructions that are NaN have the bits 0x7fffffff (PTX ISA, add and fma), never these.
constexpr uint32 hidden_bits = 0xffffffffu;
__device__ inline float hidden_weight() { return __uint_as_float(hidden_bits); }
__device__ inline bool is_hidden(float weight) { return __float_as_uint(weight) == hidden_bits; }

/// One index of an operand: elements `stride` apart; or in pages of page_size, the numbers of which stand in `pages`, a
/// page beginning page_stride after the one before it in memory.
struct Axis {
  int64 count, stride;
  const int32* pages = nullptr;
  int64 page_size = 0, page_stride = 0;

  /// `paged` may be false only without pages.
  template <bool paged>
  __device__ int64 offset(int64 n) const {
    if (!paged || pages == nullptr) return n * stride;
    return pages[n / page_size] * page_stride + n % page_size * stride;
  }
};

/// A matrix in global memory as a product reads it: element (o, x), x the index that is summed over; past either count
/// it reads as `outside`, and nothing is read.
template <class Element>
struct Operand {
  const Element* data;
  Axis outer, inner;
  float outside = 0;

  __device__ bool is_paged() const { return outer.pages != nullptr || inner.pages != nullptr; }
  template <bool paged>
  __device__ float at(int64 o, int64 x) const {
    if (o >= outer.count || x >= inner.count) return outside;
    return to_fp32(data[outer.template offset<paged>(o) + inner.template offset<paged>(x)]);
  }
};

/// Columns of a panel are contiguous and padded by one 16-byte access, against bank conflicts.
struct Panel {
  alignas(16) float element[panel_depth][tile_size + 4];
};
struct ProductMemory {
  Panel a, b;
};

struct ThreadTile {
  float sum[thread_size][thread_size] = {};
};

/// Row and column of the calling thread's first element in the block's tile.
__device__ inline int thread_row() { return int(threadIdx.x) / (tile_size / thread_size) * thread_size; }
__device__ inline int thread_column() { return int(threadIdx.x) % (tile_size / thread_size) * thread_size; }

/// Neighbouring threads read neighbouring addresses, whichever index is contiguous. A thread has no registers for
/// several paged addresses at a time, each of which takes a division.
template <bool paged, class Element>
__device__ void copy_panel(Panel& panel, const Operand<Element>& from, int64 first_o, int64 first_x) {
  const bool along_x = from.inner.stride == 1;
#pragma unroll(paged ? 1 : 4)
  for (int n = int(threadIdx.x); n < panel_depth * tile_size; n += tile_threads) {
    const int x = along_x ? n % panel_depth : n / tile_size;
    const int o = along_x ? n / panel_depth : n % tile_size;
    panel.element[x][o] = from.template at<paged>(first_o + o, first_x + x);
  }
}

template <class Element>
__device__ void load_panel(Panel& panel, const Operand<Element>& from, int64 first_o, int64 first_x) {
  if (from.is_paged())
    copy_panel<true>(panel, from, first_o, first_x);
  else
    copy_panel<false>(panel, from, first_o, first_x);
}

/// Adds A B to the tile at (row, column); `weights`: A holds weights, of which hidden ones are passed over. All threads
/// of the block call it.
template <bool weights, class ElementA, class ElementB>
__device__ void multiply_tile(ThreadTile& tile, ProductMemory& memory, const Operand<ElementA>& a,
                              const Operand<ElementB>& b, int64 row, int64 column) {
  for (int64 x = 0; x < a.inner.count; x += panel_depth) {
    __syncthreads();  // the panels' last readers are done
    load_panel(memory.a, a, row, x);
    load_panel(memory.b, b, column, x);
    __syncthreads();
    for (int depth = 0; depth < panel_depth; ++depth) {
      const float4 a4 = *reinterpret_cast<const float4*>(&memory.a.element[depth][thread_row()]);
      const float4 b4 = *reinterpret_cast<const float4*>(&memory.b.element[depth][thread_column()]);
      const float a_o[] = {a4.x, a4.y, a4.z, a4.w}, b_n[] = {b4.x, b4.y, b4.z, b4.w};
#pragma unroll
      for (int o = 0; o < thread_size; ++o) {
        if (weights && is_hidden(a_o[o])) continue;
#pragma unroll
        for (int n = 0; n < thread_size; ++n) tile.sum[o][n] = __fmaf_rn(a_o[o], b_n[n], tile.sum[o][n]);
      }
    }
  }
}

}  // namespace flashproof::gpu
