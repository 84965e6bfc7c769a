// Addresses: dense (b, i, h) at b stride0 + i stride1 + h stride2; packed (0, begin_b + i, h); paged keys
// (page_table[b][j div page], j mod page, h).
#include "kernels/cpu/call_view.h"

#include <array>
#include <bit>
#include <functional>
#include <numeric>
#include <string>

namespace flashproof {
namespace {

/// The numbers of an 8-bit format by encoding.
constexpr std::array<float, 256> decoded(DType dtype) {
  std::array<float, 256> numbers;
  for (uint32 bits = 0; bits < 256; ++bits) numbers[bits] = float(decode(dtype, bits));
  return numbers;
}
constexpr std::array<float, 256> e4m3_numbers = decoded(DType::e4m3), e5m2_numbers = decoded(DType::e5m2);

float read(const flashproof_tensor& t, int64_t offset) {
  switch (t.dtype) {
    case FLASHPROOF_FP32:
      return static_cast<const float*>(t.data)[offset];
    case FLASHPROOF_BF16:
      return std::bit_cast<float>(uint32(static_cast<const uint16_t*>(t.data)[offset]) << 16);
    case FLASHPROOF_E4M3:
      return e4m3_numbers[static_cast<const uint8_t*>(t.data)[offset]];
    case FLASHPROOF_E5M2:
      return e5m2_numbers[static_cast<const uint8_t*>(t.data)[offset]];
    default:
      return float(decode(DType::fp16, static_cast<const uint16_t*>(t.data)[offset]));
  }
}

/// Into fp32 or a 16-bit format.
void write(const flashproof_tensor& t, int64_t offset, float x) {
  if (t.dtype == FLASHPROOF_FP32) {
    static_cast<float*>(t.data)[offset] = x;
  } else {
    static_cast<uint16_t*>(t.data)[offset] = uint16_t(encode(DType(t.dtype), x));
  }
}

void read_row(const flashproof_tensor& t, int64_t offset, int64_t n, float* row) {
  for (int64_t c = 0; c < n; ++c) row[c] = read(t, offset + c);
}

void write_row(const flashproof_tensor& t, int64_t offset, int64_t n, const float* row) {
  for (int64_t c = 0; c < n; ++c) write(t, offset + c, row[c]);
}

int64_t offset_of(const flashproof_tensor& t, int64_t first, int64_t second, int64_t third) {
  return first * t.stride[0] + second * t.stride[1] + third * t.stride[2];
}

int64_t query_offset(const CallView& view, const flashproof_tensor& t, int64_t b, int64_t i, int64_t h) {
  return view.problem.packed_q ? offset_of(t, 0, view.q_begin[b] + i, h) : offset_of(t, b, i, h);
}

int64_t lse_offset(const CallView& view, int64_t b, int64_t i, int64_t h) {
  const flashproof_tensor& t = view.call.lse;
  return view.problem.packed_q ? offset_of(t, 0, h, view.q_begin[b] + i) : offset_of(t, b, h, i);
}

int64_t key_offset(const CallView& view, const flashproof_tensor& t, int64_t b, int64_t j, int64_t kv_head) {
  const int64_t page_size = view.problem.page_size;
  if (page_size > 0) {
    const int64_t pages = view.call.page_table.length / view.problem.batch;
    const int64_t page = view.call.page_table.host[b * pages + j / page_size];
    return offset_of(t, page, j % page_size, kv_head);
  }
  return view.problem.packed_k ? offset_of(t, 0, view.k_begin[b] + j, kv_head) : offset_of(t, b, j, kv_head);
}

int64_t key_gradient_offset(const CallView& view, const flashproof_tensor& t, int64_t b, int64_t j, int64_t kv_head) {
  const bool concatenated = view.problem.packed_k || view.problem.page_size > 0;
  return concatenated ? offset_of(t, 0, view.key_gradient_begin[b] + j, kv_head) : offset_of(t, b, j, kv_head);
}

/// One side's used lengths and slot starts. `tokens` are those of the side's tensors, packed; `longest` is the longest
/// slot.
void read_lengths(const flashproof_integers& cu, bool packed, const flashproof_integers& used, bool is_used,
                  int64_t batch, int64_t tokens, int64_t longest, const char* side, std::vector<int64_t>& lengths,
                  std::vector<int64_t>& begins) {
  const std::string name(side);
  if (packed && (cu.host == nullptr || cu.length != batch + 1))
    throw Rejected("cu_seqlens_" + name + " must hold batch + 1 integers");
  if (is_used && (used.host == nullptr || used.length != batch))
    throw Rejected("seqused_" + name + " must hold one integer an entry");
  const auto too_long = [&](int64_t b, int64_t slot) {
    return "cu_seqlens_" + name + " gives entry " + std::to_string(b) + " a slot of " + std::to_string(slot) +
           ", longer than max_seq_" + name;
  };
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t slot = packed ? int64_t(cu.host[b + 1]) - cu.host[b] : longest;
    const int64_t length = is_used ? used.host[b] : slot;
    if (slot < 0) throw Rejected("cu_seqlens_" + name + " decreases at entry " + std::to_string(b));
    if (packed && (cu.host[b] < 0 || cu.host[b + 1] > tokens))
      throw Rejected("cu_seqlens_" + name + " leads entry " + std::to_string(b) + " outside the " +
                     std::to_string(tokens) + " tokens that there are");
    if (slot > longest) throw Rejected(too_long(b, slot));
    if (length < 0 || length > slot)
      throw Rejected("length " + std::to_string(length) + " of entry " + std::to_string(b) + " on side " + name +
                     " is outside its slot of " + std::to_string(slot));
    begins.push_back(packed ? cu.host[b] : 0);
    lengths.push_back(length);
  }
}

void check_pages(const CallView& view) {
  const flashproof_integers& table = view.call.page_table;
  const int64_t page_size = view.problem.page_size;
  if (table.host == nullptr) throw Rejected("page_size is set but page_table is absent");
  const int64_t pages = table.length / view.problem.batch;
  for (int64_t b = 0; b < view.problem.batch; ++b) {
    const int64_t needed = (view.seq_k[b] + page_size - 1) / page_size;
    if (needed > pages) throw Rejected("page_table has too few pages for entry " + std::to_string(b));
    for (int64_t n = 0; n < needed; ++n) {
      const int64_t page = table.host[b * pages + n];
      if (page < 0 || page >= view.call.k.shape[0])
        throw Rejected("page_table entry " + std::to_string(page) + " is no page of k");
    }
  }
}

void require(const flashproof_tensor& t, const char* name) {
  const int64_t elements = std::accumulate(t.shape, t.shape + t.rank, int64_t(1), std::multiplies<>());
  if (t.data == nullptr && (t.rank == 0 || elements != 0)) throw Rejected(std::string("tensor ") + name + " is absent");
  if (t.memory != FLASHPROOF_HOST) throw Rejected(std::string("tensor ") + name + " is not in host memory");
}

/// t_q, t_k or t_v of entry b and the kv head of query head h; 1 where there are none.
float descale_of(const CallView& view, const flashproof_tensor& t, int64_t b, int64_t h) {
  const int64_t kv_head = h / (view.problem.heads / view.problem.kv_heads);
  return view.problem.descale ? read(t, b * t.stride[0] + kv_head * t.stride[1]) : 1;
}

void check_tensors(const CallView& view) {
  const flashproof_call& c = view.call;
  require(c.q, "q"), require(c.k, "k"), require(c.v, "v"), require(c.o, "o"), require(c.lse, "lse");
  if (view.problem.bias) require(c.bias, "bias");
  if (view.problem.sink) require(c.sink, "sink");
  if (view.problem.alibi) require(c.slopes, "slopes");
  if (view.problem.descale)
    require(c.q_descale, "q_descale"), require(c.k_descale, "k_descale"), require(c.v_descale, "v_descale");
}

}  // namespace

