// out_c += sum_r x_r m_rc in the fixed order of certified_sum.h: chunks of 8 rows, blocks of 256, strips of columns.
#include "oracle/certified_sum.h"

#include <limits>

#include "reference/wide_vectors.h"

namespace flashproof {
namespace {

constexpr int64_t strip = 256;  // columns at a time: the block's sums stay in the first-level cache

/// Adds the sums over `rows` rows of `width` columns to sums[lane]; x is [lanes][rows]. Restricted pointers: without
/// them it is not vectorised.
template <int rows, int lanes>
[[gnu::always_inline]] inline void add_chunk(int64_t columns, int64_t width, const double* __restrict x,
                                             const float* __restrict m, double* __restrict sums) {
  for (int64_t c = 0; c < width; ++c) {
    double element[rows];
    for (int r = 0; r < rows; ++r) element[r] = double(m[r * columns + c]);
#pragma GCC unroll 4
    for (int lane = 0; lane < lanes; ++lane) {
      double sum = 0;
      for (int r = 0; r < rows; ++r) sum += x[lane * rows + r] * element[r];
      sums[lane * strip + c] += sum;
    }
  }
}

/// The same with the sums of magnitudes of |x| <= size, and of radii, all of which are at most relative[lane] size.
template <int rows, int lanes>
[[gnu::always_inline]] inline void add_bounded_chunk(int64_t columns, int64_t width, const double* __restrict x,
                                                     const double* __restrict x_size, const double* __restrict relative,
                                                     const float* __restrict m, double* __restrict values,
                                                     double* __restrict radii, double* __restrict sizes) {
  for (int64_t c = 0; c < width; ++c) {
    double element[rows];
    for (int r = 0; r < rows; ++r) element[r] = double(m[r * columns + c]);
#pragma GCC unroll 4
    for (int lane = 0; lane < lanes; ++lane) {
      double value = 0, size = 0;
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) {
        value += x[lane * rows + r] * element[r];
        size += x_size[lane * rows + r] * __builtin_fabs(element[r]);
      }
      values[lane * strip + c] += value;
      radii[lane * strip + c] += relative[lane] * size;
      sizes[lane * strip + c] += size;
    }
  }
}

/// radii += sum radius |m| by itself: for weights whose size says nothing of their radius.
template <int rows>
[[gnu::always_inline]] inline void add_radii(int64_t columns, int64_t width, const double* __restrict radius,
                                             const float* __restrict m, double* __restrict radii) {
  for (int64_t c = 0; c < width; ++c) {
    double sum = 0;
    for (int r = 0; r < rows; ++r) sum += radius[r] * __builtin_fabs(double(m[r * columns + c]));
    radii[c] += sum;
  }
}

/// Radii that are larger, relative to their sizes, are summed by themselves: the largest would drown the others.
constexpr double proportional = 0x1p-20;

/// The largest radius / size of the rows; infinity where one is not proportional, NaN or that of size 0 included.
template <int rows>
[[gnu::always_inline]] inline double largest_ratio(const double* radius, const double* size) {
  double largest = 0;
  bool all_proportional = true;
  for (int r = 0; r < rows; ++r) {
    const double ratio = radius[r] == 0 ? 0 : radius[r] / size[r];
    all_proportional &= ratio <= proportional;
    largest = ratio > largest ? ratio : largest;
  }
  return all_proportional ? largest : std::numeric_limits<double>::infinity();
}

template <int rows, int lanes>
[[gnu::always_inline]] inline void gather(const double* const* x, int64_t r, double* chunk_x) {
  for (int lane = 0; lane < lanes; ++lane)
    for (int n = 0; n < rows; ++n) chunk_x[lane * rows + n] = x[lane][r + n];
}

/// Calls add(std::integral_constant<int, rows>, first row) for each chunk of a block.
template <class Add>
[[gnu::always_inline]] inline void for_chunks(int64_t r0, int64_t r1, const Add& add) {
  int64_t r = r0;
  for (; r + sum_chunk <= r1; r += sum_chunk) add.template operator()<sum_chunk>(r);
  for (; r < r1; ++r) add.template operator()<1>(r);
}

template <int lanes>
[[gnu::always_inline]] inline void add_rows(int64_t n, int64_t columns, int64_t begin, int64_t end,
                                            const double* const* x, const float* rows, double* const* out) {
  double sums[lanes * strip], chunk_x[lanes * sum_chunk];
  for (int64_t first = begin; first < end; first += strip) {
    const int64_t width = std::min(strip, end - first);
    for (int64_t r0 = 0; r0 < n; r0 += sum_block) {
      std::fill_n(sums, lanes * strip, 0.0);
      for_chunks(
          r0, std::min(n, r0 + sum_block), [&]<int count>(int64_t r) __attribute__((always_inline)) {
            gather<count, lanes>(x, r, chunk_x);
            add_chunk<count, lanes>(columns, width, chunk_x, rows + r * columns + first, sums);
          });
      for (int lane = 0; lane < lanes; ++lane)
        for (int64_t c = 0; c < width; ++c) out[lane][first + c] += sums[lane * strip + c];
    }
  }
}

template <int lanes>
[[gnu::always_inline]] inline void add_bounded_rows(int64_t n, int64_t columns, const BoundedSum* x, const float* rows,
                                                    const BoundedSum* out) {
  double values[lanes * strip], radii[lanes * strip], sizes[lanes * strip];
  double chunk_x[lanes * sum_chunk], chunk_size[lanes * sum_chunk], relative[lanes];
  const double *x_value[lanes], *x_size[lanes];
  for (int lane = 0; lane < lanes; ++lane) x_value[lane] = x[lane].value, x_size[lane] = x[lane].size;
  for (int64_t first = 0; first < columns; first += strip) {
    const int64_t width = std::min(strip, columns - first);
    for (int64_t r0 = 0; r0 < n; r0 += sum_block) {
      for (double* sums : {values, radii, sizes}) std::fill_n(sums, lanes * strip, 0.0);
      for_chunks(
          r0, std::min(n, r0 + sum_block), [&]<int count>(int64_t r) __attribute__((always_inline)) {
            const float* m = rows + r * columns + first;
            gather<count, lanes>(x_value, r, chunk_x);
            gather<count, lanes>(x_size, r, chunk_size);
            for (int lane = 0; lane < lanes; ++lane) {
              relative[lane] = largest_ratio<count>(x[lane].radius + r, x_size[lane] + r);
              if (relative[lane] <= proportional) continue;
              relative[lane] = 0;
              add_radii<count>(columns, width, x[lane].radius + r, m, radii + lane * strip);
            }
            add_bounded_chunk<count, lanes>(columns, width, chunk_x, chunk_size, relative, m, values, radii, sizes);
          });
      for (int lane = 0; lane < lanes; ++lane)
        for (int64_t c = 0; c < width; ++c) {
          out[lane].value[first + c] += values[lane * strip + c];
          out[lane].radius[first + c] += radii[lane * strip + c];
          out[lane].size[first + c] += sizes[lane * strip + c];
        }
    }
  }
}

}  // namespace

