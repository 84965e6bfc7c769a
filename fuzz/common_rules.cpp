// See common_rules.h.
#include "fuzz/common_rules.h"

#include <cmath>

#include "oracle/value.h"

namespace flashproof {
namespace {

/// Shapes of a kernel's ordinary test suite.
constexpr const char* usual_cases[] = {
    "b2 h4 q128 k128 d64",     "b2 h4/2 q113 k203 d64 causal",           "h2 q256 k256 d128 window=64,0",
    "h4/1 k512 d128",          "h2 q97 k97 d64 causal softcap=15 alibi", "seqq=[40,7,65] seqk=[40,30,65] h2 d64 causal",
    "b2 h4 q128 k128 d64 bwd", "h4/2 q113 k113 d64 causal bwd",
};

/// One query head of one batch entry; elements by position inside the entry.
struct PlainHead {
  const Inputs& in;
  int64_t b, h;
  const Problem& p = in.problem;
  int64_t seq_q = in.packing.seq_q(b), seq_k = in.packing.seq_k(b);
  int64_t row0 = in.packing.q_begin[size_t(b)], key0 = in.packing.k_begin[size_t(b)],
          kv_head = h / (p.heads / p.kv_heads);
  double scale = scale_of(p);

  int64_t q_at(int64_t i, int64_t width) const { return ((row0 + i) * p.heads + h) * width; }
  int64_t k_at(int64_t j, int64_t width) const { return ((key0 + j) * p.kv_heads + kv_head) * width; }
  double round(double x) const { return round_to(output_dtype(p), x); }
  double dot(const Tensor& a, int64_t a_at, const Tensor& b, int64_t b_at, int64_t width) const {
    double sum = 0;
    for (int64_t c = 0; c < width; ++c) sum += a.at(a_at + c) * b.at(b_at + c);
    return sum;
  }

  double score(int64_t i, int64_t j) const {
    double s = 0;
    for (int64_t c = 0; c < p.head_dim; ++c)
      s += round(in.q.at(q_at(i, p.head_dim) + c) * scale) * in.k.at(k_at(j, p.head_dim) + c);
    s = round(s);
    if (p.softcap > 0) s = round(p.softcap * round(std::tanh(round(s / p.softcap))));
    const double distance = std::abs(double(i + alignment_offset(p.mask, seq_q, seq_k) - j));
    if (p.alibi != Alibi::none) s = round(s - round(in.slopes[size_t(b * p.heads + h)] * distance));
    return s + bias_at(in, b, h, i, j);
  }

  /// p_ij of row i, for fp8 by way of e4m3 (FlashAttention 3's tests); zeros where the row sees no key.
  std::vector<double> weights(int64_t i) const {
    std::vector<double> w(seq_k, -INFINITY);
    double top = -INFINITY, sum = 0;
    for (int64_t j = 0; j < seq_k; ++j)
      if (sees(in, b, h, i, j)) top = std::max(top, w[j] = score(i, j));
    for (double& x : w) sum += x = top == -INFINITY ? 0 : std::exp(x - top);
    for (double& x : w) x = sum == 0 ? 0 : round(x / sum);
    if (output_dtype(p) != p.dtype)
      for (double& x : w) x = round_to(DType::e4m3, x);
    return w;
  }

  void write_o(int64_t i, const std::vector<double>& w, Tensor& o) const {
    for (int64_t c = 0; c < p.value_dim; ++c) {
      double sum = 0;
      for (int64_t j = 0; j < seq_k; ++j) sum += w[j] * in.v.at(k_at(j, p.value_dim) + c);
      o.set_bits(q_at(i, p.value_dim) + c, encode(o.dtype, sum));
    }
  }