CallView view_call(const flashproof_call& call) {
  if (call.problem == nullptr) throw Rejected("call has no problem");
  const flashproof_problem& p = *call.problem;
  CallView view{call, p, {}, {}, {}, {}, {}};
  check_tensors(view);
  read_lengths(call.cu_seqlens_q, p.packed_q, call.seqused_q, p.used_q, p.batch, call.q.shape[1], p.max_seq_q, "q",
               view.seq_q, view.q_begin);
  read_lengths(call.cu_seqlens_k, p.packed_k, call.seqused_k, p.used_k, p.batch,
               p.page_size > 0 ? p.total_k : call.k.shape[1], p.max_seq_k, "k", view.seq_k, view.k_begin);
  view.key_gradient_begin = view.k_begin;
  if (p.page_size > 0) {
    check_pages(view);
    std::exclusive_scan(view.seq_k.begin(), view.seq_k.end(), view.key_gradient_begin.begin(), int64_t(0));
  }
  return view;
}

ScoreRule<float> load_rule(const CallView& view, int64_t b, int64_t h) {
  const flashproof_problem& p = view.problem;
  const flashproof_call& call = view.call;
  ScoreRule<float> rule;
  rule.mask = {p.causal != 0, p.top_left != 0, p.window_left, p.window_right};
  rule.seq_q = view.seq_q[b];
  rule.seq_k = view.seq_k[b];
  rule.scale = p.scale * descale_of(view, call.q_descale, b, h) * descale_of(view, call.k_descale, b, h);
  rule.softcap = p.softcap;
  if (p.alibi == 1) rule.slope = read(call.slopes, h * call.slopes.stride[0]);
  if (p.alibi == 2) rule.slope = read(call.slopes, b * call.slopes.stride[0] + h * call.slopes.stride[1]);
  rule.has_sink = p.sink != 0;
  if (rule.has_sink) rule.sink = read(call.sink, h * call.sink.stride[0]);
  rule.has_dropout = p.dropout_rate != 0;
  rule.dropout_seed = p.dropout_seed;
  rule.dropout_words = dropout_threshold(p.dropout_rate);
  rule.b = b;
  rule.h = h;
  // In double, so that the factor carries one fp32 rounding.
  rule.value_factor = float(descale_of(view, call.v_descale, b, h) / (1 - double(p.dropout_rate)));
  if (p.bias) {
    const flashproof_tensor& t = call.bias;
    const int64_t rows = t.shape[2] == 1 ? 1 : rule.seq_q, keys = t.shape[3] == 1 ? 1 : rule.seq_k;
    rule.bias_row_stride = t.shape[2] == 1 ? 0 : keys;
    rule.bias_key_stride = t.shape[3] == 1 ? 0 : 1;
    const int64_t base = (t.shape[0] == 1 ? 0 : b * t.stride[0]) + (t.shape[1] == 1 ? 0 : h * t.stride[1]);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < keys; ++j) rule.bias.push_back(read(t, base + i * t.stride[2] + j * t.stride[3]));
  }
  return rule;
}

