// A call of the C interface for small tensors: strides with gaps, packing and pages; every byte that is no logical
// element is 0xff, which is NaN in every format.
#pragma once
#include <algorithm>
#include <array>
#include <cstring>
#include <deque>

#include "kernels/flashproof_kernel.h"
#include "reference/inputs.h"

namespace flashproof::test {

class SmallCall {
 public:
  explicit SmallCall(const Inputs& in) : in_(in) {
    const Problem& p = in.problem;
    fill_problem();
    call.struct_size = sizeof call;
    call.problem = &problem;
    fill_lengths();
    const int64_t slots_q = problem.packed_q ? problem.total_q : problem.max_seq_q;
    call.q = sequence_tensor(p.dtype, side_batch(problem.packed_q), slots_q, p.heads, p.head_dim);
    call.o = sequence_tensor(output_dtype(p), side_batch(problem.packed_q), slots_q, p.heads, p.value_dim);
    call.k = key_tensor(p.head_dim, p.dtype);
    call.v = key_tensor(p.value_dim, p.dtype);
    call.lse = tensor(DType::fp32, {side_batch(problem.packed_q), p.heads, slots_q, 1}, 3);
    if (p.bias) {
      call.bias = tensor(in.bias.dtype, {in.bias.shape[0], in.bias.shape[1], in.bias.shape[2], in.bias.shape[3]}, 4);
      call.dbias = tensor(DType::fp32, {in.bias.shape[0], in.bias.shape[1], in.bias.shape[2], in.bias.shape[3]}, 4);
      for (int64_t n = 0; n < in.bias.size(); ++n) set(call.bias, n, in.bias.bits(n));
    }
    if (p.alibi != Alibi::none) {
      const bool by_batch = p.alibi == Alibi::per_batch_and_head;
      call.slopes =
          by_batch ? tensor(DType::fp32, {p.batch, p.heads, 1, 1}, 2) : tensor(DType::fp32, {p.heads, 1, 1, 1}, 1);
      for (int64_t n = 0; n < (by_batch ? p.batch : 1) * p.heads; ++n)
        set(call.slopes, n, encode(DType::fp32, in.slopes[size_t(n)]));
    }
    if (p.sink) {
      call.sink = tensor(DType::fp32, {p.heads, 1, 1, 1}, 1);
      call.dsink = tensor(DType::fp32, {p.heads, 1, 1, 1}, 1);
      for (int64_t h = 0; h < p.heads; ++h) set(call.sink, h, encode(DType::fp32, in.sinks[size_t(h)]));
    }
    if (p.descale) {
      call.q_descale = numbers(in.q_descale);
      call.k_descale = numbers(in.k_descale);
      call.v_descale = numbers(in.v_descale);
    }
    scatter(in.q, call.q, true);
    scatter(in.k, call.k, false);
    scatter(in.v, call.v, false);
  }

  /// Gives the call dO and the gradients, for backward.
  void add_gradients() {
    const Problem& p = in_.problem;
    const int64_t slots_q = problem.packed_q ? problem.total_q : problem.max_seq_q;
    call.d_o = sequence_tensor(p.dtype, side_batch(problem.packed_q), slots_q, p.heads, p.value_dim);
    call.dq = sequence_tensor(output_dtype(p), side_batch(problem.packed_q), slots_q, p.heads, p.head_dim);
    if (p.paging) {
      call.dk = sequence_tensor(output_dtype(p), 1, in_.packing.total_k(), p.kv_heads, p.head_dim);
      call.dv = sequence_tensor(output_dtype(p), 1, in_.packing.total_k(), p.kv_heads, p.value_dim);
    } else {
      call.dk = key_tensor(p.head_dim, output_dtype(p));
      call.dv = key_tensor(p.value_dim, output_dtype(p));
    }
    scatter(in_.d_o, call.d_o, true);
  }

