// oracle/value: that each strength encloses the next, that radii are small and never too small, that rounding is
// correct, ties included, and what non-finite inputs and extreme scores do.
#include "oracle/value.h"

#include <gtest/gtest.h>
#include <mpfr.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "oracle/certified_sum.h"
#include "oracle/nonfinite.h"
#include "oracle/value_element.h"
#include "oracle/value_strip.h"
#include "tests/reference/small_inputs.h"

namespace flashproof {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// ---- exp, log, tanh

using MpfrFunction = int (*)(mpfr_t, const mpfr_t, mpfr_rnd_t);
int sech_squared(mpfr_t result, const mpfr_t x, mpfr_rnd_t round) {
  mpfr_sech(result, x, round);
  return mpfr_sqr(result, result, round);
}

/// |computed - f(x)| / |f(x)|.
double relative_error(double computed, MpfrFunction f, double x) {
  mpfr_t exact, error;
  mpfr_inits2(200, exact, error, nullptr);
  mpfr_set_d(exact, x, MPFR_RNDN);
  f(exact, exact, MPFR_RNDN);
  mpfr_d_sub(error, computed, exact, MPFR_RNDU);
  if (!mpfr_zero_p(error)) mpfr_div(error, error, exact, MPFR_RNDU);
  const double result = std::fabs(mpfr_get_d(error, MPFR_RNDU));
  mpfr_clears(exact, error, nullptr);
  return result;
}

/// Evenly spaced, then random, on [low, high].
template <class Body>
void for_dense(double low, double high, int count, const Body& body) {
  std::mt19937_64 random(7);
  for (int n = 0; n <= count; ++n) body(low + (high - low) * n / count);
  for (int n = 0; n <= count; ++n) body(low + (high - low) * (double(random() >> 11) * 0x1p-53));
}

TEST(CertifiedMath, ExpIsWithinItsBound) {
  double worst = 0;
  const auto check = [&](double x) { worst = std::max(worst, relative_error(certified_exp(x), mpfr_exp, x)); };
  for_dense(-690, 690, 50000, check);
  for_dense(-2, 2, 50000, check);
  for_dense(-1e-8, 1e-8, 1000, check);
  for (int k = -990; k <= 990; ++k)  // where the reduced argument is largest
    for (int step = -2; step <= 2; ++step) check((k + 0.5) * 0.6931471805599453 * (1 + step * 0x1p-52));
  EXPECT_LE(worst, exp_error);
  EXPECT_GT(worst, exp_error / 4) << "the points are too tame to test the bound";
  EXPECT_EQ(certified_exp(0), 1);
  EXPECT_GT(relative_error(certified_exp(1) * (1 + 0x1p-51), mpfr_exp, 1), exp_error) << "a wrong exp must be seen";
}

TEST(CertifiedMath, LogIsWithinItsBound) {
  double worst = 0;
  const auto check = [&](double x) { worst = std::max(worst, relative_error(certified_log(x), mpfr_log, x)); };
  for_dense(0.5, 3, 50000, check);
  for_dense(1, 1 + 1e-9, 1000, check);
  for_dense(1 - 1e-9, 1, 1000, check);
  for_dense(-1000, 1000, 20000, [&](double exponent) { check(std::exp2(exponent)); });
  for (int k = -999; k <= 999; ++k)  // both sides of the reduction's edge
    for (int step = -2; step <= 2; ++step) check(std::ldexp(0x1.6a09e667f3bcdp-1 + step * 0x1p-53, k));
  EXPECT_LE(worst, log_error);
  EXPECT_GT(worst, log_error / 8);
  EXPECT_EQ(certified_log(1), 0);
}

TEST(CertifiedMath, TanhIsWithinItsBounds) {
  double worst = 0, worst_sech2 = 0;
  const auto check = [&](double y) {
    const Tanh computed = certified_tanh(y);
    worst = std::max(worst, relative_error(computed.value, mpfr_tanh, y));
    if (std::fabs(y) <= 300) worst_sech2 = std::max(worst_sech2, relative_error(computed.sech2, sech_squared, y));
  };
  for_dense(-1, 1, 50000, check);
  for_dense(-25, 25, 50000, check);
  for_dense(-400, 400, 5000, check);
  for_dense(-300, 0, 5000, [&](double exponent) { check(std::exp2(exponent)); });
  EXPECT_LE(worst, tanh_error);
  EXPECT_LE(worst_sech2, sech2_error);
  EXPECT_GT(worst, tanh_error / 8);
  EXPECT_EQ(certified_tanh(1e300).value, 1);
  EXPECT_LT(certified_tanh(1e300).sech2, 0x1p-860);
}

TEST(CertifiedSum, LongSumsAreWithinTheirError) {
  std::mt19937_64 random(3);
  LongSums sums(1);
  mpfr_t exact;
  mpfr_init2(exact, 300);
  mpfr_set_zero(exact, 1);
  double plain = 0;
  for (int n = 0; n < 1000000; ++n) {
    const double term = n % 3 == 2 ? -0.7 : double(random() >> 11) * 0x1p-53;
    sums.add(0, term, 0, std::fabs(term));
    mpfr_add_d(exact, exact, term, MPFR_RNDN);
    plain += term;
  }
  const auto error_of = [&](double x) {
    mpfr_t difference;
    mpfr_init2(difference, 300);
    mpfr_sub_d(difference, exact, x, MPFR_RNDN);
    const double error = std::fabs(mpfr_get_d(difference, MPFR_RNDU));
    mpfr_clear(difference);
    return error;
  };
  EXPECT_LE(error_of(sums.value(0)), sums.error(0));
  EXPECT_GT(error_of(plain), sums.error(0)) << "the terms are too tame to tell this from a plain sum";
  mpfr_clear(exact);
}

/// Weights with radii over a small matrix, whose sums are compared with those taken one by one.
struct BoundedSums {
  static constexpr int64_t n = 600, columns = 7;
  std::vector<double> x, radius, size;
  std::vector<float> rows;
  std::vector<double> value = std::vector<double>(columns), radii = value, sizes = value;

