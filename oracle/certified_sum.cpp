// out_c += sum_r x_r m_rc in the fixed order of certified_sum.h: chunks of 8 rows, blocks of 256, strips of columns.
#include "oracle/certified_sum.h"

namespace flashproof {
namespace {

constexpr int chunk = 8;
constexpr int64_t block = 256;
constexpr int64_t strip = 256;  // columns at a time: the block's sums stay in the first-level cache

/// Adds the sum over `rows` rows of `width` columns to block_sum. Restricted pointers: without them it is not
/// vectorised.
template <int rows>
void add_chunk(int64_t columns, int64_t width, const double* __restrict x, const float* __restrict m,
               double* __restrict block_sum) {
  for (int64_t c = 0; c < width; ++c) {
    double sum = 0;
    for (int r = 0; r < rows; ++r) sum += x[r] * double(m[r * columns + c]);
    block_sum[c] += sum;
  }
}

template <int rows>
void add_chunk(int64_t columns, int64_t width, const double* __restrict x, const double* __restrict x_radius,
               const double* __restrict x_size, const float* __restrict m, double* __restrict value_sum,
               double* __restrict radius_sum, double* __restrict size_sum) {
  for (int64_t c = 0; c < width; ++c) {
    double value = 0, radius = 0, size = 0;
    for (int r = 0; r < rows; ++r) {
      const double element = double(m[r * columns + c]), magnitude = __builtin_fabs(element);
      value += x[r] * element;
      radius += x_radius[r] * magnitude;
      size += x_size[r] * magnitude;
    }
    value_sum[c] += value;
    radius_sum[c] += radius;
    size_sum[c] += size;
  }
}

}  // namespace

void add_weighted_rows(int64_t n, int64_t columns, int64_t begin, int64_t end, const double* x, const float* rows,
                       double* out) {
  double sums[strip];
  for (int64_t first = begin; first < end; first += strip) {
    const int64_t width = std::min(strip, end - first);
    for (int64_t r0 = 0; r0 < n; r0 += block) {
      const int64_t r1 = std::min(n, r0 + block);
      std::fill_n(sums, width, 0.0);
      int64_t r = r0;
      for (; r + chunk <= r1; r += chunk) add_chunk<chunk>(columns, width, x + r, rows + r * columns + first, sums);
      for (; r < r1; ++r) add_chunk<1>(columns, width, x + r, rows + r * columns + first, sums);
      for (int64_t c = 0; c < width; ++c) out[first + c] += sums[c];
    }
  }
}

void add_weighted_rows(int64_t n, int64_t columns, const BoundedSum& x, const float* rows, const BoundedSum& out) {
  double value[strip], radius[strip], size[strip];
  for (int64_t first = 0; first < columns; first += strip) {
    const int64_t width = std::min(strip, columns - first);
    for (int64_t r0 = 0; r0 < n; r0 += block) {
      const int64_t r1 = std::min(n, r0 + block);
      for (double* sums : {value, radius, size}) std::fill_n(sums, width, 0.0);
      const auto add = [&]<int count>(int64_t r) {
        add_chunk<count>(columns, width, x.value + r, x.radius + r, x.size + r, rows + r * columns + first, value,
                         radius, size);
      };
      int64_t r = r0;
      for (; r + chunk <= r1; r += chunk) add.template operator()<chunk>(r);
      for (; r < r1; ++r) add.template operator()<1>(r);
      for (int64_t c = 0; c < width; ++c) {
        out.value[first + c] += value[c];
        out.radius[first + c] += radius[c];
        out.size[first + c] += size[c];
      }
    }
  }
}

}  // namespace flashproof
