// A second oracle for attention: the defining formulas, at 1024 bits, by enumeration.
//
// For query row i of head h and batch entry b, over the visible keys j, in real arithmetic on the encoded inputs,
//
//     s0_ij = scale t_q t_k <q_i, k_j>          s1 = cap tanh(s0 / cap), or s0 without softcap
//     s_ij  = s1 - slope |i + off - j| + bias   L_i = ln(sum_j exp(s_ij) [+ exp(sink_h)])
//     p_ij  = exp(s_ij - L_i)                   z_ij = keep_ij / (1 - rate)
//     O_i   = t_v sum_j p_ij z_ij v_j           D_i = <dO_i, O_i>,  g_ij = t_v <dO_i, v_j>
//     dS_ij = p_ij (z_ij g_ij - D_i)            dS0 = dS (1 - (s1 / cap)^2)
//     dV_j  = t_v sum_i p_ij z_ij dO_i          dQ_i = scale t_q t_k sum_j dS0_ij k_j
//     dK_j  = scale t_q t_k sum_i dS0_ij q_i    dbias = dS summed over its broadcast axes
//     dsink_h = -sum_{b,i} exp(sink_h - L_i) D_i
//
// with dK and dV summed over the query heads of a group. It shares no line with the rest of the project: mask, head
// map, Philox and formats are its own, so that no mistake can be made twice by copying. It is slow on purpose.
//
// Sources: Vaswani et al. 2017, equation 1; Dao et al. 2022, appendix B.2 and B.4 (the gradients); Salmon et al. 2011
// (Philox4x32-10); Micikevicius et al. 2022, table 1 (e4m3, e5m2).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace flashproof::slow {

enum class Dtype { fp32, bf16, fp16, e4m3, e5m2 };

// One attention problem with its data. An array holds the batch entries one after another by used length, row-major:
// with Nq = sum Sq and Nk = sum Sk, q is [Nq, H, d], k [Nk, Hk, d], v [Nk, Hk, dv], d_o [Nq, H, dv]. Elements are the
// encoded bits, right-aligned. An optional array that is empty is absent.
struct Problem {
  Dtype dtype = Dtype::fp32;  // of q, k, v and d_o
  int64_t batch = 1;
  int64_t heads = 1;     // H
  int64_t kv_heads = 1;  // Hk, divides H; query head h reads kv head h / (H / Hk)
  int64_t head_dim = 1;
  int64_t value_dim = 1;
  std::vector<int64_t> query_lengths;  // Sq [batch], each at least 0
  std::vector<int64_t> key_lengths;    // Sk [batch], each at least 0

  float scale = 1;
  float softcap = 0;  // 0 is off
  bool causal = false;
  bool top_left = false;                // off = 0; otherwise bottom-right, off = Sk - Sq
  std::optional<int64_t> window_left;   // keys kept before i + off, inclusive; absent is open
  std::optional<int64_t> window_right;  // keys kept after i + off, inclusive; absent is open
  std::vector<float> slopes;            // ALiBi [batch, H]
  std::vector<float> sinks;             // [H]
  float dropout_rate = 0;               // in [0, 1)
  uint64_t dropout_seed = 0;
  std::vector<float> q_descales, k_descales, v_descales;  // t_q, t_k, t_v [batch, Hk], 1 where absent

  std::array<int64_t, 4> bias_shape = {1, 1, 1, 1};  // [1|batch, 1|H, 1|max Sq, 1|max Sk]
  Dtype bias_dtype = Dtype::fp32;                    // dtype, or fp32
  std::vector<uint32_t> bias;                        // a key whose bias is -inf is hidden

  std::vector<uint32_t> q, k, v, d_o;  // d_o may be empty when no gradient is asked for
};

// A real number x: hi is the double nearest to x, lo the double nearest to x - hi, and rest_sign the sign of what is
// then left. The three order x exactly against any double. The sign of an exact zero means nothing.
struct Value {
  double hi = 0;
  double lo = 0;
  int rest_sign = 0;               // -1, 0, 1
  bool negative_infinity = false;  // x is -inf (L of a row without keys), and hi, lo, rest_sign are 0
};

// Each array has the layout of what it belongs to: o [Nq, H, dv], l [Nq, H] (natural logarithm), dq, dk, dv those of
// q, k, v, dsink [H], dbias that of bias. What was not asked for or does not exist is empty.
struct Result {
  std::vector<Value> o, l, dq, dk, dv, dsink, dbias;
};

// O and L, and with `backward` every gradient. A row that sees no key has O = 0, gradients 0 and L = sink or -inf.
// Sums are of 1024 bits: scores reach 2^640 times head_dim (five fp32 factors), so each exponent is known to within
// 2^-300 whatever cancels, and equal scores give the rational O to the last bit.
// Errors: std::invalid_argument for sizes that do not agree, parameters out of range, and any element that is not
// finite (save bias = -inf): what NaN and infinities must do is not this oracle's to say.
Result forward_backward(const Problem& problem, bool backward);

// Whether query row i of head h in entry b attends to key j. Indices count inside the entry, from 0.
bool visible(const Problem& problem, int64_t b, int64_t h, int64_t i, int64_t j);

// The code of `dtype` nearest to the value, ties to the even code. Overflow gives infinity, in e4m3 +-448.
// Errors: std::invalid_argument for -inf in e4m3, which has none.
uint32_t correctly_rounded(const Value& value, Dtype dtype);

// The number that a code stands for, exactly; infinities and NaN included.
// Errors: std::invalid_argument for a code wider than the format.
double decode(uint32_t code, Dtype dtype);

// Philox4x32-10 of Salmon et al. 2011: four uniform words from a counter and a key.
std::array<uint32_t, 4> philox4x32_10(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

}  // namespace flashproof::slow
