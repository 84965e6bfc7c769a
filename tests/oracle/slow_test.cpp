// Facts that a person can derive by hand, and finite differences, against the slow oracle.
#include "oracle/slow.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace flashproof::slow {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

std::vector<uint32_t> fp32(const std::vector<float>& numbers) {
  std::vector<uint32_t> codes;
  for (float x : numbers) codes.push_back(std::bit_cast<uint32_t>(x));
  return codes;
}

// One head of one entry with q = 1 in every row and head_dim 1, so that the scores are the keys.
Problem scores_and_values(int64_t rows, const std::vector<float>& scores, const std::vector<float>& values) {
  Problem p;
  p.query_lengths = {rows};
  p.key_lengths = {int64_t(scores.size())};
  p.q = fp32(std::vector<float>(rows, 1));
  p.k = fp32(scores);
  p.v = fp32(values);
  p.d_o = fp32(std::vector<float>(rows, 1));
  return p;
}

// The output of q = 0: the mean of the visible values.
std::vector<double> means(Problem p) {
  p.q = fp32(std::vector<float>(p.query_lengths[0], 0));
  p.d_o = p.q;
  std::vector<double> o;
  for (const Value& x : forward_backward(p, false).o) o.push_back(x.hi);
  return o;
}

Problem five_keys(int64_t rows) { return scores_and_values(rows, {0, 0, 0, 0, 0}, {1, 2, 4, 8, 16}); }

TEST(SlowForward, EightKeyExample) {
  const Result r =
      forward_backward(scores_and_values(1, {2, 1, 0.5, 3, -1, 2.5, 0, 4}, {10, 20, 30, 40, 50, 60, 70, 80}), false);
  // 61.68944444042202372234710296173838728358617... and 4.60507137666957789726151628488308261629262..., by decimal
  // arithmetic of 60 digits, as double and remainder.
  EXPECT_EQ(r.o[0].hi, 0x1.ed83fb72602c4p+5);
  EXPECT_EQ(r.o[0].lo, 0x1.8a9edca746febp-50);
  EXPECT_EQ(r.l[0].hi, 0x1.26b97d4ba2a88p+2);
  EXPECT_EQ(r.l[0].lo, 0x1.71a9f1b35a364p-57);
}

TEST(SlowForward, FirstTileOfTheEightKeyExample) {
  const Result r = forward_backward(scores_and_values(1, {2, 1, 0.5, 3}, {10, 20, 30, 40}), false);
  EXPECT_EQ(r.o[0].hi, 30.8131322585104898656);
}

TEST(SlowForward, EqualScoresGiveTheMeanExactly) {
  const Result r = forward_backward(scores_and_values(1, {0.3f, 0.3f, 0.3f, 0.3f}, {1, 2, 3, 5}), false);
  EXPECT_EQ(r.o[0].hi, 2.75);
  EXPECT_EQ(r.o[0].lo, 0);
  EXPECT_EQ(r.o[0].rest_sign, 0);
  const Result third = forward_backward(scores_and_values(1, {7, 7, 7}, {0, 0, 1}), false);
  EXPECT_EQ(third.o[0].hi, 1.0 / 3);
  EXPECT_EQ(third.o[0].lo, 0x1p-54 / 3);  // 1/3 = fl(1/3) + 2^-54 / 3
  EXPECT_NE(third.o[0].rest_sign, 0);
}

TEST(SlowForward, ARowWithoutKeysIsZero) {
  for (bool sink : {false, true}) {
    Problem p = scores_and_values(3, {1, 2}, {5, 6});  // bottom-right causal: row 0 precedes every key
    p.causal = true;
    if (sink) p.sinks = {0.25f};
    const Result r = forward_backward(p, true);
    EXPECT_EQ(r.o[0].hi, 0);
    EXPECT_EQ(r.dq[0].hi, 0);
    EXPECT_EQ(r.l[0].negative_infinity, !sink);
    EXPECT_EQ(r.l[0].hi, sink ? 0.25 : 0);
    EXPECT_FALSE(r.l[1].negative_infinity);
    if (!sink) {
      EXPECT_EQ(r.o[1].hi, 5);
      EXPECT_EQ(r.l[1].hi, 1);
    }
  }
}

