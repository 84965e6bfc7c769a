// Sums of weighted rows in double with proved error bounds: the matrix products of the oracle's first strength.
//
//   out_c += sum_r x_r m_rc,   r = 0 .. n-1
//
// is summed in chunks of 8 rows (what is left over, in chunks of 1), chunks into blocks of 256 rows, blocks into the
// result. So an addend passes through sum_roundings(n), about n/256 + 50, roundings instead of n, and the sum is off by
// at most sum_error(n) sum_r |x_r m_rc| plus underflow (Higham, Accuracy and Stability of Numerical Algorithms, 2nd
// edition, sections 3.1 and 4.2). The order is fixed: no result depends on the machine's vector width, on threads, or
// on which sums are taken together. Zeros before and after the addends change nothing where they begin at a multiple of
// sum_block and end at one of sum_chunk.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "oracle/certified_math.h"

namespace flashproof {

/// Slack for what a first-order bound evaluated in double leaves out: its own roundings (fewer than 2^30, each u
/// relative, all its terms being positive) and products of two relative errors of which one is below 2^-22.
constexpr double inflation = 1.0 + 0x1p-18;
/// Added to the radius of each stage of a computation: more than 2^70 underflows of the stage and of its radius, each
/// 2^-1074.
constexpr double underflow_slack = 0x1p-1000;

constexpr int sum_chunk = 8;
constexpr int64_t sum_block = 256;
/// Sums over the same rows taken at once: each element is read and converted for all of them.
constexpr int sum_lanes = 4;

/// Roundings that one of n addends passes through, wherever it begins: 1 of the product, 8 in its chunk, at most
/// min(n / 8 + 2, 32) + 7 in its block, n / 256 + 2 in the result.
constexpr double sum_roundings(int64_t n) {
  const int64_t roundings = 20 + std::min<int64_t>(n / 8, 32) + n / 256;
  return double(roundings);
}
/// Relative to the sum of magnitudes: k u / (1 - k u), k = sum_roundings(n) < 2^30.
constexpr double sum_error(int64_t n) { return sum_roundings(n) * unit_roundoff * inflation; }

/// out[lane][c] += sum_r x[lane][r] rows[r * columns + c], c from `begin` to `end`.
void add_weighted_rows(int64_t n, int64_t columns, int64_t begin, int64_t end, std::span<const double* const> x,
                       const float* rows, std::span<double* const> out);
inline void add_weighted_rows(int64_t n, int64_t columns, int64_t begin, int64_t end, const double* x,
                              const float* rows, double* out) {
  add_weighted_rows(n, columns, begin, end, {&x, 1}, rows, {&out, 1});
}

/// A sum, a bound of what its weights' errors do to it, and its sum of magnitudes; each an array over the columns.
struct BoundedSum {
  double *value, *radius, *size;
};
/// Weights x with |error| <= x.radius and |x| <= x.size, by lane: value += sum x m, size += sum x.size |m|, and radius
/// += at least sum x.radius |m|: a chunk of rows takes its largest radius / size, which costs one product instead of 8.
void add_weighted_rows(int64_t n, int64_t columns, std::span<const BoundedSum> x, const float* rows,
                       std::span<const BoundedSum> out);

/// sum x and sum x_radius over n numbers x >= 0: 8 partial sums a block of 256, so an addend passes through at most
/// sum_roundings(n) roundings.
struct Total {
  double value = 0, radius = 0;
};
Total add_up(int64_t n, const double* x, const double* x_radius);

/// Many terms of known radius and size added one by one, at `count` places. TwoSum keeps the rounding error of each
/// addition, so that n terms are off by at most 2 u |sum| + 2 (n u)^2 sum |terms| (Ogita, Rump, Oishi, Accurate sum and
/// dot product, SIAM J. Sci. Comput. 26 (2005) 1955-1988, proposition 4.5).
struct LongSums {
  explicit LongSums(int64_t count) : sum(count), rest(count), radius(count), size(count), terms(count) {}
  std::vector<double> sum, rest, radius, size, terms;

  void add(int64_t n, double term, double term_radius, double term_size) {
    const double a = sum[n], s = a + term, t = s - a;
    rest[n] += (a - (s - t)) + (term - t);
    sum[n] = s;
    radius[n] += term_radius;
    size[n] += term_size;
    terms[n] += 1;
  }
  double value(int64_t n) const { return sum[n] + rest[n]; }
  double error(int64_t n) const {
    const double relative = terms[n] * unit_roundoff;
    return radius[n] + 2 * unit_roundoff * __builtin_fabs(value(n)) + 2 * relative * relative * size[n];
  }
};

}  // namespace flashproof
