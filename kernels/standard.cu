// Standard attention on the GPU: scores and probabilities are whole matrices in the workspace.
//
// Forward:   S = rule(Q K^T),  P = softmax(S),  O = P V,  L = m + ln l        (FlashAttention, 2205.14135, Algorithm 0)
// Backward:  P = exp(S - L),  D = rowsum(dO o O),  dS = P o (dO V^T - D),  dS0 = dS o slope
//            dV = P^T dO,  dQ = dS0 K,  dK = dS0^T Q,  dbias = sums of dS,  dsink = -sum exp(sink - L) D
//            (Algorithm 3, with equation 4 for D)
// The rule of scores, their slope, dropout and the factors of the products stand in score_rule.cuh.
//
// Arithmetic: fp32, each sum of products one chain of fmas; m and l over the row, l as 32 partial sums, key j in sum j
// mod 32, then added pairwise, a sink last; P divided by l and rounded to the input format before P V (fp8: 2^8 P to
// e4m3); P and dS0 of the backward rounded to the output's format, dS of dbias not. dK and dV sum the group's query
// heads in ascending order. No atomics: what an entry gets depends on its own data alone, bit for bit.
//
// A key that mask or bias hides from a row has a marked weight (tile_product.cuh), so what it holds cannot reach the
// row, nor the row it. A key that dropout drops has weight 0.
#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdio>

#include "kernels/builtin.h"
#include "kernels/score_rule.cuh"

namespace flashproof {
namespace {

using namespace gpu;

constexpr int lanes = 32;
constexpr int rows_a_block = 8;     // one warp a row
constexpr int blocks_resident = 2;  // a multiprocessor; leaves a thread 128 registers, of which none spills

/// Formats that follow from the input's: of the outputs, and of P and dS0 in the backward; how P is rounded before P V.
template <class Element>
struct Formats {
  using Output = Element;
  __device__ static float rounded_weight(float p) { return to_fp32(from_fp32<Element>(p)); }
};
struct Fp8Formats {
  using Output = Bf16;
  /// p <= 1, so that 2^8 p uses e4m3's range up to 448; both products are exact.
  __device__ static float rounded_weight(float p) { return to_fp32(from_fp32<E4m3>(0x1p8f * p)) * 0x1p-8f; }
};
template <>
struct Formats<E4m3> : Fp8Formats {};
template <>
struct Formats<E5m2> : Fp8Formats {};
template <class Element>
using Output = typename Formats<Element>::Output;

template <class Element>
struct Attention {
  Rows<const Element> q, k, v, d_o;
  Rows<Output<Element>> o, dq, dk, dv;
  Rows<float> lse;  ///< [batch, token, head, 1]
  Side q_side, k_side;
  ScoreRule<Element> rule;
  int64 batch, heads, kv_heads, total_q, pitch;
  float *weights, *ds0;  ///< [heads, total_q, pitch]: S, then P; dS0, rounded
  float* ds;             ///< like ds0, not rounded; NULL without bias
  float* delta;          ///< D [heads, total_q]

