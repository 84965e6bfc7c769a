// The operations of mpfr_ball.h, each with the bound of what the operands' radii do to its result.
#include "oracle/mpfr_ball.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "oracle/value_element.h"

namespace flashproof {
namespace {

static_assert(sizeof(mp_limb_t) == 8, "Ball keeps its midpoint in limbs of 64 bits");

/// At least x, which was computed by fewer than 8 operations on numbers that are not negative (relative error below
/// 2^-49, underflow below 2^-1070); infinity where it is not a number.
double rounded_up(double x) {
  x = x * (1 + 0x1p-49) + 0x1p-1070;
  return std::isnan(x) ? std::numeric_limits<double>::infinity() : x;
}

double size_above(mpfr_srcptr x) { return std::fabs(mpfr_get_d(x, MPFR_RNDA)); }
double size_below(mpfr_srcptr x) { return std::fabs(mpfr_get_d(x, MPFR_RNDZ)); }

}  // namespace

Ball::Ball(double exact) {
  mpfr_custom_init(limbs_, precision);
  mpfr_custom_init_set(mid_, MPFR_ZERO_KIND, 0, precision, limbs_);
  mpfr_set_d(mid_, exact, MPFR_RNDN);
}

Ball::Ball(const Ball& other) : Ball(0.0) { *this = other; }

Ball& Ball::operator=(const Ball& other) {
  if (this == &other) return *this;
  mpfr_set(mid_, other.mid_, MPFR_RNDN);
  radius_ = other.radius_;
  return *this;
}

void Ball::set_radius(double propagated) {
  radius_ = mpfr_number_p(mid_) ? rounded_up(propagated + 0x1p-128 * size_above(mid_))
                                : std::numeric_limits<double>::infinity();
}

Ball operator+(const Ball& a, const Ball& b) {
  Ball sum;
  const bool exact = mpfr_add(sum.mid_, a.mid_, b.mid_, MPFR_RNDN) == 0 && a.radius_ == 0 && b.radius_ == 0;
  if (!exact || !mpfr_number_p(sum.mid_)) sum.set_radius(a.radius_ + b.radius_);
  return sum;
}

Ball operator-(const Ball& a, const Ball& b) {
  Ball difference;
  const bool exact = mpfr_sub(difference.mid_, a.mid_, b.mid_, MPFR_RNDN) == 0 && a.radius_ == 0 && b.radius_ == 0;
  if (!exact || !mpfr_number_p(difference.mid_)) difference.set_radius(a.radius_ + b.radius_);
  return difference;
}

Ball operator*(const Ball& a, const Ball& b) {
  Ball product;
  const bool exact = mpfr_mul(product.mid_, a.mid_, b.mid_, MPFR_RNDN) == 0 && a.radius_ == 0 && b.radius_ == 0;
  if (exact && mpfr_number_p(product.mid_)) return product;
  product.set_radius(size_above(a.mid_) * b.radius_ + (size_above(b.mid_) + b.radius_) * a.radius_);
  return product;
}

// |A/B - a/b| = |A - a - (a/b)(B - b)| / |B| <= (r_a + |a/b| r_b) / (|b| - r_b); the computed a/b is within 2^-128 of
// it, which rounded_up's slack holds.
Ball operator/(const Ball& a, const Ball& b) {
  Ball quotient;
  mpfr_div(quotient.mid_, a.mid_, b.mid_, MPFR_RNDN);
  const double divisor = (size_below(b.mid_) - b.radius_) * (1 - 0x1p-50);
  quotient.set_radius(divisor > 0 ? (a.radius_ + size_above(quotient.mid_) * b.radius_) / divisor
                                  : std::numeric_limits<double>::infinity());
  return quotient;
}

// |e^(m + d) - e^m| <= e^m (e^r - 1) <= e^m r (1 + r) for r <= 1.
Ball exp(const Ball& x) {
  Ball power;
  mpfr_exp(power.mid_, x.mid_, MPFR_RNDN);
  power.set_radius(x.radius_ <= 1 ? size_above(power.mid_) * x.radius_ * (1 + x.radius_)
                                  : std::numeric_limits<double>::infinity());
  return power;
}

// The slope of ln on the ball is at most 1 / (m - r).
Ball log(const Ball& x) {
  Ball logarithm;
  mpfr_log(logarithm.mid_, x.mid_, MPFR_RNDN);
  const double least = mpfr_sgn(x.mid_) > 0 ? (size_below(x.mid_) - x.radius_) * (1 - 0x1p-50) : 0;
  logarithm.set_radius(least > 0 ? x.radius_ / least : std::numeric_limits<double>::infinity());
  return logarithm;
}

// The slope of tanh is at most 1.
Ball tanh(const Ball& x) {
  Ball tangent;
  mpfr_tanh(tangent.mid_, x.mid_, MPFR_RNDN);
  tangent.set_radius(std::min(x.radius_, 2.0));
  return tangent;
}

ElementValue element_ball(const Inputs& in, OutputId id, int64_t index) {
  const Element<Ball> element = evaluate_element<Ball>(in, id, index);
  if (element.minus_infinity) return element_minus_infinity();
  mpfr_t low, high;
  mpfr_inits2(2 * Ball::precision, low, high, nullptr);
  mpfr_sub_d(low, element.value.mid(), element.value.radius(), MPFR_RNDD);
  mpfr_add_d(high, element.value.mid(), element.value.radius(), MPFR_RNDU);
  ElementValue value = element_between(low, high);
  mpfr_clears(low, high, nullptr);
  return value;
}

}  // namespace flashproof