TEST(SlowForward, NoKeysAtAll) {
  Problem p = scores_and_values(1, {}, {});
  const Result r = forward_backward(p, true);
  EXPECT_EQ(r.o[0].hi, 0);
  EXPECT_TRUE(r.l[0].negative_infinity);
  EXPECT_TRUE(r.dk.empty());
}

TEST(SlowForward, MasksKeepTheKeysCountedByHand) {
  Problem p = five_keys(3);
  p.causal = true;  // off = 2: rows see keys 0..2, 0..3, 0..4
  EXPECT_EQ(means(p), (std::vector<double>{7.0 / 3, 15.0 / 4, 31.0 / 5}));
  p.top_left = true;  // off = 0
  EXPECT_EQ(means(p), (std::vector<double>{1, 1.5, 7.0 / 3}));

  p = five_keys(3);
  p.window_left = 1;  // keys 1.., 2.., 3..
  EXPECT_EQ(means(p), (std::vector<double>{30.0 / 4, 28.0 / 3, 24.0 / 2}));
  p.window_right = 0;
  EXPECT_EQ(means(p), (std::vector<double>{6.0 / 2, 12.0 / 2, 24.0 / 2}));
  p.window_left = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(means(p), (std::vector<double>{7.0 / 3, 15.0 / 4, 31.0 / 5}));
  p.window_left = 0;
  p.window_right = 1;  // keys 2,3; 3,4; 4
  EXPECT_EQ(means(p), (std::vector<double>{12.0 / 2, 24.0 / 2, 16}));
  p.causal = true;  // intersects
  EXPECT_EQ(means(p), (std::vector<double>{4, 8, 16}));
}

TEST(SlowForward, AKeyWithBiasMinusInfinityIsHidden) {
  Problem p = five_keys(1);
  p.bias_shape = {1, 1, 1, 5};
  const float hidden = -std::numeric_limits<float>::infinity();
  p.bias = fp32({0, hidden, 0, hidden, hidden});
  EXPECT_EQ(means(p), std::vector<double>{2.5});
  const Result r = forward_backward(p, true);
  EXPECT_EQ(r.dbias[1].hi, 0);
  EXPECT_EQ(r.dv[1].hi, 0);
  EXPECT_EQ(r.dv[2].hi, 0.5);
  p.bias = fp32({hidden, hidden, hidden, hidden, hidden});
  EXPECT_TRUE(forward_backward(p, true).l[0].negative_infinity);
}

TEST(SlowForward, ModifiersByHand) {
  // Two keys of scores 1 and 0 weigh 1 and 1 once ALiBi of slope -1 has added a distance of 1 to the farther key.
  Problem p = scores_and_values(1, {0, 1}, {0, 4});
  p.slopes = {-1};
  EXPECT_EQ(forward_backward(p, false).o[0].hi, 2);
  // A sink as large as the one score takes half.
  p = scores_and_values(1, {3}, {4});
  p.sinks = {3};
  EXPECT_EQ(forward_backward(p, false).o[0].hi, 2);
  EXPECT_EQ(forward_backward(p, false).l[0].hi, 3 + std::log(2.0));
  // One key: L is its score, cap tanh(s / cap).
  p = scores_and_values(1, {2}, {4});
  p.softcap = 2;
  EXPECT_EQ(forward_backward(p, false).l[0].hi, 1.5231883119115297649);  // 2 tanh 1 = 2 (e^2 - 1) / (e^2 + 1)
  // All in order: key 1 hidden, L = cap tanh(s / cap) - slope distance + bias = 2 tanh 1 - 1/2 + 1/4.
  p = scores_and_values(1, {2, 9}, {4, 5});
  p.softcap = 2;
  p.slopes = {0.5f};
  p.bias_shape = {1, 1, 1, 2};
  p.bias = fp32({0.25f, -std::numeric_limits<float>::infinity()});
  EXPECT_EQ(forward_backward(p, false).l[0].hi, 1.2731883119115297649);
  // Descales multiply: L = scale t_q t_k q k, O = t_v v; in e4m3, 0x38 is 1 and 0x40 is 2.
  p = scores_and_values(1, {0}, {0});
  p.dtype = Dtype::e4m3;
  p.q = p.k = p.d_o = {0x38};
  p.v = {0x40};
  p.scale = 0.5f;
  p.q_descales = {3};
  p.k_descales = {5};
  p.v_descales = {7};
  const Result r = forward_backward(p, true);
  EXPECT_EQ(r.l[0].hi, 7.5);
  EXPECT_EQ(r.o[0].hi, 14);
  EXPECT_EQ(r.dv[0].hi, 7);
}

