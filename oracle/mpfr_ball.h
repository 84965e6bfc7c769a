// Real numbers as a 128-bit midpoint and a radius that bounds every error made on the way: the oracle's second
// strength.
//
// A Ball (m, r) stands for some number x with |x - m| <= r. Each operation rounds the midpoint to nearest with MPFR,
// which is off by at most 2^-128 of it, and adds to the radius what the operands' radii do, rounded up. A radius of
// infinity says that nothing is known: it stays infinity. Source: van der Hoeven, Ball arithmetic, 2009; Johansson, Arb
// (IEEE Trans. Comput. 66, 2017) for the form of the bounds.
#pragma once
#include <mpfr.h>

namespace flashproof {

class Ball {
 public:
  static constexpr int precision = 128;

  Ball(double exact = 0);
  Ball(const Ball&);
  Ball& operator=(const Ball&);

  mpfr_srcptr mid() const { return mid_; }
  double radius() const { return radius_; }

  friend Ball operator+(const Ball&, const Ball&);
  friend Ball operator-(const Ball&, const Ball&);
  friend Ball operator*(const Ball&, const Ball&);
  friend Ball operator/(const Ball&, const Ball&);  ///< a divisor that may be 0 gives radius infinity
  friend Ball exp(const Ball&);
  friend Ball log(const Ball&);  ///< an argument that may be 0 or less gives radius infinity
  friend Ball tanh(const Ball&);

 private:
  void set_radius(double propagated);

  mp_limb_t limbs_[precision / 64];  // in place: an allocation would cost as much as the operation
  mpfr_t mid_;
  double radius_ = 0;
};

}  // namespace flashproof