void load_keys(const CallView& view, int64_t b, int64_t kv_head, Head<float>& head) {
  const flashproof_problem& p = view.problem;
  const int64_t seq_k = view.seq_k[b];
  head.k = Matrix<float>(seq_k, p.head_dim);
  head.v = Matrix<float>(seq_k, p.value_dim);
  for (int64_t j = 0; j < seq_k; ++j) {
    read_row(view.call.k, key_offset(view, view.call.k, b, j, kv_head), p.head_dim, head.k.row(j));
    read_row(view.call.v, key_offset(view, view.call.v, b, j, kv_head), p.value_dim, head.v.row(j));
  }
  head.k_t = transpose(head.k);
  head.v_t = transpose(head.v);
}

void load_queries(const CallView& view, int64_t b, int64_t h, Head<float>& head) {
  const flashproof_problem& p = view.problem;
  const int64_t seq_q = view.seq_q[b];
  const bool has_gradient = view.call.d_o.data != nullptr;
  head.rule = load_rule(view, b, h);
  head.q = Matrix<float>(seq_q, p.head_dim);
  head.d_o = Matrix<float>(has_gradient ? seq_q : 0, p.value_dim);
  for (int64_t i = 0; i < seq_q; ++i) {
    read_row(view.call.q, query_offset(view, view.call.q, b, i, h), p.head_dim, head.q.row(i));
    if (has_gradient) read_row(view.call.d_o, query_offset(view, view.call.d_o, b, i, h), p.value_dim, head.d_o.row(i));
  }
  if (has_gradient) clear_unseeing_rows(head);
}