TEST(SlowForward, QueryHeadsShareTheirGroupsKeys) {
  Problem p = scores_and_values(1, {0, 0}, {3, 5});  // one key in each of two kv heads
  p.heads = 4;
  p.kv_heads = 2;
  p.key_lengths = {1};
  p.q = fp32({1, 1, 1, 1});
  p.d_o = fp32({1, 10, 100, 1000});
  const Result r = forward_backward(p, true);
  for (int h = 0; h < 4; ++h) EXPECT_EQ(r.o[h].hi, h < 2 ? 3 : 5);
  EXPECT_EQ(r.dv[0].hi, 11);
  EXPECT_EQ(r.dv[1].hi, 1100);
}

// Two entries, four heads on two kv heads, one row each that sees the second of two keys alone. With n = 4 b + h,
// slope n / 8 and bias n / 64: L_n = t_q t_k - n / 8 + n / 64, O_n = t_v v.
TEST(SlowForward, EachEntryAndHeadReadsItsOwnParameters) {
  Problem p;
  p.batch = 2;
  p.heads = 4;
  p.kv_heads = 2;
  p.query_lengths = {1, 1};
  p.key_lengths = {2, 2};
  p.q = fp32(std::vector<float>(8, 1));
  p.k = fp32({9, 9, 1, 1, 9, 9, 1, 1});
  p.v = fp32({9, 9, 1, 2, 9, 9, 3, 4});
  p.top_left = true;
  p.q_descales = {2, 3, 5, 7};
  p.k_descales = {1, 10, 100, 1000};
  p.v_descales = {1, 10, 100, 1000};
  p.bias_shape = {2, 4, 1, 2};
  std::vector<float> bias;
  for (int n = 0; n < 8; ++n) {
    p.slopes.push_back(n / 8.0f);
    bias.insert(bias.end(), {-std::numeric_limits<float>::infinity(), n / 64.0f});
  }
  p.bias = fp32(bias);
  const Result r = forward_backward(p, false);
  const std::vector<double> products = {2, 30, 500, 7000}, o = {1, 20, 300, 4000};
  for (int n = 0; n < 8; ++n) {
    EXPECT_EQ(r.l[n].hi, products[n / 2] - n * 7 / 64.0);
    EXPECT_EQ(r.o[n].hi, o[n / 2]);
  }
  p.bias = fp32(std::vector<float>(16, -std::numeric_limits<float>::infinity()));
  p.sinks = {1, 2, 3, 4};
  const Result hidden = forward_backward(p, false);
  for (int n = 0; n < 8; ++n) EXPECT_EQ(hidden.l[n].hi, n % 4 + 1);
}

TEST(SlowForward, ScoresOfAnyFiniteSizeKeepTheirDifferences) {
  // Scores 2^200 + {0, 1}: the difference lies 200 bits below the scores.
  Problem p = scores_and_values(1, {0, 0}, {0, 1});
  p.head_dim = 2;
  p.q = fp32({0x1p100f, 1});
  p.k = fp32({0x1p100f, 0, 0x1p100f, 1});
  EXPECT_EQ(forward_backward(p, false).o[0].hi, 0.73105857863000487926);  // e / (1 + e)
}

