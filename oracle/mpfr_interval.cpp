// Attention's elements in intervals (MPFI through Boost.Multiprecision): the oracle's third strength, at any precision.
#include <boost/multiprecision/mpfi.hpp>

#include "oracle/value_element.h"

namespace flashproof {
namespace {

using Interval =
    boost::multiprecision::number<boost::multiprecision::mpfi_float_backend<0>, boost::multiprecision::et_off>;

/// Precision of new intervals, for as long as it lives.
struct WorkingPrecision {
  unsigned saved = Interval::thread_default_precision();
  explicit WorkingPrecision(unsigned digits) { Interval::thread_default_precision(digits); }
  ~WorkingPrecision() { Interval::thread_default_precision(saved); }
};

}  // namespace

ElementValue element_interval(const Inputs& in, OutputId id, int64_t index, int bits) {
  const WorkingPrecision precision(unsigned(bits * 0.30103) + 1);
  const Element<Interval> element = evaluate_element<Interval>(in, id, index);
  if (element.minus_infinity) return element_minus_infinity();
  mpfi_srcptr ends = element.value.backend().data();
  return element_between(&ends->left, &ends->right);
}

}  // namespace flashproof