  /// Logical elements of an output, decoded; L as [total_q, H].
  std::vector<double> gather_queries(const flashproof_tensor& t, int64_t columns) const {
    std::vector<double> values;
    for (int64_t b = 0; b < in_.problem.batch; ++b)
      for (int64_t i = 0; i < in_.packing.seq_q(b); ++i)
        for (int64_t h = 0; h < in_.problem.heads; ++h)
          for (int64_t c = 0; c < columns; ++c) values.push_back(get(t, query_offset(t, b, i, h) + c));
    return values;
  }
  std::vector<double> gather_lse() const {
    std::vector<double> values;
    for (int64_t b = 0; b < in_.problem.batch; ++b)
      for (int64_t i = 0; i < in_.packing.seq_q(b); ++i)
        for (int64_t h = 0; h < in_.problem.heads; ++h) values.push_back(get(call.lse, lse_offset(b, i, h)));
    return values;
  }
  std::vector<double> gather_key_gradients(const flashproof_tensor& t, int64_t columns) const {
    std::vector<double> values;
    for (int64_t b = 0; b < in_.problem.batch; ++b)
      for (int64_t j = 0; j < in_.packing.seq_k(b); ++j)
        for (int64_t h = 0; h < in_.problem.kv_heads; ++h)
          for (int64_t c = 0; c < columns; ++c) {
            const int64_t packed = in_.packing.k_begin[size_t(b)] + j;
            const int64_t offset = in_.problem.paging ? packed * t.stride[1] + h * t.stride[2] : key_offset(t, b, j, h);
            values.push_back(get(t, offset + c));
          }
    return values;
  }
  std::vector<double> gather_all(const flashproof_tensor& t, int64_t elements) const {
    std::vector<double> values;
    for (int64_t n = 0; n < elements; ++n) values.push_back(get(t, n));
    return values;
  }
  /// Bytes of the tensor's buffer that still hold poison.
  int64_t untouched_bytes(const flashproof_tensor& t) const {
    for (const std::vector<uint8_t>& bytes : buffers_)
      if (bytes.data() == t.data) return std::count(bytes.begin(), bytes.end(), 0xff);
    return 0;
  }

  flashproof_problem problem{};
  flashproof_call call{};

 private:
  void fill_problem() {
    const Problem& p = in_.problem;
    problem.struct_size = sizeof problem;
    problem.dtype = int(p.dtype);
    problem.out_dtype = int(output_dtype(p));
    problem.batch = p.batch, problem.heads = p.heads, problem.kv_heads = p.kv_heads;
    problem.head_dim = p.head_dim, problem.value_dim = p.value_dim;
    for (int64_t b = 0; b < p.batch; ++b) {
      problem.max_seq_q = std::max(problem.max_seq_q, slot_length(p.q, b));
      problem.max_seq_k = std::max(problem.max_seq_k, slot_length(p.k, b));
      problem.total_q += slot_length(p.q, b);
      problem.total_k += slot_length(p.k, b);
    }
    problem.packed_q = !p.q.packed.empty(), problem.packed_k = !p.k.packed.empty();
    problem.used_q = !p.q.used.empty(), problem.used_k = !p.k.used.empty();
    problem.page_size = p.paging ? p.paging->size : 0;
    problem.scale = scale_of(p);
    problem.causal = p.mask.causal, problem.top_left = p.mask.top_left;
    problem.window_left = p.mask.window_left, problem.window_right = p.mask.window_right;
    problem.softcap = p.softcap;
    problem.alibi = int(p.alibi);
    problem.bias = p.bias.has_value(), problem.sink = p.sink, problem.descale = p.descale;
    if (p.dropout) problem.dropout_rate = p.dropout->rate, problem.dropout_seed = p.dropout->seed;
    problem.backward = has_backward(p);
  }
  void fill_lengths() {
    const Problem& p = in_.problem;
    for (int64_t b = 0, q = 0, k = 0; b <= p.batch; ++b) {
      cu_q_.push_back(int32_t(q)), cu_k_.push_back(int32_t(k));
      if (b < p.batch) q += slot_length(p.q, b), k += slot_length(p.k, b);
    }
    for (int64_t length : p.q.used) used_q_.push_back(int32_t(length));
    for (int64_t length : p.k.used) used_k_.push_back(int32_t(length));
    if (problem.packed_q) call.cu_seqlens_q = integers(cu_q_);
    if (problem.packed_k) call.cu_seqlens_k = integers(cu_k_);
    if (problem.used_q) call.seqused_q = integers(used_q_);
    if (problem.used_k) call.seqused_k = integers(used_k_);
    if (!p.paging) return;
    pages_an_entry_ = (problem.max_seq_k + p.paging->size - 1) / p.paging->size + 1;
    // Descending page numbers; entries past the used length lead nowhere.
    for (int64_t b = 0; b < p.batch; ++b)
      for (int64_t n = 0; n < pages_an_entry_; ++n) {
        const bool used = n * p.paging->size < in_.packing.seq_k(b);
        table_.push_back(used ? int32_t((p.batch - b) * pages_an_entry_ - 1 - n) : -1);
      }
    call.page_table = integers(table_);
  }
  static flashproof_integers integers(const std::vector<int32_t>& v) { return {v.data(), v.data(), int64_t(v.size())}; }

  int64_t side_batch(int32_t packed) const { return packed ? 1 : in_.problem.batch; }