TEST(SlowPhilox, KnownAnswers) {  // kat_vectors of Random123
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox4x32_10({ones, ones, ones, ones}, {ones, ones}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(SlowDropout, FourScoresOfOneCallFollowItsWords) {
  // Counter 0 and key 0 serve rows 0, 8 and keys 0, 1: 0x66.. falls below rate 1/2, 0xe1.., 0xbc.., 0x9b.. do not.
  Problem p = scores_and_values(9, {0, 0}, {1, 2});
  p.dropout_rate = 0.5f;
  const Result half = forward_backward(p, true);
  EXPECT_EQ(half.o[0].hi, 2);  // (2) / 2 * 2
  EXPECT_EQ(half.o[8].hi, 3);
  EXPECT_EQ(half.l[0].hi, std::log(2.0));  // untouched
  p.dropout_rate = 0.875f;                 // 0xe0000000: only 0xe1.. is kept
  const Result high = forward_backward(p, true);
  EXPECT_EQ(high.o[0].hi, 8);
  EXPECT_EQ(high.o[8].hi, 0);
}

TEST(SlowDropout, CounterAndKeyAreThoseOfTheContract) {
  Problem p = scores_and_values(0, {}, {});
  const int64_t rows = 27, keys = 6;
  p.batch = 2;
  p.heads = 3;
  p.query_lengths = {0, rows};
  p.key_lengths = {0, keys};
  p.q = p.d_o = fp32(std::vector<float>(rows * 3, 0));
  p.k = fp32(std::vector<float>(keys, 0));
  p.v = fp32({0, 0, 0, 0, 6, 0});
  p.dropout_rate = 0.5f;
  p.dropout_seed = 0x299f31d0a4093822;
  // Row 26 = 16 + 8 + 2 and key 4: counter (2, 10, h, 1), third word.
  const Result r = forward_backward(p, false);
  int kept = 0;
  for (uint32_t h = 0; h < 3; ++h) {
    const bool keep = philox4x32_10({2, 10, h, 1}, {0xa4093822, 0x299f31d0})[2] >= 0x80000000;
    EXPECT_EQ(r.o[26 * 3 + h].hi, keep ? 2 : 0);
    kept += keep;
  }
  EXPECT_GT(kept, 0);
  EXPECT_LT(kept, 3);
}

TEST(SlowDropout, AWordEqualToTheThresholdIsKept) {
  int64_t row = 0;  // of 0..7, then 16..23, ...: word 0 of counter (0, row / 16 * 8 + row % 8, 0, 0) belongs to key 0
  const auto word = [&] { return philox4x32_10({0, uint32_t(row / 16 * 8 + row % 8), 0, 0}, {0, 0})[0]; };
  while (word() % 256 != 0 || word() >> 31 == 0) row += row % 8 == 7 ? 9 : 1;  // such a word is an fp32 rate
  Problem p = scores_and_values(row + 1, {0}, {1});
  p.dropout_rate = float(word() * 0x1p-32);
  EXPECT_GT(forward_backward(p, false).o[row].hi, 1);
  p.dropout_rate = std::nextafter(p.dropout_rate, 1.0f);
  EXPECT_EQ(forward_backward(p, false).o[row].hi, 0);
}

// ---- gradients by finite differences

// Multiples of 1/64 in [-1, 1], fixed by a multiplicative hash.
std::vector<uint32_t> fractions(int64_t count, uint32_t salt) {
  std::vector<float> numbers;
  for (uint32_t n = 0; n < count; ++n) {
    numbers.push_back(float(int(((n + 1) * 2654435761u + salt * 40503u) >> 16) % 129 - 64) / 64);
  }
  return fp32(numbers);
}

// Two entries and every modifier but bias.
Problem full_problem() {
  Problem p;
  p.batch = 2;
  p.heads = 4;
  p.kv_heads = 2;
  p.head_dim = 2;
  p.value_dim = 3;
  p.query_lengths = {3, 2};
  p.key_lengths = {4, 5};
  p.scale = 0.75f;
  p.softcap = 1.5f;
  p.causal = true;
  p.window_left = 2;
  p.slopes = {0.5f, 0.25f, -0.125f, 0.375f, 0.5f, 0.25f, 0.75f, 0};
  p.sinks = {0.5f, -0.25f, 0, 0.75f};
  p.dropout_rate = 0.25f;
  p.dropout_seed = 11;
  p.q_descales = {1, 0.5f, 1.25f, 1};
  p.k_descales = {0.75f, 1, 1, 1.5f};
  p.v_descales = {1.5f, 1, 0.5f, 1};
  p.q = fractions(5 * 4 * 2, 1);
  p.k = fractions(9 * 2 * 2, 2);
  p.v = fractions(9 * 2 * 3, 3);
  p.d_o = fractions(5 * 4 * 3, 4);
  return p;
}

Problem with_bias(Problem p, std::array<int64_t, 4> shape) {
  p.bias_shape = shape;
  p.bias = fractions(shape[0] * shape[1] * shape[2] * shape[3], 5);
  return p;
}

double difference(const Value& x, const Value& y) { return (x.hi - y.hi) + (x.lo - y.lo); }

// d/dx of f(p) = sum_k weights_k values_k by central differences with steps h and 2h, the h^2 terms eliminated: off by
// h^4 / 30 times the fifth derivative. `shifted(t)` is the weighted vector at x + t. 2^-16 added to a multiple of 1/64
// is exact in fp32.
constexpr double step = 0x1p-16;
template <class Shifted>
double derivative(const std::vector<uint32_t>& weights, Shifted shifted) {
  const auto slope = [&](double h) {
    const std::vector<Value> after = shifted(h), before = shifted(-h);
    double sum = 0;
    for (size_t n = 0; n < after.size(); ++n) sum += decode(weights[n], Dtype::fp32) * difference(after[n], before[n]);
    return sum / (2 * h);
  };
  return (4 * slope(step) - slope(2 * step)) / 3;
}

// Truncation stays below 2^-64 / 30 2^26 for fifth derivatives to 2^26, far above those of O for inputs and parameters
// around 1; the double sums add at most 60 terms of 2^-53 times values around 1.
constexpr double tolerance = 1e-13;

uint32_t shift(uint32_t code, double t) { return std::bit_cast<uint32_t>(float(std::bit_cast<float>(code) + t)); }
float shift(float x, double t) { return float(x + t); }

// The largest |derivative of sum dO O - gradient| over a field.
template <class Element>
double mismatch(const Problem& problem, std::vector<Element> Problem::*field, const std::vector<Value>& gradient) {
  EXPECT_EQ((problem.*field).size(), gradient.size());
  double worst = 0;
  for (size_t n = 0; n < gradient.size(); ++n) {
    const double expected = derivative(problem.d_o, [&](double t) {
      Problem shifted = problem;
      (shifted.*field)[n] = shift((shifted.*field)[n], t);
      return forward_backward(shifted, false).o;
    });
    worst = std::max(worst, std::abs(expected - gradient[n].hi));
  }
  return worst;
}

double largest(const std::vector<Value>& values) {
  double most = 0;
  for (const Value& x : values) most = std::max(most, std::abs(x.hi));
  return most;
}

TEST(SlowBackward, GradientsAreTheSlopesOfO) {
  const Problem p = full_problem();
  const Result r = forward_backward(p, true);
  EXPECT_LT(mismatch(p, &Problem::q, r.dq), tolerance);
  EXPECT_LT(mismatch(p, &Problem::k, r.dk), tolerance);
  EXPECT_LT(mismatch(p, &Problem::v, r.dv), tolerance);
  EXPECT_LT(mismatch(p, &Problem::sinks, r.dsink), tolerance);
  for (const auto* gradient : {&r.dq, &r.dk, &r.dv, &r.dsink}) EXPECT_GT(largest(*gradient), 0.01);
}

TEST(SlowBackward, BiasGradientsSumOverBroadcastAxes) {
  for (const std::array<int64_t, 4>& shape :
       {std::array<int64_t, 4>{2, 4, 3, 5}, {1, 4, 1, 5}, {2, 1, 3, 1}, {1, 1, 3, 5}}) {
    const Problem p = with_bias(full_problem(), shape);
    const Result r = forward_backward(p, true);
    EXPECT_LT(mismatch(p, &Problem::bias, r.dbias), tolerance);
    EXPECT_GT(largest(r.dbias), 0.01);
  }
}

TEST(SlowBackward, FiniteDifferencesTellNeighbouringProblemsApart) {
  const Problem p = full_problem();
  std::vector<Problem> neighbours(6, p);
  neighbours[0].softcap = 0;
  neighbours[1].top_left = true;
  neighbours[2].dropout_seed = 12;
  neighbours[3].slopes.clear();
  neighbours[4].v_descales.clear();
  neighbours[5].window_left.reset();
  for (const Problem& other : neighbours) {
    EXPECT_GT(mismatch(p, &Problem::sinks, forward_backward(other, true).dsink), 1e-4);
  }
}

// dL / dbias_j = p_j, which is dV_j where dO = 1 and nothing is dropped, and dL / dsink = 1 - sum_j p_j.
TEST(SlowBackward, SlopesOfLAreTheProbabilities) {
  Problem p = with_bias(scores_and_values(1, {0.5, -0.25, 1, 0.125}, {1, 2, 3, 4}), {1, 1, 1, 4});
  p.sinks = {0.75f};
  p.softcap = 2;
  const Result r = forward_backward(p, true);
  double total = 0;
  for (int j = 0; j < 4; ++j) {
    const double slope = derivative(fp32({1}), [&](double t) {
      Problem shifted = p;
      shifted.bias[j] = shift(shifted.bias[j], t);
      return forward_backward(shifted, false).l;
    });
    EXPECT_NEAR(slope, r.dv[j].hi, tolerance);
    total += r.dv[j].hi;
  }
  const double slope = derivative(fp32({1}), [&](double t) {
    Problem shifted = p;
    shifted.sinks[0] = shift(shifted.sinks[0], t);
    return forward_backward(shifted, false).l;
  });
  EXPECT_NEAR(slope, 1 - total, tolerance);
  EXPECT_LT(total, 0.95);
}

// Equal scores over v = (0, 4), dO = 1: p = 1/2, D = 2, dS = (-1, 1), dQ = k_1 - k_0, dK = dS q.
TEST(SlowBackward, TwoKeysByHand) {
  Problem p = scores_and_values(1, {0, 0}, {0, 4});
  p.head_dim = 2;
  p.q = fp32({1, 0});
  p.k = fp32({0, 2, 0, 5});
  const Result r = forward_backward(p, true);
  const std::vector<double> dq = {0, 3}, dk = {-1, 0, 1, 0};
  for (int c = 0; c < 2; ++c) EXPECT_EQ(r.dq[c].hi, dq[c]);
  for (int c = 0; c < 4; ++c) EXPECT_EQ(r.dk[c].hi, dk[c]);
  for (int j = 0; j < 2; ++j) EXPECT_EQ(r.dv[j].hi, 0.5);
}

// ---- formats

TEST(SlowFormats, CornersDecode) {
  struct Corner {
    Dtype dtype;
    uint32_t code;
    double number;
  };
  for (const Corner& corner : std::vector<Corner>{
           {Dtype::e4m3, 0x01, 0x1p-9},
           {Dtype::e4m3, 0x07, 0x7p-9},
           {Dtype::e4m3, 0x08, 0x1p-6},
           {Dtype::e4m3, 0x38, 1},
           {Dtype::e4m3, 0x78, 256},
           {Dtype::e4m3, 0x7e, 448},
           {Dtype::e4m3, 0xfe, -448},
           {Dtype::e5m2, 0x01, 0x1p-16},
           {Dtype::e5m2, 0x04, 0x1p-14},
           {Dtype::e5m2, 0x3c, 1},
           {Dtype::e5m2, 0x7b, 57344},
           {Dtype::e5m2, 0x7c, infinity},
           {Dtype::e5m2, 0xfc, -infinity},
           {Dtype::fp16, 0x0001, 0x1p-24},
           {Dtype::fp16, 0x0400, 0x1p-14},
           {Dtype::fp16, 0x3c00, 1},
           {Dtype::fp16, 0x7bff, 65504},
           {Dtype::fp16, 0x7c00, infinity},
           {Dtype::bf16, 0x0001, 0x1p-133},
           {Dtype::bf16, 0x0080, 0x1p-126},
           {Dtype::bf16, 0x3f80, 1},
           {Dtype::bf16, 0xc049, -3.140625},
           {Dtype::bf16, 0x7f7f, 0x1.fep127},
           {Dtype::bf16, 0xff80, -infinity},
           {Dtype::fp32, 0x00000001, 0x1p-149},
           {Dtype::fp32, 0x7f7fffff, 0x1.fffffep127},
       }) {
    EXPECT_EQ(decode(corner.code, corner.dtype), corner.number) << std::hex << corner.code;
  }
  EXPECT_TRUE(std::signbit(decode(0x80, Dtype::e4m3)));
  for (uint32_t code : {0x7fu, 0xffu}) EXPECT_TRUE(std::isnan(decode(code, Dtype::e4m3)));
  for (uint32_t code : {0x7du, 0x7fu}) EXPECT_TRUE(std::isnan(decode(code, Dtype::e5m2)));
  for (uint32_t code : {0x7c01u, 0xffffu}) EXPECT_TRUE(std::isnan(decode(code, Dtype::fp16)));
  EXPECT_TRUE(std::isnan(decode(0x7f81, Dtype::bf16)));
  EXPECT_THROW(decode(0x100, Dtype::e4m3), std::invalid_argument);
  EXPECT_THROW(decode(0x10000, Dtype::bf16), std::invalid_argument);
}

TEST(SlowFormats, Fp32DecodesAsTheHardwareDoes) {
  for (uint64_t code = 0; code < 0x1'0000'0000; code += 104729) {
    const float number = std::bit_cast<float>(uint32_t(code));
    if (std::isnan(number)) continue;
    ASSERT_EQ(decode(uint32_t(code), Dtype::fp32), double(number)) << std::hex << code;
  }
}

TEST(SlowFormats, EveryCodeRoundsToItself) {
  for (Dtype dtype : {Dtype::bf16, Dtype::fp16, Dtype::e4m3, Dtype::e5m2}) {
    const bool wide = dtype == Dtype::bf16 || dtype == Dtype::fp16;
    int finite = 0;
    for (uint32_t code = 0; code < (wide ? 0x10000u : 0x100u); ++code) {
      const double number = decode(code, dtype);
      if (!std::isfinite(number)) continue;
      ASSERT_EQ(correctly_rounded({number, 0, 0, false}, dtype), code);
      ++finite;
    }
    // Infinity and NaN take one binade of each sign; in e4m3 one code.
    EXPECT_EQ(finite, dtype == Dtype::bf16   ? 0x10000 - 2 * 128
                      : dtype == Dtype::fp16 ? 0x10000 - 2 * 1024
                      : dtype == Dtype::e4m3 ? 0x100 - 2
                                             : 0x100 - 2 * 4);
  }
}

TEST(SlowFormats, TiesGoToEvenAndTheRestBreaksThem) {
  EXPECT_EQ(correctly_rounded({1 + 0x1p-8, 0, 0, false}, Dtype::bf16), 0x3f80u);
  EXPECT_EQ(correctly_rounded({1 + 0x3p-8, 0, 0, false}, Dtype::bf16), 0x3f82u);
  EXPECT_EQ(correctly_rounded({1 + 0x1p-8, 0x1p-90, 0, false}, Dtype::bf16), 0x3f81u);
  EXPECT_EQ(correctly_rounded({1 + 0x1p-8, 0, 1, false}, Dtype::bf16), 0x3f81u);
  EXPECT_EQ(correctly_rounded({1 + 0x3p-8, 0, -1, false}, Dtype::bf16), 0x3f81u);
  EXPECT_EQ(correctly_rounded({-1 - 0x1p-8, 0, -1, false}, Dtype::bf16), 0xbf81u);
  EXPECT_EQ(correctly_rounded({-1 - 0x1p-8, 0, 1, false}, Dtype::bf16), 0xbf80u);
  EXPECT_EQ(correctly_rounded({0x1p-150, 0, 0, false}, Dtype::fp32), 0u);
  EXPECT_EQ(correctly_rounded({0x1p-150, 0, 1, false}, Dtype::fp32), 1u);
  EXPECT_EQ(correctly_rounded({0x3p-150, 0, 0, false}, Dtype::fp32), 2u);
  // 1 + 2^-11 + 2^-30 lies above a tie of fp16; by way of bf16 or a tie it would round down.
  EXPECT_EQ(correctly_rounded({1 + 0x1p-11 + 0x1p-30, 0, 0, false}, Dtype::fp16), 0x3c01u);
}

TEST(SlowFormats, OverflowGoesToInfinityAndInE4m3To448) {
  EXPECT_EQ(correctly_rounded({65519, 0, 0, false}, Dtype::fp16), 0x7bffu);
  EXPECT_EQ(correctly_rounded({65520, 0, -1, false}, Dtype::fp16), 0x7bffu);
  EXPECT_EQ(correctly_rounded({65520, 0, 0, false}, Dtype::fp16), 0x7c00u);
  EXPECT_EQ(correctly_rounded({-1e300, 0, 0, false}, Dtype::bf16), 0xff80u);
  EXPECT_EQ(correctly_rounded({0x1.ffffffp127, 0, 0, false}, Dtype::fp32), 0x7f800000u);
  EXPECT_EQ(correctly_rounded({61440, 0, 0, false}, Dtype::e5m2), 0x7cu);
  EXPECT_EQ(correctly_rounded({464, 0, 1, false}, Dtype::e4m3), 0x7eu);
  EXPECT_EQ(correctly_rounded({-1e9, 0, 0, false}, Dtype::e4m3), 0xfeu);
  EXPECT_EQ(correctly_rounded({.negative_infinity = true}, Dtype::fp32), 0xff800000u);
  EXPECT_THROW(correctly_rounded({.negative_infinity = true}, Dtype::e4m3), std::invalid_argument);
}

// ---- refusals

TEST(SlowRefuses, WhatIsNotItsJob) {
  const Problem good = scores_and_values(1, {1, 2}, {3, 4});
  EXPECT_NO_THROW(forward_backward(good, true));
  std::vector<Problem> bad(10, good);
  bad[0].q[0] = 0x7fc00000;  // NaN
  bad[1].v[1] = 0x7f800000;  // infinity
  bad[2].bias = fp32({std::numeric_limits<float>::infinity()});
  bad[3].k.pop_back();
  bad[4].kv_heads = 2;
  bad[5].window_left = -1;
  bad[6].dropout_rate = 1;
  bad[7].softcap = -1;
  bad[8].sinks = {1, 2};
  bad[9].d_o.clear();
  for (size_t n = 0; n < bad.size(); ++n) EXPECT_THROW(forward_backward(bad[n], true), std::invalid_argument) << n;
}

}  // namespace
}  // namespace flashproof::slow
