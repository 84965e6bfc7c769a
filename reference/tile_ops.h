// The tile operations that the algorithms of the literature are written over, and two of their meanings.
//
// An algorithm is a template over a policy `Ops`, which says what each operation computes:
//   multiply_add   C += A B, one product after another in ascending order of the inner index; it is told what C is
//   row_maximum    max(start, x_0, x_1, ...)
//   row_sum        ((start + x_0) + x_1) + ..., as a RowSum, which may be several numbers; `total` is their sum
//   exponent       s - m, what exp is taken of for a weight: score s against the row's reference m
//   correction     m_before - m, likewise for what was summed against an earlier reference
//   exp log        with exp(-inf) = 0
//   tanh_ratio     tanh(s / cap)
//   lse            m + ln l from m and ln l
//   round_p        P to the format it has before P V
//   round_ds       dS (and P in the backward) to the format it has before its products
//   rescale        x_c times a factor, the online softmax's correction of an accumulator
//   finish         accumulator / row sum times the value factor
//   round_output   to the format of the output
//   observe        told of each step; does nothing, save in a trace
//   load store     told, where the published algorithm moves a tile between device memory and the chip, which array,
//                  by which line of which paper, which rows and how many columns of it; they do nothing, save in
//                  cost_by_running.cpp
//   hold           told of a tile that is made on the chip; likewise
// With ExactOps over a wide number type an algorithm is its mathematics; with RoundedOps it is what a CPU kernel
// computes; with the operations of the chip (oracle/hardware_ops.h) it predicts the bits of a GPU kernel.
// Sums and products that are not in this list (scale, bias, dP - D) are Number's own operators.
#pragma once
#include <cmath>
#include <limits>
#include <vector>

#include "reference/formats.h"

namespace flashproof {

/// A view of a matrix, strides in elements.
template <class Number>
struct View {
  Number* data;
  int64 rows, columns, row_stride, column_stride = 1;
  Number* row(int64 i) const { return data + i * row_stride; }
  operator View<const Number>() const { return {data, rows, columns, row_stride, column_stride}; }
};
template <class Number>
View<Number> transposed(View<Number> a) {
  return {a.data, a.columns, a.rows, a.column_stride, a.row_stride};
}

/// Row-major matrix, zero at first.
template <class Number>
struct Matrix {
  int64 rows = 0, columns = 0;
  std::vector<Number> data;

  Matrix() = default;
  Matrix(int64 row_count, int64 column_count)
      : rows(row_count), columns(column_count), data(row_count * column_count, Number(0)) {}
  Number* row(int64 i) { return data.data() + i * columns; }
  const Number* row(int64 i) const { return data.data() + i * columns; }
  View<Number> view() { return {data.data(), rows, columns, columns}; }
  View<const Number> view() const { return {data.data(), rows, columns, columns}; }
  View<const Number> rows_between(int64 begin, int64 end) const { return {row(begin), end - begin, columns, columns}; }
  View<Number> rows_between(int64 begin, int64 end) { return {row(begin), end - begin, columns, columns}; }
  View<const Number> columns_between(int64 begin, int64 end) const {
    return {data.data() + begin, rows, end - begin, columns};
  }
};

/// The arrays of the algorithms, as `load`, `store` and `hold` name them.
// clang-format off
enum class Array {
  q, k, v, d_o,                             ///< inputs
  o, dq, dk, dv,                            ///< outputs
  s, p, dp, ds,                             ///< scores, probabilities and their gradients
  maximum, sum, lse, delta,                 ///< m, l, L and D, one number a row
  part_o, part_maximum, part_sum, part_lse  ///< the result of a part of the keys, before it is combined with others'
};
// clang-format on

/// A tile's rows or keys: [begin, end).
struct Span {
  int64 begin, end;
  FLASHPROOF_HD int64 size() const { return end - begin; }
};
FLASHPROOF_HD constexpr Span tile_at(int64 begin, int64 size, int64 end) {
  return {begin, begin + size < end ? begin + size : end};
}

/// What `observe` is told: after `keys` were processed, row `row` of the problem has this running maximum and sum, its
/// accumulator was multiplied by `rescale`, and accumulator / divisor is the output so far.
template <class Number>
struct Step {
  const char* phase;
  int64 row;
  Span keys;
  Number maximum, sum, rescale, divisor;
};

/// Operations without rounding of their own: Number's arithmetic, its exp, log and tanh.
template <class T>
struct ExactOps {
  using Number = T;
  using RowSum = T;

