// One element of an output from the formulas of reference/attention.h, at any precision.
#pragma once
#include <mpfr.h>

#include <string>

#include "oracle/verdict.h"
#include "reference/attention.h"

namespace flashproof {

/// An interval [low, high] that holds the exact value, in forms that outlive its precision.
struct ElementValue {
  double mid = 0, radius = 0;  ///< a ball in double that contains [low, high]; radius infinity where nothing is known
  double low_odd = 0,
         high_odd = 0;  ///< the ends rounded to odd: rounding these to 51 bits or fewer is rounding the ends
  std::string hex128;   ///< the middle to 128 bits; "-inf"
};
ElementValue element_between(mpfr_srcptr low, mpfr_srcptr high);
ElementValue element_minus_infinity();

/// At 128 bits with a running bound; and by intervals of `bits` bits.
ElementValue element_ball(const Inputs&, OutputId, int64_t index);
ElementValue element_interval(const Inputs&, OutputId, int64_t index, int bits);

/// Whether dS of row (b, h, i) may be a term of the dbias element at `place`.
inline bool row_reaches_bias(const Bias& axes, const Where& place, int64_t b, int64_t h, int64_t i) {
  return (!axes.batch || b == place.b) && (!axes.head || h == place.head) && (!axes.query || i == place.position);
}

template <class T>
struct Element {
  T value{0.0};
  bool minus_infinity = false;
};

/// dK, dV, dsink or dbias: a sum over the rows and keys that reach the element.
template <class T>
T evaluate_sum_over_rows(const Inputs& in, OutputId id, int64_t index) {
  const Problem& p = in.problem;
  const bool by_key = id == OutputId::dk || id == OutputId::dv;
  const Where place = locate(p, id, index);
  T sum(0.0);
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t h = 0; h < p.heads; ++h) {
      if (by_key && (b != place.b || h / (p.heads / p.kv_heads) != place.head)) continue;
      if (id == OutputId::dsink && h != index) continue;
      for (int64_t i = 0; i < in.packing.seq_q(b); ++i) {
        if (by_key && !sees(in, b, h, i, place.position)) continue;
        if (id == OutputId::dbias && !row_reaches_bias(*p.bias, place, b, h, i)) continue;
        const Row<T> row = softmax_row<T>(in, b, h, i);
        const T delta = row_delta(in, row);
        if (id == OutputId::dsink) sum = sum + sink_gradient_term(row, delta);
        const std::vector<T> ds =
            id == OutputId::dk || id == OutputId::dbias ? score_gradients(in, row, delta) : std::vector<T>();
        for (size_t n = 0; n < row.keys.size(); ++n) {
          if (by_key && row.keys[n] != place.position) continue;
          if (id == OutputId::dk) sum = sum + key_gradient_term(in, row, ds, n, place.channel);
          if (id == OutputId::dv) sum = sum + value_gradient_term(in, row, n, place.channel);
          if (id == OutputId::dbias && bias_index(in, b, h, i, row.keys[n]) == index) sum = sum + ds[n];
        }
      }
    }
  return sum;
}

/// The element in the arithmetic of T (see reference/attention.h). Inputs that reach it must be finite.
template <class T>
Element<T> evaluate_element(const Inputs& in, OutputId id, int64_t index) {
  if (id != OutputId::o && id != OutputId::lse && id != OutputId::dq) return {evaluate_sum_over_rows<T>(in, id, index)};
  const Where place = locate(in.problem, id, index);
  const Row<T> row = softmax_row<T>(in, place.b, place.head, place.position);
  if (id == OutputId::o) return {output(in, row, place.channel)};
  if (id == OutputId::lse) return {row.l, row.l_is_minus_infinity};
  return {query_gradient(in, row, score_gradients(in, row, row_delta(in, row)), place.channel)};
}

}  // namespace flashproof