  explicit BoundedSums(uint64_t seed) : rows(n * columns) {
    std::mt19937_64 random(seed);
    const auto uniform = [&] { return double(random() >> 11) * 0x1p-53; };
    for (int64_t r = 0; r < n; ++r) {
      x.push_back(uniform() - 0.5);
      size.push_back(std::fabs(x.back()) + 0.1 * uniform());
      radius.push_back(size.back() * uniform() * 0x1p-50);
    }
    for (float& element : rows) element = float(uniform() - 0.5);
  }
  void add(int64_t begin, int64_t end) {
    const BoundedSum weights{&x[begin], &radius[begin], &size[begin]}, out{value.data(), radii.data(), sizes.data()};
    add_weighted_rows(end - begin, columns, {&weights, 1}, &rows[begin * columns], {&out, 1});
  }
  double exact_radius(int64_t c) const {
    double sum = 0;
    for (int64_t r = 0; r < n; ++r) sum += radius[r] * std::fabs(double(rows[r * columns + c]));
    return sum;
  }
};

TEST(CertifiedSum, RadiiCoverThoseOfTheWeights) {
  BoundedSums sums(5);
  sums.add(0, BoundedSums::n);
  for (int64_t c = 0; c < BoundedSums::columns; ++c) {
    EXPECT_GE(sums.radii[c] * inflation, sums.exact_radius(c));
    EXPECT_LE(sums.radii[c], 4 * sums.exact_radius(c)) << "the largest of a chunk should not be far from the rest";
  }
}

TEST(CertifiedSum, RadiiOutOfProportionAreSummedByThemselves) {
  BoundedSums sums(6);
  sums.size[17] = sums.x[17] = 0;  // as of a weight below exp(-690), of which nothing but a radius is known
  sums.radius[17] = 3;
  sums.add(0, BoundedSums::n);
  for (int64_t c = 0; c < BoundedSums::columns; ++c) {
    EXPECT_GE(sums.radii[c] * inflation, sums.exact_radius(c));
    EXPECT_LE(sums.radii[c], 1.001 * sums.exact_radius(c));
  }
  BoundedSums lost(6);
  lost.radius[17] = std::numeric_limits<double>::quiet_NaN();
  lost.add(0, BoundedSums::n);
  EXPECT_TRUE(std::isnan(lost.radii[0])) << "a radius that is not a number must not vanish";
}

TEST(CertifiedSum, ZerosAroundAndOtherLanesChangeNoBit) {
  BoundedSums alone(7);
  constexpr int64_t begin = 300, end = 430;  // of 256 .. 432: whole blocks before, whole chunks after
  std::vector<BoundedSums> lanes;
  for (uint64_t seed = 7; seed < 13; ++seed) lanes.emplace_back(seed);
  for (int64_t r = 0; r < BoundedSums::n; ++r)
    if (r < begin || r >= end)
      for (std::vector<double>* numbers :
           {&alone.x, &alone.radius, &alone.size, &lanes[0].x, &lanes[0].radius, &lanes[0].size})
        (*numbers)[r] = 0;
  alone.add(begin / sum_block * sum_block, (end + sum_chunk - 1) / sum_chunk * sum_chunk);
  std::vector<BoundedSum> weights, out;
  for (BoundedSums& lane : lanes) {
    lane.rows = alone.rows;
    weights.push_back({lane.x.data(), lane.radius.data(), lane.size.data()});
    out.push_back({lane.value.data(), lane.radii.data(), lane.sizes.data()});
  }
  add_weighted_rows(BoundedSums::n, BoundedSums::columns, weights, alone.rows.data(), out);
  EXPECT_EQ(lanes[0].value, alone.value);
  EXPECT_EQ(lanes[0].radii, alone.radii);
  EXPECT_EQ(lanes[0].sizes, alone.sizes);
  EXPECT_NE(lanes[1].value, alone.value);
}

// ---- enclosures

bool overlap(double mid, double radius, const ElementValue& exact) {
  return std::fabs(mid - exact.mid) <= radius + exact.radius || mid == exact.mid;
}

/// Counts of a comparison of the three strengths.
struct Tally {
  int64_t elements = 0, infinite = 0, with_condition = 0, small_radius = 0, small_ball = 0;
  double tightest = 0;  ///< largest error / radius
};

void compare_strengths(const Inputs& in, int64_t step, Tally& tally) {
  const Values values = value_double(in, {}, 1);
  for (int id = 0; id < output_count; ++id) {
    const OutputValues& output = values.output[id];
    for (int64_t n = 0; n < std::ssize(output.mid); n += step) {
      RC_ASSERT(output.known[n]);
      const ElementValue ball = element_ball(in, OutputId(id), n);
      const ElementValue exact = element_interval(in, OutputId(id), n, 256);
      RC_ASSERT(overlap(ball.mid, ball.radius, exact));
      RC_ASSERT(overlap(output.mid[n], output.radius[n], exact));
      ++tally.elements;
      tally.infinite += std::isinf(output.radius[n]);
      if (output.radius[n] > 0)
        tally.tightest = std::max(tally.tightest, std::fabs(output.mid[n] - exact.mid) / output.radius[n]);
      if (output.condition[n] == 0) continue;
      ++tally.with_condition;
      tally.small_radius += output.radius[n] <= 0x1p-40 * output.condition[n];
      // Rounding the ball's middle to double costs 2^-53 of it; the rest is the ball's own.
      tally.small_ball += ball.radius <= 0x1p-52 * std::fabs(ball.mid) + 0x1p-100 * output.condition[n];
    }
  }
}

Problem draw_any(int64_t longest) {
  Problem p = test::draw_problem(DType(test::draw(0, 4)), longest);
  if (format_of(p.dtype).bits == 8) p.descale = test::coin();
  return p;
}

Inputs inputs_of(const std::string& text) { return make_inputs(parse_case(text)); }

TEST(Value, EachStrengthEnclosesTheNext) {
  Tally tally;
  EXPECT_TRUE(rc::check([&] { compare_strengths(test::draw_inputs(draw_any(9)), test::draw(1, 9), tally); }));
  EXPECT_EQ(tally.infinite, 0);
  // 99.9 % of a million (tests/oracle/agreement.h); here of a few thousand, whose rows fail together.
  EXPECT_GE(double(tally.small_radius), 0.99 * double(tally.with_condition));
  EXPECT_GE(double(tally.small_ball), 0.99 * double(tally.with_condition));
  EXPECT_GT(tally.with_condition, 100);
  EXPECT_GT(tally.tightest, 0x1p-10) << "radii a thousand times too large would hide mistakes";
}

// Scores of 128 channels times 16: their error, not exp's, is what the radii must cover.
TEST(Value, EnclosesScoresWithLargeErrors) {
  double tightest = 0;
  for (const char* text :
       {"fp32 q20 k20 d128 scale=16 bwd seed=1", "fp32 q20 k20 d128 scale=4 softcap=40 bwd seed=2"}) {
    const Inputs in = inputs_of(text);
    const Values values = value_double(in, {}, 1);
    for (OutputId id : {OutputId::o, OutputId::lse, OutputId::dq})
      for (int64_t n = 0, size = std::ssize(values[id].mid); n < size; n += size / 20) {
        const ElementValue exact = element_ball(in, id, n);
        ASSERT_TRUE(overlap(values[id].mid[n], values[id].radius[n], exact))
            << text << " " << print(locate(in.problem, id, n));
        tightest = std::max(tightest, std::fabs(values[id].mid[n] - exact.mid) / values[id].radius[n]);
      }
  }
  EXPECT_GT(tightest, 1e-3);
}

TEST(Value, EnclosesEveryDataFamily) {
  for (const char* data : {"normal", "outliers", "uniform", "integers", "one_hot_v", "equal_scores", "negative",
                           "creeping_max", "late_max", "sinks", "near_ties", "cancelling", "subnormal", "saturating",
                           "constant_v", "readout", "exact", "exact_powers"})
    for (const char* problem :
         {"fp32 q3 k40 d16 bwd", "fp16 h2/1 q5 k33 d24 causal bwd", "bf16 q4 k70 d8 softcap=5 sink bwd"}) {
      const Inputs in = inputs_of(std::string(problem) + " data=" + data + " seed=3");
      const Values values = value_double(in, {}, 1);
      for (int id = 0; id < output_count; ++id)
        for (int64_t n = 0, size = std::ssize(values.output[id].mid); n < size; n += size / 2 + 1) {
          const OutputValues& output = values.output[id];
          const ElementValue exact = element_interval(in, OutputId(id), n, 512);
          ASSERT_TRUE(overlap(output.mid[n], output.radius[n], exact))
              << problem << " " << data << " " << print(locate(in.problem, OutputId(id), n)) << ": " << output.mid[n]
              << " +- " << output.radius[n] << ", exact " << exact.mid;
          const ElementValue ball = element_ball(in, OutputId(id), n);
          ASSERT_TRUE(overlap(ball.mid, ball.radius, exact)) << problem << " " << data;
        }
    }
}

/// One row of scores with scale 1: q = 1, k = the scores, d = 1.
Inputs row_of(DType dtype, const std::vector<double>& scores, const std::vector<double>& values) {
  Case c;
  c.problem.dtype = dtype;
  c.problem.head_dim = c.problem.value_dim = 1;
  c.problem.scale = 1;
  c.problem.k.slot = std::ssize(scores);
  Inputs in = make_inputs(c);
  in.q.set_bits(0, encode(dtype, 1));
  for (size_t j = 0; j < scores.size(); ++j) {
    in.k.set_bits(j, encode(dtype, scores[j]));
    in.v.set_bits(j, encode(dtype, values[j]));
  }
  return in;
}

TEST(Value, EightKeys) {
  const Inputs in = row_of(DType::fp32, {2, 1, 0.5, 3, -1, 2.5, 0, 4}, {10, 20, 30, 40, 50, 60, 70, 80});
  const Values values = value_double(in, {});
  EXPECT_NEAR(values[OutputId::o].mid[0], 61.6894444404, 5e-11);
  EXPECT_LT(values[OutputId::o].radius[0], 1e-12);
  EXPECT_NEAR(values[OutputId::o].condition[0], 61.6894444404, 5e-11);
  EXPECT_LT(enclose(in, OutputId::o, 0, 1e-14).radius, 1e-14);
  EXPECT_EQ(std::strtod(value_hex128(in, OutputId::o, 0).c_str(), nullptr), enclose(in, OutputId::o, 0, 0).mid);
}

TEST(Value, ThreadsAndSampleChangeNoBit) {
  const Inputs in = inputs_of("bf16 h4/2 q150 k170 d32 causal alibi dropout=0.3@9 sink bwd seed=5");
  const Values one = value_double(in, {}, 1), three = value_double(in, {}, 3);
  Sample sample{.all = false, .query_rows = {7, 333}, .key_rows = {0, 339}};
  const Values some = value_double(in, sample, 2);
  for (int id = 0; id < output_count; ++id) {
    EXPECT_EQ(one.output[id].mid, three.output[id].mid);
    EXPECT_EQ(one.output[id].radius, three.output[id].radius);
    int64_t known = 0;
    for (size_t n = 0; n < one.output[id].mid.size(); ++n) {
      if (!some.output[id].known[n]) continue;
      ++known;
      EXPECT_EQ(some.output[id].mid[n], one.output[id].mid[n]);
      EXPECT_EQ(some.output[id].radius[n], one.output[id].radius[n]);
    }
    const int64_t width = OutputId(id) == OutputId::lse                                        ? 1
                          : OutputId(id) == OutputId::dsink || OutputId(id) == OutputId::dbias ? 0
                                                                                               : 32;
    EXPECT_EQ(known, 2 * width) << name_of(OutputId(id));
  }
}

TEST(Value, RadiiOfALargeProblemAreSmall) {
  const Inputs in = inputs_of("bf16 q16 k2048 d128 bwd seed=2");
  const Values values = value_double(in, {});
  for (OutputId id : {OutputId::o, OutputId::lse, OutputId::dq, OutputId::dk, OutputId::dv}) {
    int64_t small = 0;
    for (size_t n = 0; n < values[id].mid.size(); ++n)
      small += values[id].radius[n] <= 0x1p-40 * values[id].condition[n];
    EXPECT_GE(double(small), 0.999 * double(values[id].mid.size())) << name_of(id);
  }
}

// Weights far below the least double, and scores that no double can hold a radius for.
TEST(Value, ExtremeScoresAreEnclosed) {
  const Inputs far = row_of(DType::fp32, {-2000, 0, -1500}, {1e30, 0, 1});
  const Values values = value_double(far, {});
  EXPECT_GT(values[OutputId::o].radius[0], 0);
  EXPECT_LT(values[OutputId::o].radius[0], 1e-200);
  EXPECT_EQ(correctly_rounded(far, OutputId::o, 0, DType::fp32).bits, 0u);
  EXPECT_EQ(value_hex128(far, OutputId::lse, 0).substr(0, 5), "0xf.8") << "e^-1500 = 15.53 * 2^-2168";

  Inputs huge = row_of(DType::fp32, {0x1p100, 0x1p100, -0x1p100}, {1, 3, 5});
  EXPECT_EQ(correctly_rounded(huge, OutputId::o, 0, DType::fp32).bits, encode(DType::fp32, 2));
  huge.k.set_bits(1, encode(DType::fp32, 0x1.000002p100));
  EXPECT_EQ(correctly_rounded(huge, OutputId::o, 0, DType::fp32).bits, encode(DType::fp32, 3));
}

// ---- correct rounding

RC_GTEST_PROP(CorrectRounding, AgreesWithHighPrecision, ()) {
  const Inputs in = test::draw_inputs(draw_any(6));
  const DType dtype = DType(test::draw(0, 4));
  for (int id = 0; id < output_count; ++id) {
    const int64_t size = tensor_of(make_outputs(in.problem), OutputId(id)).size();
    if (size == 0) continue;
    const int64_t n = test::draw(0, size - 1);
    const ElementValue exact = element_interval(in, OutputId(id), n, 2048);
    const uint32_t low = encode(dtype, exact.low_odd), high = encode(dtype, exact.high_odd);
    const Rounded rounded = correctly_rounded(in, OutputId(id), n, dtype);
    RC_ASSERT(!rounded.undecided || rounded.bits != rounded.other);
    RC_ASSERT(rounded.bits == low || rounded.bits == high ||
              (decode(dtype, low) == 0 && decode(dtype, rounded.bits) == 0));
  }
}

TEST(CorrectRounding, TiesGoToEven) {
  // Two equal scores: the mean of neighbours is a midpoint that no precision tells from its surroundings.
  const auto mean = [](double a, double b) { return row_of(DType::bf16, {1, 1}, {a, b}); };
  for (const auto& [a, b, even] : {std::tuple{1.0, 1 + 0x1p-7, 1.0},
                                   {1 + 0x1p-7, 1 + 0x1p-6, 1 + 0x1p-6},
                                   {-1.0, -1 - 0x1p-7, -1.0},
                                   {0.0, 0x1p-133, 0.0},
                                   {0x1p-133, 0x1p-132, 0x1p-132}}) {
    const Rounded rounded = correctly_rounded(mean(a, b), OutputId::o, 0, DType::bf16);
    EXPECT_EQ(rounded.bits, encode(DType::bf16, even)) << a << " " << b;
    EXPECT_FALSE(rounded.undecided);
    EXPECT_EQ(rounded.strength, Strength::certified_double);
  }
  // A third key of another score, with the same mean: still a tie. With another value: not one, by an amount of e^-60.
  const auto three = [](double third) { return row_of(DType::fp32, {0, 0, -60}, {1, 1 + 0x1p-23, third}); };
  EXPECT_EQ(correctly_rounded(three(2), OutputId::o, 0, DType::fp32).bits, encode(DType::fp32, 1 + 0x1p-23));
  EXPECT_NE(correctly_rounded(three(2), OutputId::o, 0, DType::fp32).strength, Strength::certified_double);
  EXPECT_EQ(correctly_rounded(three(0), OutputId::o, 0, DType::fp32).bits, encode(DType::fp32, 1));
  EXPECT_EQ(
      correctly_rounded(row_of(DType::fp32, {0, 0, -60}, {1, 1 + 0x1p-7, 1 + 0x1p-8}), OutputId::o, 0, DType::bf16)
          .bits,
      encode(DType::bf16, 1));
}

TEST(CorrectRounding, TiesOfLAndOfOneKey) {
  Inputs one = row_of(DType::fp32, {1 + 0x1p-12}, {3});
  one.q.set_bits(0, encode(DType::fp32, 1 + 0x1p-12));  // L = s = 1 + 2^-11 + 2^-24, a midpoint of fp32
  const Rounded l = correctly_rounded(one, OutputId::lse, 0, DType::fp32);
  EXPECT_EQ(l.bits, encode(DType::fp32, 1 + 0x1p-11));
  EXPECT_FALSE(l.undecided);
  EXPECT_EQ(correctly_rounded(one, OutputId::o, 0, DType::fp32).bits, encode(DType::fp32, 3));

  const Inputs gradients = inputs_of("bf16 q1 k1 d4 bwd seed=1");  // one key: dS = p (g - D) = 0 exactly
  for (int64_t c = 0; c < 4; ++c) EXPECT_EQ(correctly_rounded(gradients, OutputId::dq, c, DType::bf16).bits, 0u);
}

/// Softcap leaves scores transcendental; equal ones still make means, and a score of 0 stays 0.
TEST(CorrectRounding, TiesUnderSoftcap) {
  Inputs equal = row_of(DType::bf16, {1, 1}, {1, 1 + 0x1p-7});
  equal.problem.softcap = 2;
  const Rounded mean = correctly_rounded(equal, OutputId::o, 0, DType::bf16);
  EXPECT_EQ(mean.bits, encode(DType::bf16, 1));
  EXPECT_FALSE(mean.undecided);

  Inputs apart = row_of(DType::bf16, {1, 2}, {1, 1 + 0x1p-7});
  apart.problem.softcap = 2;
  EXPECT_EQ(correctly_rounded(apart, OutputId::o, 0, DType::bf16).bits, encode(DType::bf16, 1 + 0x1p-7));

  Inputs of_one_key = inputs_of("fp32 q1 k1 d1 scale=1 softcap=2 bias=1111 data=normal");
  of_one_key.q.set_bits(0, 0);
  of_one_key.bias.set_bits(0, encode(DType::fp32, 1 + 0x1p-8));  // L, a midpoint of bf16
  const Rounded l = correctly_rounded(of_one_key, OutputId::lse, 0, DType::bf16);
  EXPECT_EQ(l.bits, encode(DType::bf16, 1));
  EXPECT_FALSE(l.undecided);
}

/// A case that a campaign left undecided: all scores equal under softcap, a mean of fp32 numbers.
TEST(CorrectRounding, EqualScoresUnderSoftcap) {
  const Inputs in = inputs_of(
      "fp32 b2 h6/3 q4 k13 d4 usedq=[2,0] usedk=[8,6] softcap=27.5 data=equal_scores seed=8263946035764191823");
  EXPECT_FALSE(correctly_rounded(in, OutputId::o, 4 * 4, DType::fp32).undecided);
}

TEST(CorrectRounding, ExactProbesNeedNoPrecision) {
  const Inputs in = inputs_of("bf16 q2 k64 d8 data=exact seed=4");
  Tensor o, lse;
  correctly_rounded_forward(in, o, lse);
  for (int64_t n = 0; n < o.size(); ++n) {
    double sum = 0;
    for (int64_t j = 0; j < 64; ++j) sum += in.v.at(j * 8 + n % 8);
    EXPECT_EQ(o.bits(n), encode(DType::bf16, sum / 64));
  }
  EXPECT_EQ(lse.bits(0), encode(DType::fp32, std::log(64.0)));
}

RC_GTEST_PROP(CorrectRounding, ForwardIsElementwise, ()) {
  const Inputs in = test::draw_inputs(draw_any(5));
  Tensor o, lse;
  correctly_rounded_forward(in, o, lse);
  if (o.size() == 0) return;
  const int64_t n = test::draw(0, o.size() - 1);
  RC_ASSERT(o.bits(n) == correctly_rounded(in, OutputId::o, n, o.dtype).bits);
  const int64_t row = n / in.problem.value_dim;
  RC_ASSERT(lse.bits(row) == correctly_rounded(in, OutputId::lse, row, DType::fp32).bits);
}

TEST(ValueHex, Holds128Bits) {
  const Inputs in = inputs_of("bf16 q2 k9 d4 bwd seed=8");
  for (OutputId id : {OutputId::o, OutputId::lse, OutputId::dq, OutputId::dk, OutputId::dv}) {
    mpfr_t parsed;
    mpfr_init2(parsed, 128);
    ASSERT_EQ(mpfr_set_str(parsed, value_hex128(in, id, 1).c_str(), 0, MPFR_RNDN), 0);
    const ElementValue exact = element_interval(in, id, 1, 1024);
    EXPECT_EQ(mpfr_get_d(parsed, MPFR_RNDN), exact.mid);
    EXPECT_GT(mpfr_min_prec(parsed), 100);
    mpfr_clear(parsed);
  }
  EXPECT_EQ(value_hex128(inputs_of("bf16 q2 k1 d4 causal"), OutputId::lse, 0), "-inf");
  EXPECT_EQ(value_hex128(inputs_of("bf16 q1 k1 d4 bwd"), OutputId::dq, 0), "0x0p+0") << "one key: dS = 0";
}

// ---- inputs that are not finite

/// Three rows and keys, causal: row i sees keys 0 .. i. Channel 1 of key 1 of `tensor` becomes `value`.
Inputs spoiled(Operand operand, double value) {
  Inputs in = inputs_of("bf16 q3 k3 d2 causal bwd seed=6");
  Tensor& tensor = operand == Operand::q ? in.q : operand == Operand::k ? in.k : operand == Operand::v ? in.v : in.d_o;
  tensor.set_bits(1 * 2 + 1, encode(DType::bf16, value));
  return in;
}

TEST(NonFinite, ReachesWhatReadsIt) {
  const auto states = [](const Inputs& in, OutputId id, bool bears_hidden) {
    std::string text;
    const Judgements judgements = judge_nonfinite(in, bears_hidden);
    const int64_t size = tensor_of(make_outputs(in.problem), id).size();
    for (int64_t n = 0; n < size; ++n) text += "jn-"[int(judgements.at(id, n))];
    return text;
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(states(spoiled(Operand::q, nan), OutputId::o, false), "jjnnjj");
  EXPECT_EQ(states(spoiled(Operand::q, infinity), OutputId::o, false), "jj--jj");
  EXPECT_EQ(states(spoiled(Operand::k, nan), OutputId::lse, false), "-nn");
  EXPECT_EQ(states(spoiled(Operand::k, nan), OutputId::lse, true), "jnn");
  EXPECT_EQ(states(spoiled(Operand::v, nan), OutputId::o, true), "jjjnjn");
  EXPECT_EQ(states(spoiled(Operand::v, nan), OutputId::lse, true), "jjj");
  EXPECT_EQ(states(spoiled(Operand::v, -infinity), OutputId::o, true), "jjj-j-");
  EXPECT_EQ(states(spoiled(Operand::d_o, nan), OutputId::o, false), "jjjjjj");
  EXPECT_EQ(states(spoiled(Operand::d_o, nan), OutputId::dq, false), "jj--jj");
  EXPECT_EQ(states(spoiled(Operand::d_o, nan), OutputId::dk, false), "------");
  EXPECT_EQ(states(spoiled(Operand::d_o, 1), OutputId::dk, false), "jjjjjj");
}

TEST(NonFinite, ValuesFollowTheJudgement) {
  const Inputs in = spoiled(Operand::v, std::numeric_limits<double>::quiet_NaN());
  const Inputs clean = spoiled(Operand::v, 0);
  const Values bearing = value_double(in, {}, 1, true), not_bearing = value_double(in, {}, 1),
               expected = value_double(clean, {}, 1);
  EXPECT_EQ(bearing[OutputId::o].mid[0], expected[OutputId::o].mid[0]);
  EXPECT_TRUE(std::isnan(bearing[OutputId::o].mid[3]) && bearing[OutputId::o].known[3]);
  EXPECT_EQ(bearing[OutputId::o].mid[2], expected[OutputId::o].mid[2]);
  EXPECT_FALSE(not_bearing[OutputId::o].known[0]);
  EXPECT_FALSE(not_bearing[OutputId::dv].known[0]);
  EXPECT_EQ(correctly_rounded(in, OutputId::o, 3, DType::bf16).bits, nan_bits(DType::bf16));
  EXPECT_THROW(enclose(spoiled(Operand::v, infinity), OutputId::o, 3, 1), std::runtime_error);
}

TEST(NonFinite, ARowThatSeesNoKeyIsJudged) {
  Inputs in = inputs_of("bf16 q3 k2 d2 causal bwd seed=6");  // row 0 stands before key 0
  for (Tensor* tensor : {&in.q, &in.d_o}) tensor->set_bits(0, nan_bits(DType::bf16));
  const Values values = value_double(in, {}, 1);
  EXPECT_EQ(values[OutputId::lse].mid[0], -infinity);
  EXPECT_TRUE(values[OutputId::o].known[0] && values[OutputId::dq].known[0] && values[OutputId::dk].known[0]);
  EXPECT_EQ(values[OutputId::o].mid[0], 0);
}

// ---- samples

TEST(SampleRows, AllWhenSmallEdgesWhenLarge) {
  const Problem p = parse_problem("bf16 b2 h4/2 q1000 k3000 d64 bwd");
  EXPECT_TRUE(sample_rows(p, 1e13, 64, 64, {}, 1).all);
  const Sample sample = sample_rows(p, 1.2e10, 64, 128, {77}, 1);
  EXPECT_FALSE(sample.all);
  const auto sampled = [&](int64_t token) {
    return std::any_of(sample.query_rows.begin(), sample.query_rows.end(),
                       [&](int64_t row) { return row / 4 == token; });
  };
  for (int64_t token : {0, 63, 64, 65, 127, 128, 960, 999, 1000, 1999}) EXPECT_TRUE(sampled(token)) << token;
  EXPECT_TRUE(std::binary_search(sample.query_rows.begin(), sample.query_rows.end(), 77));
  EXPECT_TRUE(std::is_sorted(sample.key_rows.begin(), sample.key_rows.end()));
  EXPECT_GT(sample.key_rows.size(), 6u);
  EXPECT_NE(sample.query_rows, sample_rows(p, 1.2e10, 64, 128, {77}, 2).query_rows);
  EXPECT_TRUE(sample_rows(p, 1e6, 64, 128, {}, 1).key_rows.empty());
}

}  // namespace
}  // namespace flashproof
