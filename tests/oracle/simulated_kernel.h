// Right kernels without the C interface: the algorithms of reference/ in rounded fp32, head by head, on logical
// tensors.
#pragma once
#include "reference/arithmetic.h"
#include "reference/flash1.h"
#include "reference/flash3.h"
#include "reference/flash_decoding.h"
#include "reference/standard.h"
#include "tests/reference/small_inputs.h"

namespace flashproof::test {

enum class Algorithm { standard, flash1, flash2, flash3, decode };

struct SimulatedKernel {
  Algorithm algorithm = Algorithm::flash2;
  TileSize tile{16, 16};
  int64_t splits = 1;
  bool two_level = false;  ///< flash3
  int p_scale_log2 = 8;    ///< in fp8
  double exp_error = 0;  ///< relative, of every exponential but exp(0) = 1; `expf` allows 2.5 * 2^-23 with its rounding
};

struct SimulatedOps : RoundedOps {
  double exp_error = 0;
  float exp(float x) const {
    return x == 0 || x == minus_infinity() ? RoundedOps::exp(x) : float(std::exp(double(x)) * (1 + exp_error));
  }
};

/// P in the inputs' format, in e4m3 times 2^8 for fp8 ones; dS and outputs in the outputs'.
inline SimulatedOps ops_of(const SimulatedKernel& kernel, const Problem& p) {
  SimulatedOps ops;
  ops.exp_error = kernel.exp_error;
  ops.ds_format = ops.output_format = output_dtype(p);
  const bool fp8 = output_dtype(p) != p.dtype;
  ops.p_format = fp8 ? DType::e4m3 : p.dtype;
  ops.p_scale_log2 = fp8 ? kernel.p_scale_log2 : 0;
  return ops;
}

/// Its arithmetic as declared text.
inline std::string arithmetic_of(const SimulatedKernel& kernel, const Problem& p) {
  constexpr const char* names[] = {"fp32", "bf16", "fp16", "e4m3", "e5m2"};
  const SimulatedOps ops = ops_of(kernel, p);
  const bool standard = kernel.algorithm == Algorithm::standard, flash1 = kernel.algorithm == Algorithm::flash1;
  const int64_t rows = standard ? std::max<int64_t>(max_used_length(p.q, p.batch), 1) : kernel.tile.rows;
  const int64_t keys = standard ? std::max<int64_t>(max_used_length(p.k, p.batch), 1) : kernel.tile.keys;
  return "tile=" + std::to_string(rows) + "x" + std::to_string(keys) +
         " order=" + (kernel.algorithm == Algorithm::flash3 ? "descending" : "ascending") +
         " scores=fp32 values=fp32 levels=" + (flash1 || kernel.two_level ? "2" : "1") +
         " exp=expf arg=sub tanh=accurate s=fp32 prescaled=no p=" + names[int(ops.p_format)] +
         " pscale=" + std::to_string(ops.p_scale_log2) + " normalized=" +
         (standard ? "yes"
          : flash1 ? "each-tile"
                   : "no") +
         " dropout=output rowsum=1 splits=" +
         std::to_string(kernel.algorithm == Algorithm::decode ? kernel.splits : 1) +
         " division=ieee ds=" + names[int(ops.ds_format)] + " d=rounded";
}

inline bool eight_bits(const Problem& p) { return p.dtype == DType::e4m3 || p.dtype == DType::e5m2; }

/// Scores are <q, k> themselves, the scale being in the exponent's factor.
inline bool raw_scores(const Problem& p) {
  return p.softcap == 0 && p.alibi == Alibi::none && !p.bias && !p.sink && !p.descale && scale_of(p) > 0;
}

/// A tensor-core kernel of FlashAttention 2 on Hopper, every word declared; not for fp32.
inline std::string hopper_arithmetic(const Problem& p, int64_t tile_m, int64_t tile_n) {
  const bool fp8 = eight_bits(p);
  return "tile=" + std::to_string(tile_m) + "x" + std::to_string(tile_n) +
         " order=ascending scores=" + (fp8 ? "tc-pair:2 values=tc-pair:8" : "tc values=tc") + " levels=1 exp=ex2 " +
         (raw_scores(p) ? "arg=fma2 scaled=no" : "arg=sub2 scaled=yes") + " tanh=accurate s=fp32 prescaled=no p=" +
         (fp8                      ? "e4m3 pscale=8"
          : p.dtype == DType::fp16 ? "fp16"
                                   : "bf16") +
         " normalized=no dropout=output rowsum=4 owner=m16n8 splits=1 division=reciprocal log=polynomial chip=sm_90";
}

/// Rows first, first + step, ... of a tensor from a matrix whose elements are in the tensor's format.
inline void store_rows(Tensor& tensor, int64_t first, int64_t step, const Matrix<float>& rows) {
  for (int64_t i = 0; i < rows.rows; ++i)
    for (int64_t c = 0; c < rows.columns; ++c)
      tensor.set_bits((first + i * step) * rows.columns + c, encode(tensor.dtype, rows.row(i)[c]));
}

inline HeadOutputs<float> forward_head(const SimulatedKernel& kernel, const SimulatedOps& ops,
                                       const Head<float>& head) {
  switch (kernel.algorithm) {
    case Algorithm::standard:
      return standard_forward(ops, head);
    case Algorithm::flash1:
      return flash1_forward(ops, head, kernel.tile);
    case Algorithm::flash2:
      return flash2_forward(ops, head, kernel.tile);
    case Algorithm::flash3:
      return flash3_forward(ops, head, kernel.tile, kernel.two_level);
    case Algorithm::decode:
      break;
  }
  return flash_decoding_forward(ops, head, kernel.tile, kernel.splits);
}

/// Adds the head's part of the gradients; `o` and `l` are what the backward reads.
inline void backward_head(const SimulatedKernel& kernel, const SimulatedOps& ops, const Inputs& in, const HeadIndex& at,
                          const Head<float>& head, const HeadOutputs<float>& read, HeadGradients<float>& sums,
                          Outputs& out) {
  sums.dq = Matrix<float>(at.seq_q, in.problem.head_dim);
  sums.dbias.assign(head.rule.bias.size(), 0);
  if (in.problem.sink) sums.dsink = float(out.dsink.at(at.h));
  if (kernel.algorithm == Algorithm::standard)
    standard_backward(ops, head, read.o, read.l, sums);
  else if (kernel.algorithm == Algorithm::flash1)
    flash1_backward(ops, head, kernel.tile, read.o, read.l, sums);
  else
    flash2_backward(ops, head, kernel.tile, read.o, read.l, sums);
  finish_gradient(ops, sums.dq, head.rule.scale);
  store_rows(out.dq, at.query_row(0), in.problem.heads, sums.dq);
  if (in.problem.sink) out.dsink.set_bits(at.h, encode(DType::fp32, sums.dsink));
  if (!in.problem.bias) return;
  for (int64_t i = 0; i < at.seq_q; ++i)
    for (int64_t j = 0; j < at.seq_k; ++j) {
      const int64_t n = bias_index(in, at.b, at.h, i, j);
      out.dbias.set_bits(n, encode(DType::fp32, float(out.dbias.at(n)) + sums.dbias[i * at.seq_k + j]));
    }
}

/// All outputs; with direction backward_exact the gradients come from `exact_o` and `exact_l`.
inline Outputs run(const SimulatedKernel& kernel, const Inputs& in, const Tensor* exact_o = nullptr,
                   const Tensor* exact_l = nullptr) {
  const Problem& p = in.problem;
  Outputs out = make_outputs(p);
  const SimulatedOps ops = ops_of(kernel, p);
  const int64_t group = p.heads / p.kv_heads;
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t kv_head = 0; kv_head < p.kv_heads; ++kv_head) {
      HeadGradients<float> sums;
      Head<float> head;
      for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
        const HeadIndex at = head_index(in, b, h);
        head = head_of<float>(in, at);
        HeadOutputs<float> forward = forward_head(kernel, ops, head);
        store_rows(out.o, at.query_row(0), p.heads, forward.o);
        for (int64_t i = 0; i < at.seq_q; ++i) out.lse.set_bits(at.query_row(i), encode(DType::fp32, forward.l[i]));
        if (!has_backward(p)) continue;
        if (sums.dk.rows == 0) {
          sums.dk = Matrix<float>(at.seq_k, p.head_dim);
          sums.dv = Matrix<float>(at.seq_k, p.value_dim);
        }
        if (exact_o != nullptr) {
          forward.o = rows_of<float>(*exact_o, at.query_row(0), p.heads, at.seq_q, p.value_dim);
          for (int64_t i = 0; i < at.seq_q; ++i) forward.l[i] = float(exact_l->at(at.query_row(i)));
        }
        backward_head(kernel, ops, in, at, head, forward, sums, out);
      }
      if (!has_backward(p)) continue;
      const HeadIndex at = head_index(in, b, kv_head * group);
      finish_gradient(ops, sums.dk, head.rule.scale);
      finish_gradient(ops, sums.dv, head.rule.value_factor);
      store_rows(out.dk, at.key_row(0), p.kv_heads, sums.dk);
      store_rows(out.dv, at.key_row(0), p.kv_heads, sums.dv);
    }
  return out;
}

}  // namespace flashproof::test