FLASHPROOF_WIDE_VECTORS
void add_weighted_rows(int64_t n, int64_t columns, int64_t begin, int64_t end, std::span<const double* const> x,
                       const float* rows, std::span<double* const> out) {
  size_t lane = 0;
  for (; lane + sum_lanes <= x.size(); lane += sum_lanes)
    add_rows<sum_lanes>(n, columns, begin, end, &x[lane], rows, &out[lane]);
  for (; lane < x.size(); ++lane) add_rows<1>(n, columns, begin, end, &x[lane], rows, &out[lane]);
}

FLASHPROOF_WIDE_VECTORS
void add_weighted_rows(int64_t n, int64_t columns, std::span<const BoundedSum> x, const float* rows,
                       std::span<const BoundedSum> out) {
  size_t lane = 0;
  for (; lane + sum_lanes <= x.size(); lane += sum_lanes)
    add_bounded_rows<sum_lanes>(n, columns, &x[lane], rows, &out[lane]);
  for (; lane < x.size(); ++lane) add_bounded_rows<1>(n, columns, &x[lane], rows, &out[lane]);
}

FLASHPROOF_WIDE_VECTORS
Total add_up(int64_t n, const double* x, const double* x_radius) {
  Total total;
  for (int64_t r0 = 0; r0 < n; r0 += sum_block) {
    const int64_t r1 = std::min(n, r0 + sum_block);
    double sums[sum_chunk] = {}, radii[sum_chunk] = {};
    int64_t r = r0;
    for (; r + sum_chunk <= r1; r += sum_chunk)
      for (int k = 0; k < sum_chunk; ++k) sums[k] += x[r + k], radii[k] += x_radius[r + k];
    for (; r < r1; ++r) sums[0] += x[r], radii[0] += x_radius[r];
    for (int k = 1; k < sum_chunk; ++k) sums[0] += sums[k], radii[0] += radii[k];
    total.value += sums[0];
    total.radius += radii[0];
  }
  return total;
}

}  // namespace flashproof