  static Number minus_infinity() { return -std::numeric_limits<Number>::infinity(); }

  /// C[i][n] += sum_x A[i][x] B[x][n], x ascending; rows of B and C contiguous.
  void multiply_add(Array, View<Number> c, View<const Number> a, View<const Number> b) const {
    for (int64 i = 0; i < c.rows; ++i) {
      Number* c_row = c.row(i);
      for (int64 x = 0; x < b.rows; ++x) {
        const Number a_ix = a.data[i * a.row_stride + x * a.column_stride];
        const Number* b_row = b.row(x);
        for (int64 n = 0; n < c.columns; ++n) c_row[n] = c_row[n] + a_ix * b_row[n];
      }
    }
  }
  /// NaN is passed over here; it stays in the scores and so reaches the row sum.
  FLASHPROOF_HD Number row_maximum(const Number* x, int64 n, Number maximum) const {
    for (int64 j = 0; j < n; ++j)
      if (x[j] > maximum) maximum = x[j];
    return maximum;
  }
  Number row_sum(const Number* x, int64 n, Number sum) const {
    for (int64 j = 0; j < n; ++j) sum = sum + x[j];
    return sum;
  }
  Number total(const Number& sum) const { return sum; }
  Number exponent(const Number& s, const Number& reference) const { return s - reference; }
  Number correction(const Number& before, const Number& reference) const { return before - reference; }
  Number exp(const Number& x) const {
    using std::exp;
    return x == minus_infinity() ? Number(0) : Number(exp(x));
  }
  Number log(const Number& x) const {
    using std::log;
    return log(x);
  }
  Number tanh_ratio(const Number& s, const Number& cap) const {
    using std::tanh;
    return tanh(s / cap);
  }
  Number lse(const Number& maximum, const Number& log_sum) const { return maximum + log_sum; }
  Number round_p(const Number& x) const { return x; }
  Number round_ds(const Number& x) const { return x; }
  FLASHPROOF_HD void rescale(Number* x, int64 n, const Number& factor) const {
    for (int64 c = 0; c < n; ++c) x[c] = x[c] * factor;
  }
  /// A row that has seen no key has a sum of 0, and O = 0.
  Number finish(const Number& accumulator, const Number& sum, const Number& factor) const {
    return sum == Number(0) ? Number(0) : Number(accumulator / sum * factor);
  }
  Number round_output(const Number& x) const { return x; }
  void observe(const Step<Number>&, const Number* /*accumulator*/) const {}
  void load(Array, const char* /*source*/, Span /*rows*/, int64 /*columns*/) const {}
  void store(Array, const char* /*source*/, Span /*rows*/, int64 /*columns*/) const {}
  void hold(Array, int64 /*rows*/, int64 /*columns*/) const {}
};

/// fp32 arithmetic, round to nearest after every operation (products too), the C library's expf, and P, dS and outputs
/// rounded to their formats; P times 2^p_scale_log2, so that fp8 holds weights down to 2^-17 instead of 2^-9.
/// FlashAttention 3 leaves that factor in P, in the row sum and in the accumulator, and the last division takes it out.
/// Taken out of each P at once it gives the same numbers: a power of two commutes with fp32 rounding, subnormals aside.
struct RoundedOps : ExactOps<float> {
  DType p_format = DType::fp32, ds_format = DType::fp32, output_format = DType::fp32;
  int p_scale_log2 = 0;

  float exp(float x) const { return std::exp(x); }
  float round_p(float x) const {
    const float scale = float(power_of_two(p_scale_log2));
    return rounded(p_format, x * scale) / scale;
  }
  float round_ds(float x) const { return rounded(ds_format, x); }
  float round_output(float x) const { return rounded(output_format, x); }

 private:
  static float rounded(DType format, float x) { return format == DType::fp32 ? x : float(round_to(format, x)); }
};

}  // namespace flashproof