  flashproof_tensor tensor(DType dtype, std::array<int64_t, 4> shape, int rank) {
    flashproof_tensor t{};
    t.dtype = int(dtype), t.memory = FLASHPROOF_HOST, t.rank = rank;
    int64_t stride = 1;
    for (int axis = rank - 1; axis >= 0; --axis) {
      t.shape[axis] = shape[size_t(axis)], t.stride[axis] = stride;
      stride *= shape[size_t(axis)];
    }
    t.data = allocate(dtype, stride);
    return t;
  }
  /// Descales, [B, Hk].
  flashproof_tensor numbers(const std::vector<float>& values) {
    flashproof_tensor t = tensor(DType::fp32, {in_.problem.batch, in_.problem.kv_heads, 1, 1}, 2);
    for (size_t n = 0; n < values.size(); ++n) set(t, int64_t(n), encode(DType::fp32, values[n]));
    return t;
  }
  /// [batch, slots, heads, columns] in the problem's layout.
  flashproof_tensor sequence_tensor(DType dtype, int64_t batch, int64_t slots, int64_t heads, int64_t columns) {
    const Layout& layout = in_.problem.layout;
    const int64_t row = columns + layout.row_gap;
    flashproof_tensor t{};
    t.dtype = int(dtype), t.memory = FLASHPROOF_HOST, t.rank = 4;
    t.shape[0] = batch, t.shape[1] = slots, t.shape[2] = heads, t.shape[3] = columns;
    t.stride[0] = slots * heads * row, t.stride[3] = 1;
    t.stride[1] = layout.heads_first ? row : heads * row;
    t.stride[2] = layout.heads_first ? slots * row : row;
    t.data = allocate(dtype, batch * t.stride[0]);
    return t;
  }
  flashproof_tensor key_tensor(int64_t columns, DType dtype) {
    const Problem& p = in_.problem;
    if (p.paging) return sequence_tensor(dtype, p.batch * pages_an_entry_, p.paging->size, p.kv_heads, columns);
    return sequence_tensor(dtype, side_batch(problem.packed_k), problem.packed_k ? problem.total_k : problem.max_seq_k,
                           p.kv_heads, columns);
  }
  void* allocate(DType dtype, int64_t elements) {
    buffers_.emplace_back(size_t(std::max<int64_t>(elements, 1) * format_of(dtype).bits / 8), uint8_t(0xff));
    return buffers_.back().data();
  }

  int64_t query_offset(const flashproof_tensor& t, int64_t b, int64_t i, int64_t h) const {
    const int64_t token = problem.packed_q ? cu_q_[size_t(b)] + i : i;
    return (problem.packed_q ? 0 : b * t.stride[0]) + token * t.stride[1] + h * t.stride[2];
  }
  int64_t lse_offset(int64_t b, int64_t i, int64_t h) const {
    const flashproof_tensor& t = call.lse;
    return problem.packed_q ? h * t.stride[1] + cu_q_[size_t(b)] + i : b * t.stride[0] + h * t.stride[1] + i;
  }
  int64_t key_offset(const flashproof_tensor& t, int64_t b, int64_t j, int64_t h) const {
    if (problem.page_size > 0) {
      const int64_t page = table_[size_t(b * pages_an_entry_ + j / problem.page_size)];
      return page * t.stride[0] + j % problem.page_size * t.stride[1] + h * t.stride[2];
    }
    const int64_t token = problem.packed_k ? cu_k_[size_t(b)] + j : j;
    return (problem.packed_k ? 0 : b * t.stride[0]) + token * t.stride[1] + h * t.stride[2];
  }
  void scatter(const Tensor& from, const flashproof_tensor& to, bool queries) const {
    const int64_t heads = from.shape[1], columns = from.shape[2];
    for (int64_t b = 0; b < in_.problem.batch; ++b) {
      const int64_t begin = queries ? in_.packing.q_begin[size_t(b)] : in_.packing.k_begin[size_t(b)];
      const int64_t length = queries ? in_.packing.seq_q(b) : in_.packing.seq_k(b);
      for (int64_t s = 0; s < length; ++s)
        for (int64_t h = 0; h < heads; ++h)
          for (int64_t c = 0; c < columns; ++c)
            set(to, (queries ? query_offset(to, b, s, h) : key_offset(to, b, s, h)) + c,
                from.bits(((begin + s) * heads + h) * columns + c));
    }
  }
  static void set(const flashproof_tensor& t, int64_t offset, uint32_t bits) {
    const size_t width = size_t(format_of(DType(t.dtype)).bits / 8);
    std::memcpy(static_cast<uint8_t*>(t.data) + size_t(offset) * width, &bits, width);
  }
  static double get(const flashproof_tensor& t, int64_t offset) {
    const size_t width = size_t(format_of(DType(t.dtype)).bits / 8);
    uint32_t bits = 0;
    std::memcpy(&bits, static_cast<const uint8_t*>(t.data) + size_t(offset) * width, width);
    return decode(DType(t.dtype), bits);
  }

  const Inputs& in_;
  std::deque<std::vector<uint8_t>> buffers_;
  std::vector<int32_t> cu_q_, cu_k_, used_q_, used_k_, table_;
  int64_t pages_an_entry_ = 0;
};

}  // namespace flashproof::test
