// Attention in plain double with a place for a mistake: what a kernel that errs in one named way would return.
//
// Without a mistake the results are the formulas of reference/attention.h. A pass (forward or backward) goes row by
// row:
//   pairs      one for each key below Sk: the rows of K and V it reads, score s, dropout factor z, whether it counts
//   softmax    L = ln sum den exp(s) [+ exp(sink)],  p = num exp(s - L),  O = t_v sum p z v
// num and den are 1 unless a mistake weights numerator and denominator apart. The backward makes its own pairs, with
// p = exp(s - L), from what it reads of O and L. The hooks of a Mistake stand between these steps.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "reference/attention.h"

namespace flashproof {

struct Pair {
  int64_t j = 0;
  int64_t key_row = 0, value_row = 0;  ///< flat rows of K and V; value_row -1: a value of 0
  double product = 0;                  ///< <q, k>
  double s = 0, slope = 1, z = 1;      ///< slope: ds / ds0
  double numerator = 1, denominator = 1;
  bool visible = true;
};

struct RowSketch {
  HeadIndex at = {};
  int64_t i = 0;
  std::vector<Pair> pairs;
  double sink = 0;  ///< its score, -infinity without one
  std::vector<double> o;
  double l = 0;       ///< L as the backward will use it
  double stored = 0;  ///< L as the forward stores it
  bool sees_keys() const;
};

enum Phase : int { in_forward = 1, in_backward = 2, in_both = 3 };

/// Mistakes of the backward's own formulas; bits of Mistake::gradient.
enum GradientFault : unsigned {
  fault_no_d = 1,                    ///< dS = p z g
  fault_no_slope = 2,                ///< dS0 = dS under a softcap
  fault_dq_unscaled = 4,             ///< dQ without the scale
  fault_dk_unscaled = 8,             ///< dK without the scale
  fault_dk_last_head = 16,           ///< dK of the group's last query head alone
  fault_dk_first_head = 32,          ///< dK of the group's first query head alone
  fault_dv_kept_all = 64,            ///< dV without the dropout factor
  fault_g_kept_all = 128,            ///< dS = p (g - D)
  fault_sink_sign = 256,             ///< dsink with the other sign
  fault_bias_one_row = 512,          ///< dbias of the last row (entry, head) that reaches an element, not their sum
  fault_dv_last_head = 1024,         ///< dV of the group's last query head alone
  fault_dv_first_head = 2048,        ///< dV of the group's first query head alone
  fault_bias_first_heads = 4096,     ///< dbias summed over the groups' first query heads alone
  fault_dv_dropped_unscaled = 8192,  ///< dV with dropped weights 0 and the others not over 1 - rate
  fault_d_dropped = 16384,           ///< dS = p (z g - D), 0 where p is dropped
  fault_ds_of_dropped_p = 32768,     ///< dS = z p (g - D)
  fault_g_without_t_v = 65536        ///< g without V's descale
};

struct Mistake {
  int phases = in_both;
  std::vector<bool> rows;               ///< flat query rows [total_q, H] in which it is made; empty: in all
  std::function<void(Inputs&)> inputs;  ///< what the kernel takes for its inputs
  std::function<int64_t(const Inputs&, const HeadIndex&)> kv_head;  ///< which kv head a query head reads
  std::function<void(const Inputs&, RowSketch&)> scores;            ///< after the pairs are made
  std::function<void(const Inputs&, RowSketch&)> result;            ///< after O and L, forward
  std::function<void(const Inputs&, std::vector<double>& o, std::vector<double>& l)>
      stored;  ///< what the backward reads
  unsigned gradient = 0;
  std::function<double(double)> round_p, round_ds;  ///< P and dS before the backward's products; none: not rounded
};

/// By output, flat like the tensors; empty for outputs that the problem does not have. Where a problem's backward reads
/// the exact O and L (backward_exact), a mistake of the forward shows in O and L alone.
struct Sketch {
  std::vector<double> output[output_count];
  std::vector<double>& operator[](OutputId id) { return output[int(id)]; }
  const std::vector<double>& operator[](OutputId id) const { return output[int(id)]; }
};
Sketch sketch(const Inputs&, const Mistake&);

/// Makes every pair's score again from its product, and ALiBi and bias.
void score_again(const Inputs&, RowSketch&);
/// O and L of a row from its pairs.
void soften(const Inputs&, RowSketch&);

}  // namespace flashproof
