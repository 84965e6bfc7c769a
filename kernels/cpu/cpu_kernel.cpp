// What a CPU kernel refuses, the formats that it rounds to, the text that declares them, and the loops over entries and
// heads. The query heads of a group add to one dK and dV in ascending order, and so do entries and heads to the dbias
// they share.
#include "kernels/cpu/cpu_kernel.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "reference/flash2.h"

namespace flashproof {
namespace {

bool is_fp8(const flashproof_problem& p) { return p.dtype == FLASHPROOF_E4M3 || p.dtype == FLASHPROOF_E5M2; }

/// Of what a table may leave out, the CPU kernels leave out nothing.
void check_problem(const flashproof_problem& p) {
  flashproof_kernel unlimited = {};
  unlimited.dtypes = cpu_dtypes;
  const char* reason = flashproof_reason_against(&unlimited, &p);
  reject_unless(reason == nullptr, reason);
}

/// P has the inputs' format; for fp8, e5m2 too, it is e4m3 times 2^8 (FlashAttention 3). What the backward rounds has
/// that of the outputs.
RoundedOps ops_of(const flashproof_problem& p) {
  RoundedOps ops;
  ops.p_format = is_fp8(p) ? DType::e4m3 : DType(p.dtype);
  ops.p_scale_log2 = is_fp8(p) ? 8 : 0;
  ops.ds_format = ops.output_format = DType(p.out_dtype);
  return ops;
}

/// The text of reference/arithmetic.h: RoundedOps over the algorithm's order of tiles.
std::string arithmetic_text(const HeadAlgorithm& algorithm, const flashproof_problem& p, const CpuTiles& config) {
  constexpr const char* names[] = {"fp32", "bf16", "fp16", "e4m3", "e5m2"};
  const RoundedOps ops = ops_of(p);
  const auto tile = [](int64_t size, int64_t side) {
    return std::to_string(size > 0 ? size : std::max<int64_t>(side, 1));
  };
  return "tile=" + tile(config.tile_m, p.max_seq_q) + "x" + tile(config.tile_n, p.max_seq_k) +
         " order=" + algorithm.order + " scores=fp32 values=fp32 levels=" + std::to_string(config.levels) +
         " exp=expf arg=sub tanh=accurate s=fp32 prescaled=no p=" + names[int(ops.p_format)] +
         " pscale=" + std::to_string(ops.p_scale_log2) + " normalized=" + algorithm.normalized +
         " dropout=output rowsum=1 splits=" + std::to_string(config.splits) +
         " division=ieee ds=" + names[int(ops.ds_format)] + " d=rounded";
}

/// The call's problem and config, checked.
CpuTiles check_call(const HeadAlgorithm& algorithm, const flashproof_call& call, const char* config) {
  reject_unless(call.struct_size == sizeof(flashproof_call),
                "call has another struct_size: built against another header?");
  reject_unless(call.problem != nullptr, "call has no problem");
  check_problem(*call.problem);
  return parse_config(algorithm, config);
}

void forward_all(const HeadAlgorithm& algorithm, const CallView& view, const CpuTiles& config) {
  const flashproof_problem& p = view.problem;
  const int64_t group = p.heads / p.kv_heads;
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t kv_head = 0; kv_head < p.kv_heads; ++kv_head) {
      Head<float> head;
      load_keys(view, b, kv_head, head);
      for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
        load_queries(view, b, h, head);
        store_outputs(view, b, h, algorithm.forward(ops_of(p), head, config));
      }
    }
}

