// Where the operands of a problem lie, and its groups of rows on the host; see prediction.h.
#include "oracle/gpu/prediction.h"

#include <algorithm>
#include <stdexcept>

#include "oracle/bits.h"
#include "reference/errors.h"
#include "reference/head_of_inputs.h"
#include "reference/threads.h"

namespace flashproof {
namespace {

/// Where an entry's kv heads begin among the rows of decoded V.
std::vector<int64_t> value_begins(const Inputs& in, const PredictionShape& shape) {
  std::vector<int64_t> begin = {0};
  for (int64_t b = 0; b < in.problem.batch; ++b)
    begin.push_back(begin.back() + in.problem.kv_heads * rows_of_values(shape, in.packing.seq_k(b)));
  return begin;
}

void set_bias(const Inputs& in, const HeadIndex& at, const unsigned char* bytes, ScoreRule<float, EncodedView>& rule) {
  const std::vector<int64_t>& extent = in.bias.shape;
  const int64_t entry = extent[0] == 1 ? 0 : at.b, head = extent[1] == 1 ? 0 : at.h;
  rule.bias = {in.bias.dtype,
               bytes + (entry * extent[1] + head) * extent[2] * extent[3] * (format_of(in.bias.dtype).bits / 8)};
  rule.bias_row_stride = extent[2] == 1 ? 0 : extent[3];
  rule.bias_key_stride = extent[3] == 1 ? 0 : 1;
}

}  // namespace

PredictionShape prediction_shape(const Problem& p, const Arithmetic& a) {
  PredictionShape shape;
  shape.ops = hardware_ops(p, a);
  shape.heads = p.heads;
  shape.inner = padded(shape.ops.scores, p.head_dim);
  shape.value_dim = p.value_dim;
  const int64_t longest = std::max<int64_t>(max_used_length(p.q, p.batch), 1);
  shape.tile_m = std::min<int64_t>(a.tile_m, longest);  // a longer tile has the same rows
  shape.tile_n = a.tile_n;
  return shape;
}

OperandCounts operand_counts(const Inputs& in, const PredictionShape& shape) {
  return {in.packing.total_q() * in.problem.heads * shape.inner,
          in.packing.total_k() * in.problem.kv_heads * shape.inner, value_begins(in, shape).back() * shape.value_dim};
}

std::vector<HeadTask> head_tasks(const Inputs& in, const Arithmetic& a, const PredictionArrays& arrays) {
  const Problem& p = in.problem;
  const PredictionShape shape = prediction_shape(p, a);
  const std::vector<int64_t> value_begin = value_begins(in, shape);
  std::vector<HeadTask> tasks;
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t h = 0; h < p.heads; ++h) {
      const HeadIndex at = head_index(in, b, h);
      HeadTask task;
      task.rule = rule_without_bias<float, EncodedView>(in, at);
      set_factors(in, a, at, task.rule);
      if (p.bias) set_bias(in, at, arrays.bias, task.rule);
      task.encoded_q = {{p.dtype, arrays.q}, at.query_row(0), at.heads, p.head_dim};
      task.encoded_k = {{p.dtype, arrays.k}, at.key_row(0), at.kv_heads, p.head_dim};
      task.encoded_v = {{p.dtype, arrays.v}, at.key_row(0), at.kv_heads, p.value_dim};
      task.q = arrays.decoded_q + (at.q_begin * at.heads + h * at.seq_q) * shape.inner;
      task.k = arrays.decoded_k + (at.k_begin * at.kv_heads + at.kv_head * at.seq_k) * shape.inner;
      task.v = arrays.decoded_v + (value_begin[b] + at.kv_head * rows_of_values(shape, at.seq_k)) * shape.value_dim;
      task.o = arrays.o + at.query_row(0) * shape.value_dim;
      task.lse = arrays.lse + at.query_row(0);
      tasks.push_back(task);
    }
  return tasks;
}

Outputs outputs_of_bits(const Problem& p, const std::vector<uint32>& o, const std::vector<uint32>& lse) {
  Problem forward = p;
  forward.direction = Direction::forward;
  Outputs out = make_outputs(forward);
  for (int64_t n = 0; n < out.o.size(); ++n) out.o.set_bits(n, o[n]);
  for (int64_t n = 0; n < out.lse.size(); ++n) out.lse.set_bits(n, lse[n]);
  return out;
}

Outputs predict_by_groups(const Inputs& in, const Arithmetic& a, int threads) {
  if (const std::string reason = unpredictable(in.problem, a); !reason.empty()) throw std::invalid_argument(reason);
  const PredictionShape shape = prediction_shape(in.problem, a);
  const OperandCounts counts = operand_counts(in, shape);
  std::vector<DecodedOperand> q(counts.q), k(counts.k), v(counts.v);
  std::vector<uint32> lse(in.packing.total_q() * in.problem.heads), o(lse.size() * shape.value_dim);
  const std::vector<HeadTask> heads =
      head_tasks(in, a,
                 {in.q.bytes.data(), in.k.bytes.data(), in.v.bytes.data(), in.bias.bytes.data(), q.data(), k.data(),
                  v.data(), o.data(), lse.data()});
  const int64_t group = in.problem.heads / in.problem.kv_heads;
  for_each_item(int64_t(heads.size()), threads, [&](int64_t n) {
    decode_queries(shape, heads[n], Team{});
    if (n % group != 0) return;  // H is a multiple of it
    decode_keys(shape, heads[n], Team{});
    decode_values(shape, heads[n], Team{});
  });
  const auto make_state = [&] { return std::vector<uint64>(group_state_bytes(shape.tile_n, shape.value_dim) / 8 + 1); };
  for (const HeadTask& head : heads)
    for_each_item_with(groups_of_head(shape, head.rule.seq_q), threads, make_state,
                       [&](std::vector<uint64>& memory, int64_t n) {
                         const GroupState state = group_state_at(memory.data(), shape.tile_n, shape.value_dim);
                         const Span rows = rows_of_group(shape, head.rule.seq_q, n);
                         if (rows.begin < rows.end) predict_group(shape, head, rows, state, Team{});
                       });
  return outputs_of_bits(in.problem, o, lse);
}

#ifndef FLASHPROOF_HAVE_CUDA
std::string gpu_lacks(const Problem&, const Arithmetic&) { return "this program was built without CUDA"; }
Outputs predict_on_gpu(const Inputs& in, const Arithmetic& a) {
  throw UnavailableError(gpu_lacks(in.problem, a) + "; with nvcc (12.0 or later) on PATH build it again");
}
#endif

}  // namespace flashproof
