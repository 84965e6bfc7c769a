// Standard attention on the GPU: scores and probabilities are whole matrices in the workspace.
//
// Forward:   S = scale Q K^T,  P = softmax(S),  O = P V,  L = m + ln l        (FlashAttention, 2205.14135, Algorithm 0)
// Backward:  P = exp(S - L),  D = rowsum(dO o O),  dS = P o (dO V^T - D),
//            dV = P^T dO,  dQ = scale dS K,  dK = scale dS^T Q                (Algorithm 3, with equation 4 for D)
//
// Arithmetic: fp32, each sum of products one chain of fmas; m and l over the row, l as 32 partial sums, key j in sum j mod 32,
// then added pairwise; P divided by l and rounded to the input format before P V; P and dS of the backward rounded too. No
// atomics: the same call gives the same bits. dK and dV sum the group's query heads in ascending order.
//
// A key that the mask hides from a row has a marked weight (tile_product.cuh), so what it holds cannot reach the row.
#include <climits>
#include <cmath>
#include <cstdio>

#include "kernels/builtin.h"
#include "kernels/tile_product.cuh"
#include "reference/visible.h"

namespace flashproof {
namespace {

constexpr int lanes = 32;
constexpr int rows_a_block = 8;     // one warp a row
constexpr int blocks_resident = 2;  // a multiprocessor; leaves a thread 128 registers, of which none spills

/// One side's sequences: dense slots, or packed ones that begin at begins[b]; of a slot the first used[b] tokens count.
struct Side {
  const int32* begins;  ///< NULL: dense
  const int32* used;    ///< NULL: all
  int64 slot;
};

/// Tokens of one entry: number `first` and on of batch index `batch` in a tensor, `row` and on of the workspace.
struct Sequence {
  int64 batch, first, row, length;
};

__device__ Sequence sequence_of(const Side& side, int64 b) {
  Sequence sequence = {b, 0, b * side.slot, side.slot};
  if (side.begins != nullptr) {
    const int64 begin = side.begins[b];
    sequence = {0, begin, begin, side.begins[b + 1] - begin};
  }
  if (side.used != nullptr) sequence.length = side.used[b];
  return sequence;
}

/// Tensor [batch, token, head, width] of Element, the last stride 1.
template <class Element>
struct Rows {
  Element* data;
  int64 batch_stride, token_stride, head_stride, width;

  __device__ Element* of(const Sequence& sequence, int64 head) const {
    return data + sequence.batch * batch_stride + sequence.first * token_stride + head * head_stride;
  }
  /// [token, channel]; a product sums over channels.
  __device__ Operand<Element> by_channel(const Sequence& sequence, int64 head) const {
    return {of(sequence, head), sequence.length, width, token_stride, 1};
  }
  /// [channel, token]; a product sums over tokens.
  __device__ Operand<Element> by_token(const Sequence& sequence, int64 head) const {
    return {of(sequence, head), width, sequence.length, 1, token_stride};
  }
};

template <class Element>
struct Attention {
  Rows<const Element> q, k, v, d_o;
  Rows<Element> o, dq, dk, dv;
  Rows<float> lse;  ///< [batch, token, head, 1]
  Side q_side, k_side;
  Mask mask;
  float scale;
  int64 batch, heads, kv_heads, total_q, pitch;
  float *weights, *ds;  ///< [heads, total_q, pitch]: S, then P; dS
  float* delta;         ///< D [heads, total_q]

  __device__ int64 kv_head(int64 head) const { return head / (heads / kv_heads); }
  __device__ float* matrix_of(float* matrix, const Sequence& q_rows, int64 head) const {
    return matrix + (head * total_q + q_rows.row) * pitch;
  }
  /// The attention matrix of a head with query rows as outer index, or with keys.
  __device__ Operand<float> by_key(float* matrix, const Sequence& q_rows, const Sequence& keys, int64 head) const {
    return {matrix_of(matrix, q_rows, head), q_rows.length, keys.length, pitch, 1, hidden_weight()};
  }
  __device__ Operand<float> by_row(float* matrix, const Sequence& q_rows, const Sequence& keys, int64 head) const {
    return {matrix_of(matrix, q_rows, head), keys.length, q_rows.length, 1, pitch, hidden_weight()};
  }
  __device__ bool sees(const Sequence& q_rows, const Sequence& keys, int64 i, int64 j) const {
    return visible(mask, q_rows.length, keys.length, i, j);
  }
};

/// Which tile of which head and entry a block works on. Blocks count along x alone, which may be 2^31 - 1 long.
struct TileGrid {
  int64 row_tiles, column_tiles, heads, batch;

