// Standard normal numbers by inverse CDF, the same bits on host and device: x = Phi^-1(u) for u in (0, 1).
//
// Rational approximations of degree 7/7 in q = u - 1/2 (|q| <= 0.425) or r = sqrt(-ln min(u, 1 - u)). Source: Wichura,
// algorithm AS 241 (PPND16), Applied Statistics 37 (1988); relative error about 1e-16 in exact arithmetic. Every
// operation is correctly rounded (fma, division, square root) and written out, so no compiler or libm changes a bit;
// measured against 40 digits: at most 6e-16 relative. Freestanding: device code includes this file.
#pragma once
#include "reference/formats.h"

namespace flashproof {

/// a b + c, rounded once.
FLASHPROOF_HD inline double fused(double a, double b, double c) {
#ifdef __CUDA_ARCH__
  return __fma_rn(a, b, c);
#else
  return __builtin_fma(a, b, c);
#endif
}

FLASHPROOF_HD inline double square_root(double x) {
#ifdef __CUDA_ARCH__
  return __dsqrt_rn(x);
#else
  return __builtin_sqrt(x);
#endif
}

/// c[0] + c[1] x + ... by Horner's rule.
template <int count>
FLASHPROOF_HD inline double polynomial(const double (&c)[count], double x) {
  double sum = c[count - 1];
  for (int n = count - 2; n >= 0; --n) sum = fused(sum, x, c[n]);
  return sum;
}

/// ln x for normal x > 0: x = 2^e m with m in [sqrt(1/2), sqrt(2)), ln m = 2 atanh(f), f = (m - 1) / (m + 1). The
/// series ends at f^21 / 21: with |f| <= 0.1716 the rest is below 2^-57 of f.
FLASHPROOF_HD inline double natural_log(double x) {
  constexpr double odd[] = {2.0,        2.0 / 3.0,  2.0 / 5.0,  2.0 / 7.0,  2.0 / 9.0, 2.0 / 11.0,
                            2.0 / 13.0, 2.0 / 15.0, 2.0 / 17.0, 2.0 / 19.0, 2.0 / 21.0};
  constexpr uint64 sqrt_half = 0x3fe6a09e667f3bcdul;
  const uint64 word = __builtin_bit_cast(uint64, x);
  const int exponent = int((word - sqrt_half + (1024ul << 52)) >> 52) - 1024;
  const double m = __builtin_bit_cast(double, word - (uint64(exponent) << 52));
  const double f = (m - 1.0) / (m + 1.0);
  return fused(double(exponent), 0x1.62e42fefa39efp-1, f * polynomial(odd, f * f));
}

/// Phi^-1(u), 0 < u < 1, u a multiple of 2^-53 (so that u - 1/2 and 1 - u are exact).
FLASHPROOF_HD inline double normal_quantile(double u) {
  constexpr double a[] = {3.3871328727963666080e0,  1.3314166789178437745e+2, 1.9715909503065514427e+3,
                          1.3731693765509461125e+4, 4.5921953931549871457e+4, 6.7265770927008700853e+4,
                          3.3430575583588128105e+4, 2.5090809287301226727e+3};
  constexpr double b[] = {1.0,
                          4.2313330701600911252e+1,
                          6.8718700749205790830e+2,
                          5.3941960214247511077e+3,
                          2.1213794301586595867e+4,
                          3.9307895800092710610e+4,
                          2.8729085735721942674e+4,
                          5.2264952788528545610e+3};
  constexpr double c[] = {1.42343711074968357734e0,  4.63033784615654529590e0, 5.76949722146069140550e0,
                          3.64784832476320460504e0,  1.27045825245236838258e0, 2.41780725177450611770e-1,
                          2.27238449892691845833e-2, 7.74545014278341407640e-4};
  constexpr double d[] = {1.0,
                          2.05319162663775882187e0,
                          1.67638483018380384940e0,
                          6.89767334985100004550e-1,
                          1.48103976427480074590e-1,
                          1.51986665636164571966e-2,
                          5.47593808499534494600e-4,
                          1.05075007164441684324e-9};
  constexpr double e[] = {6.65790464350110377720e0,  5.46378491116411436990e0,  1.78482653991729133580e0,
                          2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
                          2.71155556874348757815e-5, 2.01033439929228813265e-7};
  constexpr double f[] = {1.0,
                          5.99832206555887937690e-1,
                          1.36929880922735805310e-1,
                          1.48753612908506148525e-2,
                          7.86869131145613259100e-4,
                          1.84631831751005468180e-5,
                          1.42151175831644588870e-7,
                          2.04426310338993978564e-15};
  const double q = u - 0.5;
  if (-0.425 <= q && q <= 0.425) {
    const double r = fused(-q, q, 0.180625);
    return q * (polynomial(a, r) / polynomial(b, r));
  }
  const double r = square_root(-natural_log(q < 0 ? u : 1.0 - u));
  const double x =
      r <= 5.0 ? polynomial(c, r - 1.6) / polynomial(d, r - 1.6) : polynomial(e, r - 5.0) / polynomial(f, r - 5.0);
  return q < 0 ? -x : x;
}

}  // namespace flashproof
