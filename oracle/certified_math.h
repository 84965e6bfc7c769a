// exp, log and tanh in double with proved error bounds: the functions of the oracle's first strength.
//
// Only +, -, *, / and bit operations are used, without fma, so the results are the same bits on every machine and the
// loops that call these functions vectorise. u = 2^-53 throughout; |fl(a op b) - a op b| <= u |a op b|, and half an ulp
// of a result in [2^e, 2^(e+1)) is 2^(e-53). Each bound is derived beside its function; tests compare densely against
// MPFR.
//
// Sources: Cody and Waite, Software Manual for the Elementary Functions, 1980 (the two-part ln 2); Tang, ACM TOMS 15
// (1989) 144-157 (the order of the errors' analysis).
#pragma once
#include <cstdint>

namespace flashproof {

constexpr double unit_roundoff = 0x1p-53;
constexpr double exp_error = 0x1p-52;    ///< relative, of certified_exp on [-690, 690]
constexpr double log_error = 0x1p-50;    ///< relative, of certified_log on [2^-1000, 2^1000]
constexpr double tanh_error = 0x1p-50;   ///< relative, of certified_tanh on all numbers
constexpr double sech2_error = 0x1p-48;  ///< relative, of 1 - tanh^2 for |y| <= 300

namespace certified {

// ln 2 = high + low + e, |e| < 2^-96: high has 42 bits (a multiple of 2^-42), so k * high is exact for |k| < 2^11.
constexpr double ln2_high = 0x1.62e42fefa38p-1;
constexpr double ln2_low = 0x1.ef35793c7673p-45;

/// x = k ln 2 + r with |r| <= ln2 / 2 + 2^-40, and expm1(r) within (0.51 + 0.26 e^r) u; 2^k for |k| <= 996.
struct Reduced {
  double expm1_r, two_k;
};

// Reduction. k = x / ln 2 rounded to an integer by adding 1.5 * 2^52; where that rounding and the product's error move
// k, r passes ln2 / 2 by less than 2^-40. a = x - k high is exact: for k = 0 trivially; else |x| > 1/4, so x and k high
// are multiples of 2^-54 and |a| < 1/2 has at most 53 bits. r^ = fl(a - fl(k low)): |k low| < 2^-34, its rounding and e
// give 2^-85, the subtraction 2^-55 = u / 4 (|r| < 1/2). So r is off by at most 0.2501 u, which changes e^r by 0.2501 u
// e^r.
//
// Polynomial. e^r - 1 = r + r^2 q(r), q = 1/2 + r (1/6 + r (1/24 + ...)) cut after r^13 / 13!: the rest is at most
// 0.3467^14 / 14! * 1.03 < 2^-57.6 < 0.05 u. Horner: |q1| <= 0.19 (everything right of 1/2) is off by at most
// 0.19 u + u / 6 + 0.347 * 0.05 u * 3 < 0.42 u; so q (< 0.57) by 2^-54 + 0.347 * 0.19 u + 0.347 * 0.42 u < 0.72 u. With
// r^2 <= 0.1203 rounded, r^2 q is off by 0.1203 (0.72 + 0.57) u + 0.0686 u < 0.23 u, the sum (|.| < 1/2) rounds by
// u / 4: together below (0.23 + 0.25) u, and with the cut below 0.53 u.
inline Reduced reduce_exp(double x) {
  constexpr double to_integer = 0x1.8p52;
  const double shifted = x * 0x1.71547652b82fep0 + to_integer;
  const double k = shifted - to_integer;
  const double r = (x - k * ln2_high) - k * ln2_low;
  double q = 1.0 / 6227020800.0;
  q = 1.0 / 479001600.0 + r * q;
  q = 1.0 / 39916800.0 + r * q;
  q = 1.0 / 3628800.0 + r * q;
  q = 1.0 / 362880.0 + r * q;
  q = 1.0 / 40320.0 + r * q;
  q = 1.0 / 5040.0 + r * q;
  q = 1.0 / 720.0 + r * q;
  q = 1.0 / 120.0 + r * q;
  q = 1.0 / 24.0 + r * q;
  q = 1.0 / 6.0 + r * q;
  q = 0.5 + r * q;
  // The low bits of `shifted` are k in two's complement; moved to the exponent field they scale 1.0 by 2^k.
  const uint64_t bits = (__builtin_bit_cast(uint64_t, shifted) << 52) + 0x3ff0000000000000u;
  return {r + r * r * q, __builtin_bit_cast(double, bits)};
}

}  // namespace certified

/// e^x, |x| <= 690; relative error at most exp_error = 2u.
// 1 + b with b as above: for e^r >= 1 the sum rounds by u, for e^r in [0.707, 1) by u / 2. Relative, in u:
// (1 + 0.53) / 1 + 0.2501 < 1.79 and (0.5 + 0.53) / 0.707 + 0.2501 < 1.71. The scaling by 2^k is exact.
inline double certified_exp(double x) {
  const certified::Reduced reduced = certified::reduce_exp(x);
  return (1.0 + reduced.expm1_r) * reduced.two_k;
}

/// ln x, 2^-1000 <= x <= 2^1000; relative error at most log_error = 8u.
// x = 2^e f, f in [0.7071, 1.4143); s = (f - 1) / (f + 1), |s| < 0.17158; ln f = 2 s (1 + s^2/3 + s^4/5 + ...) cut
// after s^24 / 25: the rest is below 2^-70 of it. f - 1 is exact (Sterbenz), f + 1 and the quotient round: s is off by
// 2.01 u relative. The series' tail t <= 0.0100 is off by less than (4.02 + 4) u relative, 0.09 u of 1 + t; 1 + t
// rounds by u, the product by u: ln f is within 4.2 u relative. For e = 0 that is all. Otherwise |ln x| >= 0.3465 and
// |ln f| <= 0.3467: ln f's 4.2 u |ln f| <= 4.21 u |ln x|; e high is exact, e low rounds by 2^-87, and the two sums
// round by u |ln f + e low| + u |ln x| <= 2.01 u |ln x|: 6.3 u < 8 u.
inline double certified_log(double x) {
  const uint64_t bits = __builtin_bit_cast(uint64_t, x);
  const uint64_t from_root_half = bits - 0x3fe6a09e667f3bcdu;  // 0x1.6a09e667f3bcdp-1: sqrt(1/2)
  const double e = double(int64_t(from_root_half) >> 52);
  const double f = __builtin_bit_cast(double, bits - (from_root_half & 0xfff0000000000000u));
  const double s = (f - 1.0) / (f + 1.0);
  const double s2 = s * s;
  double t = 0;
  for (int power = 25; power >= 3; power -= 2) t = s2 * (1.0 / power + t);
  const double ln_f = (s + s) * (1.0 + t);
  return e * certified::ln2_high + (ln_f + e * certified::ln2_low);
}

/// tanh y and 1 - tanh^2 y; relative errors at most tanh_error = 8u and, for |y| <= 300, sech2_error = 32u. Past 300
/// the second number is that of 300, below 2^-860, and the true one lies between it and 0.
struct Tanh {
  double value, sech2;
};

// With a = min(|y|, 300), E = expm1(2a) = 2^k b + (2^k - 1), b and k as above. For k = 0: r = 2a is exact and
// |r^2 q| < 0.2 |b|, which leaves 0.2 * 2.1 u + u of rounding: below 1.5 u relative. For k >= 1: E >= 0.41, b's part
// 2^k (0.53 + 0.2501 e^r) u is at most 0.93 u 2^k at e^r <= 1.415 and 0.78 u 2^k at e^r = 1; relative to
// E = 2^k e^r - 1 the worst is k = 1, e^r = 0.707, E = 0.414: 2 (0.53 + 0.177) / 0.414 u < 3.5 u; the sum rounds by u,
// and 2^k - 1 by u where k > 53: E is within 5.5 u. tanh = E / (E + 2): the map's relative derivative 2 / (E + 2) is at
// most 1 (at k = 1 it is 0.83: 4.6 u, then less); sum and quotient add 2 u: 7.5 u < 8 u. Past 300, 1 - tanh < 2^-860.
// 1 - tanh^2 = 4 (E + 1) / (E + 2)^2: at most (5.5 + 1) + 2 (5.5 + 1) + 3 < 32 in units of u.
inline Tanh certified_tanh(double y) {
  double a = __builtin_fabs(y);
  a = a < 300.0 ? a : 300.0;
  const certified::Reduced reduced = certified::reduce_exp(2.0 * a);
  const double e = reduced.two_k * reduced.expm1_r + (reduced.two_k - 1.0);
  const double sum = e + 2.0;
  return {__builtin_copysign(e / sum, y), 4.0 * ((e + 1.0) / sum) / sum};
}

}  // namespace flashproof