  struct Place {
    int64 row, column, head, b;
  };
  __device__ Place place(int64 block) const {
    const int64 column = block % column_tiles, row = block / column_tiles % row_tiles;
    const int64 entry = block / column_tiles / row_tiles;
    return {row * tile_size, column * tile_size, entry % heads, entry / heads};
  }
  /// In double, in which no legal problem overflows.
  double blocks() const { return double(row_tiles) * double(column_tiles) * double(heads) * double(batch); }
};

/// Calls write(row, column, sum index o, n) for the elements of the calling thread that lie inside rows x columns.
template <class Write>
__device__ void each_element(const TileGrid::Place& at, int64 rows, int64 columns, Write write) {
#pragma unroll
  for (int o = 0; o < thread_size; ++o)
#pragma unroll
    for (int n = 0; n < thread_size; ++n) {
      const int64 row = at.row + thread_row() + o, column = at.column + thread_column() + n;
      if (row < rows && column < columns) write(row, column, o, n);
    }
}

/// S = scale Q K^T, marked where the row does not see the key.
template <class Element>
__global__ void __launch_bounds__(tile_threads, blocks_resident)
    score_kernel(Attention<Element> attention, TileGrid grid) {
  __shared__ ProductMemory memory;
  const TileGrid::Place at = grid.place(blockIdx.x);
  const Sequence rows = sequence_of(attention.q_side, at.b), keys = sequence_of(attention.k_side, at.b);
  if (at.row >= rows.length || at.column >= keys.length) return;
  ThreadTile tile;
  multiply_tile<false>(tile, memory, attention.q.by_channel(rows, at.head),
                       attention.k.by_channel(keys, attention.kv_head(at.head)), at.row, at.column);
  float* scores = attention.matrix_of(attention.weights, rows, at.head);
  each_element(at, rows.length, keys.length, [&](int64 i, int64 j, int o, int n) {
    scores[i * attention.pitch + j] =
        attention.sees(rows, keys, i, j) ? attention.scale * tile.sum[o][n] : hidden_weight();
  });
}

/// P and L from S, one warp a row. NaN is passed over in the maximum and comes back in every exp and in the sum.
template <class Element>
__global__ void __launch_bounds__(rows_a_block* lanes) softmax_kernel(Attention<Element> attention, int64 slot_rows) {
  const int64 index = int64(blockIdx.x) * rows_a_block + threadIdx.x / lanes, lane = threadIdx.x % lanes;
  const int64 i = index % slot_rows, head = index / slot_rows % attention.heads,
              b = index / slot_rows / attention.heads;
  if (b >= attention.batch) return;
  const Sequence rows = sequence_of(attention.q_side, b), keys = sequence_of(attention.k_side, b);
  if (i >= rows.length) return;
  float* row = attention.matrix_of(attention.weights, rows, head) + i * attention.pitch;

  float maximum = -INFINITY, sum = 0;
  for (int64 j = lane; j < keys.length; j += lanes)
    if (!is_hidden(row[j])) maximum = fmaxf(maximum, row[j]);
  for (int mask = lanes / 2; mask > 0; mask /= 2) maximum = fmaxf(maximum, lane_exchange(maximum, mask));
  for (int64 j = lane; j < keys.length; j += lanes) {
    if (is_hidden(row[j])) continue;
    row[j] = expf(row[j] - maximum);
    sum += row[j];
  }
  for (int mask = lanes / 2; mask > 0; mask /= 2) sum += lane_exchange(sum, mask);
  for (int64 j = lane; j < keys.length; j += lanes)
    if (!is_hidden(row[j])) row[j] = to_fp32(from_fp32<Element>(__fdiv_rn(row[j], sum)));
  // A row without keys has maximum -inf and sum 0, hence L = -inf + ln 0 = -inf.
  if (lane == 0) attention.lse.of(rows, head)[i * attention.lse.token_stride] = maximum + logf(sum);
}

/// out = factor W X for one query head: O = P V, dQ = scale dS K.
template <class Element>
__global__ void __launch_bounds__(tile_threads, blocks_resident)
    row_product_kernel(Attention<Element> attention, TileGrid grid, float* matrix, Rows<const Element> of_keys,
                       Rows<Element> out, float factor) {
  __shared__ ProductMemory memory;
  const TileGrid::Place at = grid.place(blockIdx.x);
  const Sequence rows = sequence_of(attention.q_side, at.b), keys = sequence_of(attention.k_side, at.b);
  if (at.row >= rows.length) return;
  ThreadTile tile;
  multiply_tile<true>(tile, memory, attention.by_key(matrix, rows, keys, at.head),
                      of_keys.by_token(keys, attention.kv_head(at.head)), at.row, at.column);
  Element* to = out.of(rows, at.head);
  each_element(at, rows.length, out.width, [&](int64 i, int64 c, int o, int n) {
    to[i * out.token_stride + c] = from_fp32<Element>(factor * tile.sum[o][n]);
  });
}

/// out = factor sum_h W_h^T X_h over the query heads of one kv head: dV = P^T dO, dK = scale dS^T Q.
template <class Element>
__global__ void __launch_bounds__(tile_threads, blocks_resident)
    key_product_kernel(Attention<Element> attention, TileGrid grid, float* matrix, Rows<const Element> of_rows,
                       Rows<Element> out, float factor) {
  __shared__ ProductMemory memory;
  const TileGrid::Place at = grid.place(blockIdx.x);
  const Sequence rows = sequence_of(attention.q_side, at.b), keys = sequence_of(attention.k_side, at.b);
  if (at.row >= keys.length) return;
  const int64 group = attention.heads / attention.kv_heads;
  ThreadTile tile;
  for (int64 head = at.head * group; head < (at.head + 1) * group; ++head)
    multiply_tile<true>(tile, memory, attention.by_row(matrix, rows, keys, head), of_rows.by_token(rows, head), at.row,
                        at.column);
  Element* to = out.of(keys, at.head);
  each_element(at, keys.length, out.width, [&](int64 j, int64 c, int o, int n) {
    to[j * out.token_stride + c] = from_fp32<Element>(factor * tile.sum[o][n]);
  });
}

/// D_i = <dO_i, O_i>, one chain of fmas a thread.
template <class Element>
__global__ void delta_kernel(Attention<Element> attention, int64 slot_rows) {
  const int64 index = int64(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64 i = index % slot_rows, head = index / slot_rows % attention.heads,
              b = index / slot_rows / attention.heads;
  if (b >= attention.batch) return;
  const Sequence rows = sequence_of(attention.q_side, b);
  if (i >= rows.length) return;
  const Element* d_o = attention.d_o.of(rows, head) + i * attention.d_o.token_stride;
  const Element* o = attention.o.of(rows, head) + i * attention.o.token_stride;
  float sum = 0;
  for (int64 c = 0; c < attention.o.width; ++c) sum = __fmaf_rn(to_fp32(d_o[c]), to_fp32(o[c]), sum);
  attention.delta[head * attention.total_q + rows.row + i] = sum;
}

/// P = exp(S - L) and dS = P o (dO V^T - D), rounded, marked where the row does not see the key.
template <class Element>
__global__ void __launch_bounds__(tile_threads, blocks_resident)
    gradient_kernel(Attention<Element> attention, TileGrid grid) {
  __shared__ ProductMemory memory;
  const TileGrid::Place at = grid.place(blockIdx.x);
  const Sequence rows = sequence_of(attention.q_side, at.b), keys = sequence_of(attention.k_side, at.b);
  if (at.row >= rows.length || at.column >= keys.length) return;
  const int64 kv_head = attention.kv_head(at.head);
  ThreadTile scores, dp;
  multiply_tile<false>(scores, memory, attention.q.by_channel(rows, at.head), attention.k.by_channel(keys, kv_head),
                       at.row, at.column);
  multiply_tile<false>(dp, memory, attention.d_o.by_channel(rows, at.head), attention.v.by_channel(keys, kv_head),
                       at.row, at.column);
  float* weights = attention.matrix_of(attention.weights, rows, at.head);
  float* ds = attention.matrix_of(attention.ds, rows, at.head);
  const float* lse = attention.lse.of(rows, at.head);
  const float* delta = attention.delta + at.head * attention.total_q + rows.row;
  each_element(at, rows.length, keys.length, [&](int64 i, int64 j, int o, int n) {
    float p = hidden_weight(), ds_ij = hidden_weight();
    if (attention.sees(rows, keys, i, j)) {
      const float exact_p = expf(attention.scale * scores.sum[o][n] - lse[i * attention.lse.token_stride]);
      p = to_fp32(from_fp32<Element>(exact_p));
      ds_ij = to_fp32(from_fp32<Element>(exact_p * (dp.sum[o][n] - delta[i])));
    }
    weights[i * attention.pitch + j] = p;
    ds[i * attention.pitch + j] = ds_ij;
  });
}

// ---- the host's side

int64 tiles_of(int64 length) { return (length + tile_size - 1) / tile_size; }

TileGrid score_grid(const flashproof_problem& p) {
  return {tiles_of(p.max_seq_q), tiles_of(p.max_seq_k), p.heads, p.batch};
}
TileGrid row_grid(const flashproof_problem& p, int64 width) {
  return {tiles_of(p.max_seq_q), tiles_of(width), p.heads, p.batch};
}
TileGrid key_grid(const flashproof_problem& p, int64 width) {
  return {tiles_of(p.max_seq_k), tiles_of(width), p.kv_heads, p.batch};
}
double row_count(const flashproof_problem& p) { return double(p.batch) * double(p.heads) * double(p.max_seq_q); }
double matrix_elements(const flashproof_problem& p) {
  return double(p.heads) * double(p.total_q) * double(p.max_seq_k);
}

/// The reason why the problem is not taken; NULL if it is.
const char* refusal(const flashproof_problem& p, const char* config) {
  if (p.struct_size != sizeof p) return "flashproof_problem has another size: built with another flashproof_kernel.h";
  if (config != nullptr && config[0] != 0) return "standard has no tunables: leave the config empty";
  if (p.dtype != FLASHPROOF_BF16 && p.dtype != FLASHPROOF_FP16 && p.dtype != FLASHPROOF_FP32)
    return "standard takes bf16, fp16 and fp32";
  if (p.out_dtype != p.dtype) return "standard writes its outputs in the input's dtype";
  if (p.batch < 1 || p.heads < 1 || p.kv_heads < 1 || p.head_dim < 1 || p.value_dim < 1)
    return "batch, heads and head dims must be at least 1";
  if (p.max_seq_q < 0 || p.max_seq_k < 0 || p.total_q < 0 || p.total_k < 0) return "lengths must be at least 0";
  if (p.heads % p.kv_heads != 0) return "heads must be a multiple of kv_heads";
  if (p.window_left < open_window || p.window_right < open_window) return "a window side is at least 0, or -1 for open";
  if (!std::isfinite(p.scale)) return "the scale must be finite";
  if (p.page_size != 0) return "standard has no paged KV";
  if (p.softcap != 0) return "standard has no softcap";
  if (p.alibi != 0) return "standard has no ALiBi";
  if (p.bias != 0) return "standard has no bias";
  if (p.sink != 0) return "standard has no sink";
  if (p.descale != 0) return "standard has no descales";
  if (p.dropout_rate != 0) return "standard has no dropout";
  const double grids[] = {
      score_grid(p).blocks(),           row_grid(p, p.head_dim).blocks(),  row_grid(p, p.value_dim).blocks(),
      key_grid(p, p.head_dim).blocks(), key_grid(p, p.value_dim).blocks(), row_count(p)};
  for (double blocks : grids)
    if (blocks > INT_MAX) return "more thread blocks than a grid holds (2^31 - 1): make the problem smaller";
  if (matrix_elements(p) > 0x1p40)
    return "the matrix of scores would have more than 2^40 elements: make the problem smaller";
  return nullptr;
}

flashproof_status supports(const flashproof_problem* p, const char* config, char* message, size_t size) {
  const char* reason = refusal(*p, config);
  if (reason == nullptr) return FLASHPROOF_OK;
  std::snprintf(message, size, "%s", reason);
  return FLASHPROOF_REJECTED;
}

const char* arithmetic(const flashproof_problem* p, const char*) {
  const char* format = p->dtype == FLASHPROOF_BF16 ? "bf16" : p->dtype == FLASHPROOF_FP16 ? "fp16" : "fp32";
  const auto side = [](int64 length) { return length < 1 ? 1 : length > INT_MAX ? INT_MAX : int(length); };
  thread_local char text[256];
  std::snprintf(text, sizeof text,
                "tile=%dx%d order=ascending scores=fp32 values=fp32 levels=1 exp=expf arg=sub s=fp32 prescaled=no p=%s "
                "normalized=yes rowsum=%d splits=1 division=ieee ds=%s d=rounded",
                side(p->max_seq_q), side(p->max_seq_k), format, lanes, format);
  return text;
}

/// Forward: S, then P in its place. Backward: P, dS, D.
size_t workspace_size(const flashproof_problem* p, const char*) {
  const size_t rows = size_t(p->heads) * size_t(p->total_q), matrix = rows * size_t(p->max_seq_k);
  return sizeof(float) * (p->backward ? 2 * matrix + rows : matrix);
}

template <class Element>
Rows<Element> rows_of(const flashproof_tensor& t) {
  return {static_cast<Element*>(t.data), t.stride[0], t.stride[1], t.stride[2], t.shape[3]};
}

template <class Element>
Attention<Element> attention_of(const flashproof_call& call) {
  const flashproof_problem& p = *call.problem;
  Attention<Element> a = {};
  a.q = rows_of<const Element>(call.q), a.k = rows_of<const Element>(call.k), a.v = rows_of<const Element>(call.v);
  a.o = rows_of<Element>(call.o), a.d_o = rows_of<const Element>(call.d_o);
  a.dq = rows_of<Element>(call.dq), a.dk = rows_of<Element>(call.dk), a.dv = rows_of<Element>(call.dv);
  a.lse = {static_cast<float*>(call.lse.data), call.lse.stride[0], call.lse.stride[2], call.lse.stride[1], 1};
  a.q_side = {call.cu_seqlens_q.data, call.seqused_q.data, p.max_seq_q};
  a.k_side = {call.cu_seqlens_k.data, call.seqused_k.data, p.max_seq_k};
  a.mask = {p.causal != 0, p.top_left != 0, p.window_left, p.window_right};
  a.scale = p.scale;
  a.batch = p.batch, a.heads = p.heads, a.kv_heads = p.kv_heads, a.total_q = p.total_q, a.pitch = p.max_seq_k;
  const int64 matrix = p.heads * p.total_q * p.max_seq_k;
  a.weights = static_cast<float*>(call.workspace);
  a.ds = a.weights + matrix, a.delta = a.ds + matrix;
  return a;
}

/// Enqueues one kernel; a grid of no blocks is nothing to do, but an error to CUDA.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), double blocks, int threads, void* stream, const Arguments&... arguments) {
  if (blocks > 0) kernel<<<unsigned(blocks), threads, 0, static_cast<cudaStream_t>(stream)>>>(arguments...);
}

template <class Element>
void enqueue_forward(const flashproof_call& call, void* stream) {
  const flashproof_problem& p = *call.problem;
  const Attention<Element> a = attention_of<Element>(call);
  const TileGrid scores = score_grid(p), rows = row_grid(p, p.value_dim);
  launch(score_kernel<Element>, scores.blocks(), tile_threads, stream, a, scores);
  launch(softmax_kernel<Element>, std::ceil(row_count(p) / rows_a_block), rows_a_block * lanes, stream, a, p.max_seq_q);
  launch(row_product_kernel<Element>, rows.blocks(), tile_threads, stream, a, rows, a.weights, a.v, a.o, 1.0f);
}

template <class Element>
void enqueue_backward(const flashproof_call& call, void* stream) {
  const flashproof_problem& p = *call.problem;
  const Attention<Element> a = attention_of<Element>(call);
  const TileGrid scores = score_grid(p), of_dq = row_grid(p, p.head_dim);
  const TileGrid of_dk = key_grid(p, p.head_dim), of_dv = key_grid(p, p.value_dim);
  launch(delta_kernel<Element>, std::ceil(row_count(p) / tile_threads), tile_threads, stream, a, p.max_seq_q);
  launch(gradient_kernel<Element>, scores.blocks(), tile_threads, stream, a, scores);
  launch(row_product_kernel<Element>, of_dq.blocks(), tile_threads, stream, a, of_dq, a.ds, a.k, a.dq, a.scale);
  launch(key_product_kernel<Element>, of_dk.blocks(), tile_threads, stream, a, of_dk, a.ds, a.q, a.dk, a.scale);
  launch(key_product_kernel<Element>, of_dv.blocks(), tile_threads, stream, a, of_dv, a.weights, a.d_o, a.dv, 1.0f);
}

using Enqueue = void (*)(const flashproof_call&, void*);

/// Checks the call, enqueues it by dtype (order of flashproof_dtype: fp32, bf16, fp16), and says how that went.
flashproof_status run(const flashproof_call& call, const char* config, void* stream, const Enqueue (&by_dtype)[3],
                      char* message, size_t size) {
  if (supports(call.problem, config, message, size) != FLASHPROOF_OK) return FLASHPROOF_REJECTED;
  const size_t needed = workspace_size(call.problem, config);
  if (call.workspace_size < needed) {
    std::snprintf(message, size, "the workspace has %zu bytes; workspace_size() asked for %zu", call.workspace_size,
                  needed);
    return FLASHPROOF_ERROR;
  }
  by_dtype[call.problem->dtype](call, stream);
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return FLASHPROOF_OK;
  std::snprintf(message, size, "launch failed: %s", cudaGetErrorString(error));
  return FLASHPROOF_ERROR;
}

flashproof_status forward(const flashproof_call* call, const char* config, void* stream, char* message, size_t size) {
  return run(*call, config, stream, {enqueue_forward<float>, enqueue_forward<Bf16>, enqueue_forward<Fp16>}, message,
             size);
}

flashproof_status backward(const flashproof_call* call, const char* config, void* stream, char* message, size_t size) {
  return run(*call, config, stream, {enqueue_backward<float>, enqueue_backward<Bf16>, enqueue_backward<Fp16>}, message,
             size);
}

}  // namespace

const flashproof_kernel* gpu_standard_kernel() {
  static const flashproof_kernel kernel = [] {
    flashproof_kernel k = {};
    k.struct_size = sizeof k;
    k.abi = FLASHPROOF_ABI;
    k.name = "standard";
    k.version = "1";
    k.memory = FLASHPROOF_CUDA;
    k.dtypes = 1u << FLASHPROOF_FP32 | 1u << FLASHPROOF_BF16 | 1u << FLASHPROOF_FP16;
    k.features = FLASHPROOF_FEATURE_BACKWARD | FLASHPROOF_FEATURE_CAUSAL | FLASHPROOF_FEATURE_WINDOW |
                 FLASHPROOF_FEATURE_TOP_LEFT | FLASHPROOF_FEATURE_GQA | FLASHPROOF_FEATURE_PACKED |
                 FLASHPROOF_FEATURE_SEQUSED | FLASHPROOF_FEATURE_VALUE_DIM | FLASHPROOF_FEATURE_STRIDES |
                 FLASHPROOF_FEATURE_SCALE | FLASHPROOF_FEATURE_NEGATIVE_OFFSET;
    k.conventions = FLASHPROOF_DEFAULT_CONVENTIONS;
    k.conventions.bears_hidden_nan = 1;
    k.arithmetic = arithmetic;
    k.supports = supports;
    k.workspace_size = workspace_size;
    k.forward = forward;
    k.backward = backward;
    return k;
  }();
  return &kernel;
}

}  // namespace flashproof