void backward_all(const HeadAlgorithm& algorithm, const CallView& view, const CpuTiles& config) {
  const flashproof_problem& p = view.problem;
  const RoundedOps ops = ops_of(p);
  const int64_t group = p.heads / p.kv_heads;
  SharedGradients shared = start_shared_gradients(view);
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t kv_head = 0; kv_head < p.kv_heads; ++kv_head) {
      Head<float> head;
      HeadGradients<float> gradients;
      load_keys(view, b, kv_head, head);
      gradients.dk = Matrix<float>(view.seq_k[b], p.head_dim);
      gradients.dv = Matrix<float>(view.seq_k[b], p.value_dim);
      for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
        load_queries(view, b, h, head);
        gradients.dq = Matrix<float>(view.seq_q[b], p.head_dim);
        gradients.dbias.assign(head.rule.bias.size(), 0);
        gradients.dsink = p.sink ? shared.dsink[h] : 0;
        algorithm.backward(ops, head, config, load_outputs(view, b, h), gradients);
        finish_gradient(ops, gradients.dq, head.rule.scale);
        store_query_gradient(view, b, h, gradients.dq);
        if (p.bias) add_bias_gradient(view, b, h, head.rule, gradients.dbias, shared);
        if (p.sink) shared.dsink[h] = gradients.dsink;
      }
      finish_gradient(ops, gradients.dk, head.rule.scale);
      finish_gradient(ops, gradients.dv, head.rule.value_factor);
      store_key_gradients(view, b, kv_head, gradients.dk, gradients.dv);
    }
  store_shared_gradients(view, shared);
}

}  // namespace

void backward_by_key_tiles(const RoundedOps& ops, const Head<float>& head, const CpuTiles& config,
                           const HeadOutputs<float>& stored, HeadGradients<float>& out) {
  flash2_backward(ops, head, {config.tile_m, config.tile_n}, stored.o, stored.l, out);
}

CpuTiles parse_config(const HeadAlgorithm& algorithm, const char* config) {
  CpuTiles result = algorithm.defaults;
  std::string_view rest = config == nullptr ? "" : config;
  while (!rest.empty()) {
    const size_t end = rest.find_first_of(", ");
    const std::string_view word = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (word.empty()) continue;
    const std::string_view key = word.substr(0, word.find('='));
    bool known = false;
    for (const char* tunable : algorithm.tunables) known = known || key == tunable;
    if (!known) throw Rejected("config key '" + std::string(key) + "' is not one of this kernel's tunables");
    const std::string_view text = word.substr(key.size() < word.size() ? key.size() + 1 : key.size());
    const int64_t largest = key == "splits" ? largest_split : key == "levels" ? 2 : largest_tile;
    int64_t value = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || stop != text.data() + text.size() || value < 1 || value > largest)
      throw Rejected("config '" + std::string(word) + "': " + std::string(key) + " is an integer from 1 to " +
                     std::to_string(largest));
    (key == "tile_m"   ? result.tile_m
     : key == "tile_n" ? result.tile_n
     : key == "splits" ? result.splits
                       : result.levels) = value;
  }
  return result;
}

flashproof_status cpu_supports(const HeadAlgorithm& algorithm, const flashproof_problem* problem, const char* config,
                               char* message, size_t message_size) {
  return guarded(message, message_size, [&] {
    check_problem(*problem);
    parse_config(algorithm, config);
  });
}

const char* cpu_arithmetic(const HeadAlgorithm& algorithm, const flashproof_problem* problem, const char* config) {
  return text_unless_thrown([&] { return arithmetic_text(algorithm, *problem, parse_config(algorithm, config)); });
}

flashproof_status cpu_forward(const HeadAlgorithm& algorithm, const flashproof_call* call, const char* config,
                              char* message, size_t message_size) {
  return guarded(message, message_size, [&] {
    const CpuTiles tiles = check_call(algorithm, *call, config);
    forward_all(algorithm, view_call(*call), tiles);
  });
}

flashproof_status cpu_backward(const HeadAlgorithm& algorithm, const flashproof_call* call, const char* config,
                               char* message, size_t message_size) {
  return guarded(message, message_size, [&] {
    const CpuTiles tiles = check_call(algorithm, *call, config);
    backward_all(algorithm, view_call(*call), tiles);
  });
}

}  // namespace flashproof