  /// Writes dQ of row i and adds its share of dK [total_k, H, d] and dV [total_k, H, e] of this query head.
  void write_gradients(int64_t i, const std::vector<double>& w, Tensor& dq, std::vector<double>& dk,
                       std::vector<double>& dv) const {
    std::vector<double> ds(seq_k);
    double d = 0;
    for (int64_t j = 0; j < seq_k; ++j) {
      ds[j] = round(dot(in.d_o, q_at(i, p.value_dim), in.v, k_at(j, p.value_dim), p.value_dim));
      d += w[j] * ds[j];
    }
    for (int64_t j = 0; j < seq_k; ++j) ds[j] = round(w[j] * (ds[j] - d));
    for (int64_t c = 0; c < p.head_dim; ++c) {
      double sum = 0;
      for (int64_t j = 0; j < seq_k; ++j) sum += ds[j] * in.k.at(k_at(j, p.head_dim) + c);
      dq.set_bits(q_at(i, p.head_dim) + c, encode(dq.dtype, round(sum) * scale));
    }
    for (int64_t j = 0; j < seq_k; ++j) {
      const int64_t key = (key0 + j) * p.heads + h;
      for (int64_t c = 0; c < p.head_dim; ++c)
        dk[key * p.head_dim + c] += ds[j] * round(in.q.at(q_at(i, p.head_dim) + c) * scale);
      for (int64_t c = 0; c < p.value_dim; ++c) dv[key * p.value_dim + c] += w[j] * in.d_o.at(q_at(i, p.value_dim) + c);
    }
  }
};

/// Sums over the query heads of a group: each head's gradient rounded, as PyTorch's repeat and sum do.
void sum_groups(const Problem& p, const std::vector<double>& by_head, int64_t width, Tensor& out) {
  const int64_t group = p.heads / p.kv_heads, keys = out.shape[0];
  for (int64_t j = 0; j < keys; ++j)
    for (int64_t g = 0; g < p.kv_heads; ++g)
      for (int64_t c = 0; c < width; ++c) {
        double sum = 0;
        for (int64_t h = g * group; h < (g + 1) * group; ++h)
          sum += round_to(out.dtype, by_head[(j * p.heads + h) * width + c]);
        out.set_bits((j * p.kv_heads + g) * width + c, encode(out.dtype, sum));
      }
}

struct Tolerance {
  double relative, absolute;
};
Tolerance tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return {1.6e-2, 1e-5};
    case DType::fp16:
      return {1e-3, 1e-5};
    default:
      return {1.3e-6, 1e-5};
  }
}

RuleVerdict judge(const std::string& text, OutputId id, const Tensor& out, const Tensor& plain,
                  const OutputValues& exact) {
  RuleVerdict verdict{text, id, true, true};
  const Tolerance tolerance = tolerance_of(out.dtype);
  double error = 0, plain_error = 0;
  for (int64_t i = 0; i < out.size(); ++i) {
    const double ref = round_to(out.dtype, exact.mid[size_t(i)]);
    const double distance = std::abs(out.at(i) - ref);
    // A NaN must fail both comparisons.
    if (!(distance <= tolerance.absolute + tolerance.relative * std::abs(ref))) verdict.allclose = false;
    error = std::isnan(distance) ? INFINITY : std::max(error, distance);
    plain_error = std::max(plain_error, std::abs(plain.at(i) - ref));
  }
  verdict.twice = error <= 2 * plain_error;
  return verdict;
}

/// The case in the first format that the kernel takes; nothing when it takes none.
bool accepted(const LoadedKernel& kernel, const char* words, Case& c) {
  for (const char* dtype : {"bf16 ", "fp16 ", "fp32 ", "e4m3 ", "e5m2 "}) {
    std::string reason;
    c = parse_case(std::string(dtype) + words + " seed=1");
    if (supports(kernel, c.problem, "", reason)) return true;
  }
  return false;
}

}  // namespace

Outputs plain_attention(const Inputs& in) {
  const Problem& p = in.problem;
  Outputs out = make_outputs(p);
  const size_t columns = size_t(in.packing.total_k() * p.heads);
  std::vector<double> dk(has_backward(p) ? columns * size_t(p.head_dim) : 0),
      dv(has_backward(p) ? columns * size_t(p.value_dim) : 0);
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t h = 0; h < p.heads; ++h) {
      const PlainHead head{in, b, h};
      for (int64_t i = 0; i < head.seq_q; ++i) {
        const std::vector<double> weights = head.weights(i);
        head.write_o(i, weights, out.o);
        if (has_backward(p)) head.write_gradients(i, weights, out.dq, dk, dv);
      }
    }
  if (has_backward(p)) sum_groups(p, dk, p.head_dim, out.dk), sum_groups(p, dv, p.value_dim, out.dv);
  return out;
}

std::vector<RuleVerdict> judge_by_common_rules(Worker& worker, const LoadedKernel& kernel) {
  std::vector<RuleVerdict> verdicts;
  for (const char* words : usual_cases) {
    Case c;
    if (!accepted(kernel, words, c)) continue;
    const Inputs inputs = make_inputs(c);
    const RunResult result = worker.run(Run{c, Placement{false, false, 1}}, "");
    const Values exact = value_double(inputs, Sample{});
    const Outputs plain = plain_attention(inputs);
    for (const OutputId id : {OutputId::o, OutputId::dq, OutputId::dk, OutputId::dv}) {
      if (id != OutputId::o && !has_backward(c.problem)) continue;
      if (result.status == RunStatus::ok)
        verdicts.push_back(judge(print(c), id, tensor_of(result.outputs, id), tensor_of(plain, id), exact[id]));
      else
        verdicts.push_back({print(c), id, false, false});
    }
  }
  return verdicts;
}

}  // namespace flashproof
