// Data recipes: the numbers of a case as a pure function of (family, parameters, seed, tensor, position).
//
// Every element is drawn from Philox4x32-10 with key = seed and a counter made of the tensor and the element's source
// position (b, position in the sequence, head, channel), so a value does not depend on the sizes around it: dropping keys or
// heads leaves the rest as it was. Normals come by inverse CDF with fixed polynomials in double and explicit fma, no
// libm, so the same text gives the same bits on host and device, on every machine and in later releases (golden hashes in
// tests/reference hold this). Freestanding: device code includes this file.
#pragma once
#include "reference/formats.h"
#include "reference/philox.h"

namespace flashproof {

/// Parameters a, b of each family are named in its line; omitted ones take the default in parentheses.
enum class Family : int {
  normal,          ///< N(0, 1); q times a (1), k times b (1)
  outliers,        ///< N(0,1) + N(0,100) * Bernoulli(a = 0.001): FlashAttention 3, section 4.3
  uniform,         ///< uniform on [-a, a] (1)
  integers,        ///< integers of [-a, a] (2), a share b (0.8) of them zero
  one_hot_v,       ///< q, k normal; v_jc = 1 iff c == j mod value_dim, else 0
  equal_scores,    ///< every k_j equals k_0: p is uniform
  negative,        ///< every score about -a (20): q mean +, k mean -
  creeping_max,    ///< score of key j grows by about a (0.05) a key: the running maximum moves in every tile
  late_max,        ///< the last key's score exceeds all others by about a (10)
  sinks,           ///< key 0 takes nearly all attention, score about a (12) above the rest
  near_ties,       ///< scores that differ by a few ulp
  cancelling,      ///< |s| small from huge q.k terms of size a (64) that cancel
  subnormal,       ///< magnitudes at the bottom of the format
  saturating,      ///< magnitudes near the top of the format, in v and dO
  constant_v,      ///< v_jc the same for all j: O must be v
  readout,         ///< q = 0; v_jc = 1 iff c == j - a * value_dim, else 0 (check readout)
  exact,           ///< q = 0, v integers of [-8, 8], dO integers of [-2, 2] (check exact_inputs)
  exact_powers,    ///< integer scores for scale = fp32 ln 2, v integers (check exact_inputs)
  file,            ///< a safetensors file's Q, K, V (host only)
};
constexpr int family_count = 19;

struct Recipe {
  Family family = Family::normal;
  double a = 0, b = 0;
  uint64 seed = 0;
#ifndef __CUDACC_RTC__
  bool operator==(const Recipe&) const = default;
#endif
};

enum class Operand : int { q, k, v, d_o, bias, slope, sink, q_descale, k_descale, v_descale };

/// What an element's value may depend on beside its position.
struct ElementContext {
  DType dtype;                    ///< format the value is rounded to
  int64 seq_k;                    ///< Sk of the entry
  int64 head_dim, value_dim;
  double scale;                   ///< the problem's score scale, to aim scores
};

/// Encoded bits of one element at source position (b, position, head, channel).
FLASHPROOF_HD uint32 element(const Recipe& recipe, Operand operand, const ElementContext& context, int64 b, int64 position,
                             int64 head, int64 channel);

}  // namespace flashproof