HeadOutputs<float> load_outputs(const CallView& view, int64_t b, int64_t h) {
  HeadOutputs<float> outputs(view.seq_q[b], view.problem.value_dim);
  for (int64_t i = 0; i < view.seq_q[b]; ++i) {
    read_row(view.call.o, query_offset(view, view.call.o, b, i, h), view.problem.value_dim, outputs.o.row(i));
    outputs.l[i] = read(view.call.lse, lse_offset(view, b, i, h));
  }
  return outputs;
}

void store_outputs(const CallView& view, int64_t b, int64_t h, const HeadOutputs<float>& outputs) {
  for (int64_t i = 0; i < view.seq_q[b]; ++i) {
    write_row(view.call.o, query_offset(view, view.call.o, b, i, h), view.problem.value_dim, outputs.o.row(i));
    write(view.call.lse, lse_offset(view, b, i, h), outputs.l[i]);
  }
}

void store_query_gradient(const CallView& view, int64_t b, int64_t h, const Matrix<float>& dq) {
  for (int64_t i = 0; i < dq.rows; ++i)
    write_row(view.call.dq, query_offset(view, view.call.dq, b, i, h), dq.columns, dq.row(i));
}

void store_key_gradients(const CallView& view, int64_t b, int64_t kv_head, const Matrix<float>& dk,
                         const Matrix<float>& dv) {
  for (int64_t j = 0; j < dk.rows; ++j) {
    write_row(view.call.dk, key_gradient_offset(view, view.call.dk, b, j, kv_head), dk.columns, dk.row(j));
    write_row(view.call.dv, key_gradient_offset(view, view.call.dv, b, j, kv_head), dv.columns, dv.row(j));
  }
}

SharedGradients start_shared_gradients(const CallView& view) {
  SharedGradients shared;
  const flashproof_tensor& bias = view.call.bias;
  if (view.problem.sink) shared.dsink.assign(view.problem.heads, 0);
  if (view.problem.bias) shared.dbias.assign(bias.shape[0] * bias.shape[1] * bias.shape[2] * bias.shape[3], 0);
  return shared;
}

void add_bias_gradient(const CallView& view, int64_t b, int64_t h, const ScoreRule<float>& rule,
                       const std::vector<float>& dbias, SharedGradients& shared) {
  const int64_t* shape = view.call.bias.shape;
  const int64_t slice = (shape[0] == 1 ? 0 : b) * shape[1] + (shape[1] == 1 ? 0 : h);
  const int64_t rows = shape[2] == 1 ? 1 : rule.seq_q, keys = shape[3] == 1 ? 1 : rule.seq_k;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < keys; ++j) shared.dbias[(slice * shape[2] + i) * shape[3] + j] += dbias[i * keys + j];
}

void store_shared_gradients(const CallView& view, const SharedGradients& shared) {
  const flashproof_tensor &dsink = view.call.dsink, &dbias = view.call.dbias;
  for (size_t h = 0; h < shared.dsink.size(); ++h) write(dsink, int64_t(h) * dsink.stride[0], shared.dsink[h]);
  if (shared.dbias.empty()) return;
  const float* next = shared.dbias.data();
  for (int64_t b = 0; b < dbias.shape[0]; ++b)
    for (int64_t h = 0; h < dbias.shape[1]; ++h)
      for (int64_t i = 0; i < dbias.shape[2]; ++i)
        for (int64_t j = 0; j < dbias.shape[3]; ++j)
          write(dbias, offset_of(dbias, b, h, i) + j * dbias.stride[3], *next++);
}

}  // namespace flashproof
