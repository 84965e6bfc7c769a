// From the ends of an interval to a ball in double and to ends that round as the interval's do.
#include "oracle/value_element.h"

#include <cmath>
#include <limits>

namespace flashproof {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// x rounded to odd: toward zero, the last bit set where that was not exact (Boldo and Melquiond, IEEE Trans. Comput.
/// 57, 2008).
double rounded_to_odd(mpfr_srcptr x) {
  const double truncated = mpfr_get_d(x, MPFR_RNDZ);
  if (mpfr_cmp_d(x, truncated) == 0) return truncated;
  const double odd = __builtin_bit_cast(double, __builtin_bit_cast(uint64_t, truncated) | 1);
  return std::copysign(odd, mpfr_sgn(x));
}

std::string hexadecimal(mpfr_srcptr x) {
  char* text = nullptr;
  if (mpfr_asprintf(&text, "%Ra", x) < 0) throw std::bad_alloc();
  std::string result = text;
  mpfr_free_str(text);
  return result;
}

}  // namespace

ElementValue element_between(mpfr_srcptr low, mpfr_srcptr high) {
  ElementValue value;
  if (!mpfr_number_p(low) || !mpfr_number_p(high)) return {0, infinity, -infinity, infinity, "nan"};
  mpfr_t middle, distance;
  mpfr_init2(middle, 128);
  mpfr_init2(distance, 53);
  mpfr_add(middle, low, high, MPFR_RNDN);
  mpfr_div_2ui(middle, middle, 1, MPFR_RNDN);
  value.hex128 = hexadecimal(middle);
  value.mid = mpfr_get_d(middle, MPFR_RNDN);
  mpfr_sub_d(distance, high, value.mid, MPFR_RNDU);
  value.radius = std::fmax(0, mpfr_get_d(distance, MPFR_RNDU));
  mpfr_d_sub(distance, value.mid, low, MPFR_RNDU);
  value.radius = std::fmax(value.radius, mpfr_get_d(distance, MPFR_RNDU));
  if (!std::isfinite(value.mid)) value.mid = 0, value.radius = infinity;
  value.low_odd = rounded_to_odd(low);
  value.high_odd = rounded_to_odd(high);
  mpfr_clears(middle, distance, nullptr);
  return value;
}

ElementValue element_minus_infinity() { return {-infinity, 0, -infinity, -infinity, "-inf"}; }

}  // namespace flashproof