  __device__ Head head_of(int64 b, int64 head) const {
    return {b, head, head / (heads / kv_heads), sequence_of(q_side, b), sequence_of(k_side, b)};
  }
  __device__ float* matrix_of(float* matrix, const Head& head) const {
    return matrix + (head.head * total_q + head.rows.row) * pitch;
  }
  __device__ float* delta_of(const Head& head) const { return delta + head.head * total_q + head.rows.row; }
  /// The attention matrix of a head with query rows as outer index, or with keys.
  __device__ Operand<float> by_key(float* matrix, const Head& head) const {
    return {matrix_of(matrix, head), {head.rows.length, pitch}, {head.keys.length, 1}, hidden_weight()};
  }
  __device__ Operand<float> by_row(float* matrix, const Head& head) const {
    return {matrix_of(matrix, head), {head.keys.length, 1}, {head.rows.length, pitch}, hidden_weight()};
  }
};

/// The factor of a sum of products over scores, or over values (score_rule.cuh).
enum class Factor { of_scores, of_values };
template <class Element>
__device__ float factor_of(const Attention<Element>& attention, const Head& head, Factor factor) {
  return factor == Factor::of_scores ? attention.rule.score_factor(head) : attention.rule.value_factor(head);
}

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

/// The thread's sums into a matrix, rows `pitch` apart.
__device__ void store_sums(const ThreadTile& tile, const TileGrid::Place& at, int64 rows, int64 columns, float* matrix,
                           int64 pitch) {
  each_element(at, rows, columns, [&](int64 i, int64 j, int o, int n) { matrix[i * pitch + j] = tile.sum[o][n]; });
}

/// Calls apply(row, column) for the same elements one after the other: what is long is compiled once, and takes no
/// registers from the product before it.
template <class Apply>
__device__ void each_stored(const TileGrid::Place& at, int64 rows, int64 columns, Apply apply) {
#pragma unroll 1
  for (int n = 0; n < thread_size * thread_size; ++n) {
    const int64 row = at.row + thread_row() + n / thread_size, column = at.column + thread_column() + n % thread_size;
    if (row < rows && column < columns) apply(row, column);
  }
}

/// S, marked where the row does not see the key.
template <class Element>
__global__ void __launch_bounds__(tile_threads, blocks_resident)
    score_kernel(Attention<Element> attention, TileGrid grid) {
  __shared__ ProductMemory memory;
  const TileGrid::Place at = grid.place(blockIdx.x);
  const Head head = attention.head_of(at.b, at.head);
  if (at.row >= head.rows.length || at.column >= head.keys.length) return;
  ThreadTile tile;
  multiply_tile<false>(tile, memory, attention.q.by_channel(head.rows, head.head),
                       attention.k.by_channel(head.keys, head.kv_head), at.row, at.column);
  float* scores = attention.matrix_of(attention.weights, head);
  store_sums(tile, at, head.rows.length, head.keys.length, scores, attention.pitch);
  each_stored(at, head.rows.length, head.keys.length, [&](int64 i, int64 j) {
    float& s = scores[i * attention.pitch + j];
    s = attention.rule.sees(head, i, j) ? attention.rule.score(head, i, j, s).value : hidden_weight();
  });
}

/// Row `index` of all heads and entries, each counted with slot_rows rows.
struct RowPlace {
  int64 i, head, b;
};
__device__ RowPlace row_place(int64 index, int64 slot_rows, int64 heads) {
  return {index % slot_rows, index / slot_rows % heads, index / slot_rows / heads};
}

/// P and L from S, one warp a row. NaN is passed over in the maximum and comes back in every exp and in the sum; a
/// dropped weight is P times 0, which NaN survives.
template <class Element>
__global__ void __launch_bounds__(rows_a_block* lanes) softmax_kernel(Attention<Element> attention, int64 slot_rows) {
  const int64 index = int64(blockIdx.x) * rows_a_block + threadIdx.x / lanes, lane = threadIdx.x % lanes;
  const auto [i, h, b] = row_place(index, slot_rows, attention.heads);
  if (b >= attention.batch) return;
  const Head head = attention.head_of(b, h);
  if (i >= head.rows.length) return;
  float* row = attention.matrix_of(attention.weights, head) + i * attention.pitch;

  const float sink = attention.rule.sink_of(h);
  float maximum = sink, sum = 0;
  for (int64 j = lane; j < head.keys.length; j += lanes)
    if (!is_hidden(row[j])) maximum = fmaxf(maximum, row[j]);
  for (int mask = lanes / 2; mask > 0; mask /= 2) maximum = fmaxf(maximum, lane_exchange(maximum, mask));
  for (int64 j = lane; j < head.keys.length; j += lanes) {
    if (is_hidden(row[j])) continue;
    row[j] = expf(row[j] - maximum);
    sum += row[j];
  }
  for (int mask = lanes / 2; mask > 0; mask /= 2) sum += lane_exchange(sum, mask);
  if (sink != -INFINITY) sum += expf(sink - maximum);
  for (int64 j = lane; j < head.keys.length; j += lanes) {
    if (is_hidden(row[j])) continue;
    const float p = Formats<Element>::rounded_weight(__fdiv_rn(row[j], sum));
    row[j] = attention.rule.keeps(head, i, j) ? p : 0 * p;
  }
  // A row without keys and sink has maximum -inf and sum 0, hence L = -inf + ln 0 = -inf.
  if (lane == 0) attention.lse.of(head.rows, h)[i * attention.lse.token_stride] = maximum + logf(sum);
}

/// out = factor W X for one query head: O = P V, dQ = dS0 K.
template <class Element>
__global__ void __launch_bounds__(tile_threads, blocks_resident)
    row_product_kernel(Attention<Element> attention, TileGrid grid, float* matrix, Rows<const Element> of_keys,
                       Rows<Output<Element>> out, Factor which) {
  __shared__ ProductMemory memory;
  const TileGrid::Place at = grid.place(blockIdx.x);
  const Head head = attention.head_of(at.b, at.head);
  if (at.row >= head.rows.length) return;
  ThreadTile tile;
  multiply_tile<true>(tile, memory, attention.by_key(matrix, head), of_keys.by_token(head.keys, head.kv_head), at.row,
                      at.column);
  Output<Element>* to = out.of(head.rows, at.head);
  const float factor = factor_of(attention, head, which);
  each_element(at, head.rows.length, out.width, [&](int64 i, int64 c, int o, int n) {
    to[i * out.token_stride + c] = from_fp32<Output<Element>>(factor * tile.sum[o][n]);
  });
}

/// out = factor sum_h W_h^T X_h over the query heads of one kv head: dV = P^T dO, dK = dS0^T Q.
template <class Element>
__global__ void __launch_bounds__(tile_threads, blocks_resident)
    key_product_kernel(Attention<Element> attention, TileGrid grid, float* matrix, Rows<const Element> of_rows,
                       Rows<Output<Element>> out, Factor which) {
  __shared__ ProductMemory memory;
  const TileGrid::Place at = grid.place(blockIdx.x);
  const int64 group = attention.heads / attention.kv_heads;
  Head head = attention.head_of(at.b, at.head * group);
  if (at.row >= head.keys.length) return;
  ThreadTile tile;
  for (; head.head < (at.head + 1) * group; ++head.head)
    multiply_tile<true>(tile, memory, attention.by_row(matrix, head), of_rows.by_token(head.rows, head.head), at.row,
                        at.column);
  Output<Element>* to = out.of(gradient_sequence_of(attention.k_side, at.b), at.head);
  const float factor = factor_of(attention, head, which);
  each_element(at, head.keys.length, out.width, [&](int64 j, int64 c, int o, int n) {
    to[j * out.token_stride + c] = from_fp32<Output<Element>>(factor * tile.sum[o][n]);
  });
}

/// D_i = <dO_i, O_i>, one chain of fmas a thread; 0 for a row that sees no key, whatever its dO holds.
template <class Element>
__global__ void delta_kernel(Attention<Element> attention, int64 slot_rows) {
  const auto [i, h, b] = row_place(int64(blockIdx.x) * blockDim.x + threadIdx.x, slot_rows, attention.heads);
  if (b >= attention.batch) return;
  const Head head = attention.head_of(b, h);
  if (i >= head.rows.length) return;
  const Element* d_o = attention.d_o.of(head.rows, h) + i * attention.d_o.token_stride;
  const Output<Element>* o = attention.o.of(head.rows, h) + i * attention.o.token_stride;
  float sum = 0;
  if (attention.rule.sees_any(head, i))
    for (int64 c = 0; c < attention.o.width; ++c) sum = __fmaf_rn(to_fp32(d_o[c]), to_fp32(o[c]), sum);
  attention.delta_of(head)[i] = sum;
}

/// P = exp(S - L), dropped; dS = P o (factor keep dO V^T - D) and dS0; P and dS0 rounded. All are marked where the row
/// does not see the key. P and dS0 stand where Q K^T and dO V^T were before.
template <class Element>
__global__ void __launch_bounds__(tile_threads, blocks_resident)
    gradient_kernel(Attention<Element> attention, TileGrid grid) {
  __shared__ ProductMemory memory;
  const TileGrid::Place at = grid.place(blockIdx.x);
  const Head head = attention.head_of(at.b, at.head);
  if (at.row >= head.rows.length || at.column >= head.keys.length) return;
  float *weights = attention.matrix_of(attention.weights, head), *ds0 = attention.matrix_of(attention.ds0, head);
  const int64 rows = head.rows.length, keys = head.keys.length, pitch = attention.pitch;
  {
    ThreadTile products;
    multiply_tile<false>(products, memory, attention.q.by_channel(head.rows, head.head),
                         attention.k.by_channel(head.keys, head.kv_head), at.row, at.column);
    store_sums(products, at, rows, keys, weights, pitch);
  }
  {
    ThreadTile products;
    multiply_tile<false>(products, memory, attention.d_o.by_channel(head.rows, head.head),
                         attention.v.by_channel(head.keys, head.kv_head), at.row, at.column);
    store_sums(products, at, rows, keys, ds0, pitch);
  }
  const auto rounded = [](float x) { return to_fp32(from_fp32<Output<Element>>(x)); };
  const Rows<float>& lse = attention.lse;
  const float value_factor = attention.rule.value_factor(head);
  each_stored(at, rows, keys, [&](int64 i, int64 j) {
    float &p = weights[i * pitch + j], &of_values = ds0[i * pitch + j];
    float ds = hidden_weight();
    if (attention.rule.sees(head, i, j)) {
      const Score score = attention.rule.score(head, i, j, p);
      const bool kept = attention.rule.keeps(head, i, j);
      const float exact_p = expf(score.value - lse.of(head.rows, head.head)[i * lse.token_stride]);
      ds = exact_p * ((kept ? value_factor * of_values : 0) - attention.delta_of(head)[i]);
      of_values = rounded(ds * score.slope);
      p = kept ? rounded(exact_p) : 0;
    } else {
      p = of_values = hidden_weight();
    }
    if (attention.ds != nullptr) attention.matrix_of(attention.ds, head)[i * pitch + j] = ds;
  });
}

/// dsink_h = -sum exp(sink_h - L) D over the rows of all entries, one block a head: each thread its rows in ascending
/// order, then the threads pairwise.
template <class Element>
__global__ void sink_gradient_kernel(Attention<Element> attention, float* dsink, int64 stride) {
  __shared__ float sums[tile_threads];
  const int64 h = blockIdx.x;
  const float sink = attention.rule.sink_of(h);
  float sum = 0;
  for (int64 b = 0; b < attention.batch; ++b) {
    const Head head = attention.head_of(b, h);
    const float *lse = attention.lse.of(head.rows, h), *delta = attention.delta_of(head);
    for (int64 i = threadIdx.x; i < head.rows.length; i += tile_threads)
      sum -= expf(sink - lse[i * attention.lse.token_stride]) * delta[i];
  }
  sums[threadIdx.x] = sum;
  for (int half = tile_threads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (int(threadIdx.x) < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  if (threadIdx.x == 0) dsink[h * stride] = sums[0];
}

/// dbias, laid out like the bias.
struct BiasGradient {
  float* data;
  int64 shape[4], stride[4];
};
/// What an element at `index` of an axis sums over: the whole axis where it is broadcast, else the index, if it is
/// there.
__device__ KeyRange summed(int64 index, int64 shape, int64 length) {
  return shape == 1 ? KeyRange{0, length} : KeyRange{index, index < length ? index + 1 : index};
}

/// Sums of dS, `team` threads an element: each adds every team-th key of its rows, heads and entries in ascending
/// order, then the threads pairwise. One thread where keys are not summed over, a warp where they are.
template <int team, class Element>
__global__ void bias_gradient_kernel(Attention<Element> attention, BiasGradient out) {
  const int64 *shape = out.shape, *stride = out.stride;
  const int64 index = (int64(blockIdx.x) * blockDim.x + threadIdx.x) / team, lane = threadIdx.x % team;
  const int64 j = index % shape[3], i = index / shape[3] % shape[2];
  const int64 h = index / shape[3] / shape[2] % shape[1], b = index / shape[3] / shape[2] / shape[1];
  if (b >= shape[0]) return;
  const KeyRange entries = summed(b, shape[0], attention.batch), heads = summed(h, shape[1], attention.heads);
  float sum = 0;
  for (int64 entry = entries.begin; entry < entries.end; ++entry)
    for (int64 each = heads.begin; each < heads.end; ++each) {
      const Head head = attention.head_of(entry, each);
      const float* ds = attention.matrix_of(attention.ds, head);
      const KeyRange rows = summed(i, shape[2], head.rows.length), keys = summed(j, shape[3], head.keys.length);
      for (int64 row = rows.begin; row < rows.end; ++row)
        for (int64 key = keys.begin + lane; key < keys.end; key += team) {
          const float term = ds[row * attention.pitch + key];
          if (!is_hidden(term)) sum += term;
        }
    }
  if (team == lanes)
    for (int mask = lanes / 2; mask > 0; mask /= 2) sum += lane_exchange(sum, mask);
  if (lane == 0) out.data[b * stride[0] + h * stride[1] + i * stride[2] + j * stride[3]] = sum;
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
/// At most; the shape of dbias comes with the call.
double bias_blocks(const flashproof_problem& p) {
  return p.backward && p.bias ? std::ceil(row_count(p) * std::max(double(lanes), double(p.max_seq_k)) / tile_threads)
                              : 0;
}

bool is_fp8(int32_t dtype) { return dtype == FLASHPROOF_E4M3 || dtype == FLASHPROOF_E5M2; }

/// The reason why the problem is not taken; NULL if it is.
const char* refusal(const flashproof_problem& p, const char* config) {
  if (const char* reason = flashproof_reason_against(gpu_standard_kernel(), &p)) return reason;
  if (config != nullptr && config[0] != 0) return "standard has no tunables: leave the config empty";
  const double grids[] = {score_grid(p).blocks(),
                          row_grid(p, p.head_dim).blocks(),
                          row_grid(p, p.value_dim).blocks(),
                          key_grid(p, p.head_dim).blocks(),
                          key_grid(p, p.value_dim).blocks(),
                          row_count(p),
                          double(p.heads),
                          bias_blocks(p)};
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

const char* arithmetic(const flashproof_problem* p, const char* config) {
  if (refusal(*p, config) != nullptr) return "";
  static constexpr const char* names[] = {"fp32", "bf16", "fp16"};
  const char* weights = is_fp8(p->dtype) ? "e4m3 pscale=8" : names[p->dtype];
  const auto side = [](int64 length) { return length < 1 ? 1 : length > INT_MAX ? INT_MAX : int(length); };
  thread_local char text[256];
  std::snprintf(text, sizeof text,
                "tile=%dx%d order=ascending scores=fp32 values=fp32 levels=1 exp=expf arg=sub tanh=accurate s=fp32 "
                "prescaled=no p=%s normalized=yes dropout=output rowsum=%d splits=1 division=ieee ds=%s d=rounded",
                side(p->max_seq_q), side(p->max_seq_k), weights, lanes, names[p->out_dtype]);
  return text;
}

/// Forward: S, then P in its place. Backward: P, dS0, D, and dS where there is a bias.
size_t workspace_size(const flashproof_problem* p, const char*) {
  const size_t rows = size_t(p->heads) * size_t(p->total_q), matrix = rows * size_t(p->max_seq_k);
  return sizeof(float) * (p->backward ? (p->bias ? 3 : 2) * matrix + rows : matrix);
}

template <class Element>
Attention<Element> attention_of(const flashproof_call& call) {
  const flashproof_problem& p = *call.problem;
  Attention<Element> a = {};
  a.q = rows_of<const Element>(call.q), a.k = rows_of<const Element>(call.k), a.v = rows_of<const Element>(call.v);
  a.d_o = rows_of<const Element>(call.d_o), a.o = rows_of<Output<Element>>(call.o);
  a.dq = rows_of<Output<Element>>(call.dq), a.dk = rows_of<Output<Element>>(call.dk);
  a.dv = rows_of<Output<Element>>(call.dv);
  a.lse = {static_cast<float*>(call.lse.data), call.lse.stride[0], call.lse.stride[2], call.lse.stride[1], 1};
  a.q_side = query_side(call), a.k_side = key_side(call);
  a.rule = rule_of<Element>(call);
  a.batch = p.batch, a.heads = p.heads, a.kv_heads = p.kv_heads, a.total_q = p.total_q, a.pitch = p.max_seq_k;
  const int64 rows = p.heads * p.total_q, matrix = rows * p.max_seq_k;
  a.weights = static_cast<float*>(call.workspace);
  a.ds0 = a.weights + matrix, a.delta = a.ds0 + matrix;
  if (p.bias) a.ds = a.delta + rows;
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
  launch(row_product_kernel<Element>, rows.blocks(), tile_threads, stream, a, rows, a.weights, a.v, a.o,
         Factor::of_values);
}

template <class Element>
void enqueue_bias_gradient(const flashproof_call& call, const Attention<Element>& a, void* stream) {
  const flashproof_tensor& t = call.dbias;
  BiasGradient out = {static_cast<float*>(t.data), {}, {}};
  double elements = 1;
  for (int axis = 0; axis < 4; ++axis) {
    out.shape[axis] = t.shape[axis], out.stride[axis] = t.stride[axis];
    elements *= double(t.shape[axis]);
  }
  if (t.shape[3] == 1)
    launch(bias_gradient_kernel<lanes, Element>, std::ceil(elements * lanes / tile_threads), tile_threads, stream, a,
           out);
  else
    launch(bias_gradient_kernel<1, Element>, std::ceil(elements / tile_threads), tile_threads, stream, a, out);
}

template <class Element>
void enqueue_backward(const flashproof_call& call, void* stream) {
  const flashproof_problem& p = *call.problem;
  const Attention<Element> a = attention_of<Element>(call);
  const TileGrid scores = score_grid(p), of_dq = row_grid(p, p.head_dim);
  const TileGrid of_dk = key_grid(p, p.head_dim), of_dv = key_grid(p, p.value_dim);
  launch(delta_kernel<Element>, std::ceil(row_count(p) / tile_threads), tile_threads, stream, a, p.max_seq_q);
  launch(gradient_kernel<Element>, scores.blocks(), tile_threads, stream, a, scores);
  launch(row_product_kernel<Element>, of_dq.blocks(), tile_threads, stream, a, of_dq, a.ds0, a.k, a.dq,
         Factor::of_scores);
  launch(key_product_kernel<Element>, of_dk.blocks(), tile_threads, stream, a, of_dk, a.ds0, a.q, a.dk,
         Factor::of_scores);
  launch(key_product_kernel<Element>, of_dv.blocks(), tile_threads, stream, a, of_dv, a.weights, a.d_o, a.dv,
         Factor::of_values);
  if (p.sink)
    launch(sink_gradient_kernel<Element>, double(p.heads), tile_threads, stream, a,
           static_cast<float*>(call.dsink.data), call.dsink.stride[0]);
  if (p.bias) enqueue_bias_gradient(call, a, stream);
}

using Enqueue = void (*)(const flashproof_call&, void*);

/// Checks the call, enqueues it by dtype (in the order of flashproof_dtype), and says how that went.
flashproof_status run(const flashproof_call& call, const char* config, void* stream,
                      const Enqueue (&by_dtype)[dtype_count], char* message, size_t size) {
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
  return run(*call, config, stream,
             {enqueue_forward<float>, enqueue_forward<Bf16>, enqueue_forward<Fp16>, enqueue_forward<E4m3>,
              enqueue_forward<E5m2>},
             message, size);
}

flashproof_status backward(const flashproof_call* call, const char* config, void* stream, char* message, size_t size) {
  return run(*call, config, stream,
             {enqueue_backward<float>, enqueue_backward<Bf16>, enqueue_backward<Fp16>, enqueue_backward<E4m3>,
              enqueue_backward<E5m2>},
             message, size);
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
    k.dtypes = (1u << dtype_count) - 1;
    k.features = FLASHPROOF_FEATURE_BACKWARD | FLASHPROOF_FEATURE_CAUSAL | FLASHPROOF_FEATURE_WINDOW |
                 FLASHPROOF_FEATURE_TOP_LEFT | FLASHPROOF_FEATURE_GQA | FLASHPROOF_FEATURE_PACKED |
                 FLASHPROOF_FEATURE_SEQUSED | FLASHPROOF_FEATURE_PAGED | FLASHPROOF_FEATURE_VALUE_DIM |
                 FLASHPROOF_FEATURE_SOFTCAP | FLASHPROOF_FEATURE_ALIBI | FLASHPROOF_FEATURE_BIAS |
                 FLASHPROOF_FEATURE_SINK | FLASHPROOF_FEATURE_DROPOUT | FLASHPROOF_FEATURE_DESCALE |
                 FLASHPROOF_FEATURE_STRIDES | FLASHPROOF_FEATURE_SCALE | FLASHPROOF_FEATURE_NEGATIVE_OFFSET;
    k.conventions = FLASHPROOF_DEFAULT_CONVENTIONS;
    k.conventions.bears_hidden_nan = 1;
    k.conventions.deterministic = FLASHPROOF_DETERMINISTIC_BATCH;
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
