// The data families: known answers, a golden hash each, and that each does what its line in recipe.h says.
#include "reference/recipe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include "reference/inputs.h"

namespace flashproof {
namespace {

TEST(Philox, KnownAnswers) {
  // Random123's kat_vectors, philox4x32 10.
  const auto words = [](const Philox& counter, uint32 key0, uint32 key1) {
    const Philox result = philox4x32_10(counter, key0, key1);
    return std::vector<uint32>(std::begin(result.word), std::end(result.word));
  };
  EXPECT_EQ(words({0, 0, 0, 0}, 0, 0), (std::vector<uint32>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(words({~0u, ~0u, ~0u, ~0u}, ~0u, ~0u),
            (std::vector<uint32>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(words({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0),
            (std::vector<uint32>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Normal, QuantilesKnownAnswers) {
  // Phi^-1(u) to 17 digits by 40-digit arithmetic, at multiples of 2^-53 in each branch.
  const std::pair<double, double> known[] = {
      {0x1.0000000000000p-53, -8.20953615160138686}, {0x1.1978000000000p-40, -7.03448691004783521},
      {0x1.4f8b588e30000p-17, -4.26489079392384077}, {0x1.47ae147ae1440p-7, -2.32634787404084493},
      {0x1.1eb851eb851e8p-4, -1.4757910281791711},   {0x1.339c0ebedfa40p-4, -1.43882539275254037},
      {0x1.9999999999998p-3, -0.841621233572914364}, {0x1.999999999999ap-2, -0.253347103135799741}};
  for (const auto& [u, x] : known) {
    EXPECT_NEAR(normal_quantile(u) / x, 1, 8e-16) << u;
    EXPECT_NEAR(normal_quantile(1 - u) / -x, 1, 8e-16 + 0x1p-54 / u) << u;
  }
  EXPECT_EQ(normal_quantile(0.5), 0);
}

// ---- Golden hashes --------------------------------------------------------------------------------------------------

/// FNV-1a, 64 bits, over the bits of every tensor and modifier.
uint64_t hash_of(const Inputs& in) {
  uint64_t hash = 0xcbf29ce484222325u;
  const auto add = [&](uint8_t byte) { hash = (hash ^ byte) * 0x100000001b3u; };
  for (const Tensor* tensor : {&in.q, &in.k, &in.v, &in.d_o, &in.bias})
    std::for_each(tensor->bytes.begin(), tensor->bytes.end(), add);
  for (const auto* numbers : {&in.slopes, &in.sinks, &in.q_descale, &in.k_descale, &in.v_descale}) {
    for (const float number : *numbers) {
      const uint32 bits = encode(DType::fp32, number);
      for (int n = 0; n < 4; ++n) add(uint8_t(bits >> (8 * n)));
    }
  }
  return hash;
}

/// By family (in the order of its enumeration but file) and dtype (fp32, bf16, fp16, e4m3, e5m2).
constexpr uint64_t golden[family_count - 1][dtype_count] = {
    // clang-format off
    {0xd647886f770e1176, 0x83e3fd296c9b9de1, 0x6e15c6e85f083e25, 0xe801f3d7b97f907b, 0x3140928ea1766144},  // normal
    {0x3c4f725f7c394135, 0xb0247f22ad5306fc, 0x3c25bffcf1b5ad47, 0x266e10e4df314095, 0x23419431de623617},  // outliers
    {0xd092e36416db95f5, 0x9bb82776a049c4b1, 0x63cb7842323ecf03, 0xd5e7545b03acda85, 0xbbb45f7bcb30e295},  // uniform
    {0x632df512f9d04347, 0x734df689e5f86572, 0xceb266f8cb1ef7f5, 0xc95a7d6c18374d16, 0x80dbb38727819c25},  // integers
    {0x1795728c63c55715, 0x435d12e9ae2d7c76, 0xf7ce1b37068642a0, 0xef320e6abc3c5e96, 0x5019b88bf8a71a1c},  // one_hot_v
    {0xa175a6eb2b3ece73, 0x0ec37474d5e277b9, 0x93d3cdea28c64742, 0xba25b6b2469fe4dc, 0x0641a7dd8748be52},  // equal_scores
    {0xc4190598f280e630, 0x1977532cd41ad898, 0x79236557ea27015f, 0xcc1428cb1c426e34, 0x27ed9b97fc8afb9c},  // negative
    {0x8f13cc7b696aca22, 0xc3eaee8fbd7b87cf, 0x6d06f7475c3185c6, 0x31dccf5ab9b15863, 0xcaccf09c891acb84},  // creeping_max
    {0xdda43aacc4f9f202, 0x37540e275ad84ef1, 0x73e8589b515112f2, 0xbd1505f47f8c5abc, 0x215ad95bac0a59d1},  // late_max
    {0xdb37f3f44759ef0f, 0x8c6df4a89fcb31bd, 0xe2b6411941b802cd, 0x3eb60225e5630b89, 0xa6ead05036ea0867},  // sinks
    {0x22a97e3fc731ed6f, 0x63b834a27aaf4222, 0x62ddffab4520a63f, 0x3b9c01a1f41c917f, 0x62a71e1a34af18da},  // near_ties
    {0x356817c598fee3cf, 0xd43b0fd96c6e09f8, 0x81ddb67aaf4ac891, 0x460a7695c50ad63d, 0x6f241af593b200d9},  // cancelling
    {0x59551aea788818ef, 0x42d53c3d4ed2c87d, 0x2b55333d53c8c765, 0x09f8029533e5aa92, 0xff828a7bebc8963d},  // subnormal
    {0x8a15ada0aab1d068, 0xb3441fd849a40412, 0x93cbc45f12668ed5, 0x10c33246f8bd04f9, 0x6ee388d75532e35c},  // saturating
    {0x309ecccb334dffc9, 0xc1e5c843de4c7c8d, 0x172f2496f76a8b87, 0x7d293b46c5378fc2, 0xb0cecdf6f20afdde},  // constant_v
    {0xd67657914266f1bf, 0xb13948a6ed736afb, 0x4e39c853c3b55c77, 0xe20b299e1d93c524, 0x4e6f54e14b232b44},  // readout
    {0x8f00866089a713fa, 0x1ace54abd91b162a, 0x46815d602b016861, 0x4053908c9e0bf3ea, 0xc960445c20e4da2d},  // exact
    {0xdb9f32421e299ca3, 0xb8384bccc6c8ebdb, 0x50afd549ede775bd, 0x99cfecced5c0e422, 0x1f8e3a6a28ca7ce1},  // exact_powers
    // clang-format on
};

Case golden_case(int family, int dtype) {
  Case c = parse_case("b2 h4/2 q5 k37 usedk=[37,18] d6/5 alibi=bh bias=bhqk sink seed=12345678901234567 bwd");
  c.problem.dtype = DType(dtype);
  c.problem.descale = output_dtype(c.problem) != c.problem.dtype;
  c.recipe.family = Family(family);
  return c;
}

TEST(Recipe, BitsAreThoseOfEveryRelease) {
  for (int family = 0; family < family_count - 1; ++family) {
    for (int dtype = 0; dtype < dtype_count; ++dtype) {
      EXPECT_EQ(hash_of(make_inputs(golden_case(family, dtype))), golden[family][dtype])
          << name_of(Family(family)) << " " << dtype << " " << std::hex
          << hash_of(make_inputs(golden_case(family, dtype)));
    }
  }
}

TEST(Recipe, EverySeedAndOperandHasItsOwnStream) {
  std::set<uint64_t> hashes;
  for (const char* text : {"q4 k4", "q4 k4 seed=1", "q4 k4 seed=4294967296", "q4 k4 data=uniform"}) {
    hashes.insert(hash_of(make_inputs(parse_case(text))));
  }
  EXPECT_EQ(hashes.size(), 4u);
  const Inputs in = make_inputs(parse_case("q4 k4"));
  EXPECT_TRUE(in.q != in.k && in.k != in.v && in.v != in.d_o && in.q != in.d_o);
}

// ---- What each family does ------------------------------------------------------------------------------------------

struct Moments {
  double mean = 0, deviation = 0, largest = 0;
};
Moments moments_of(const std::vector<double>& x) {
  Moments m;
  for (const double value : x) m.mean += value / double(x.size()), m.largest = std::max(m.largest, std::abs(value));
  for (const double value : x) m.deviation += (value - m.mean) * (value - m.mean) / double(x.size());
  m.deviation = std::sqrt(m.deviation);
  return m;
}

Inputs family_inputs(const std::string& problem, const std::string& data) {
  return make_inputs(parse_case(problem + " data=" + data + " seed=3"));
}

/// Scores scale <q_i, k_j> of entry 0, head 0: [Sq][Sk].
std::vector<std::vector<double>> scores_of(const Inputs& in) {
  const Problem& p = in.problem;
  std::vector<std::vector<double>> scores(size_t(in.packing.seq_q(0)),
                                          std::vector<double>(size_t(in.packing.seq_k(0))));
  for (size_t i = 0; i < scores.size(); ++i) {
    for (size_t j = 0; j < scores[i].size(); ++j) {
      for (int64_t c = 0; c < p.head_dim; ++c) {
        scores[i][j] +=
            in.q.at(int64_t(i) * p.heads * p.head_dim + c) * in.k.at(int64_t(j) * p.kv_heads * p.head_dim + c);
      }
      scores[i][j] *= scale_of(p);
    }
  }
  return scores;
}

/// Problems on which a family that aims scores must hit them: formats, head dims, scales of either sign.
const char* const aimed_problems[] = {
    "fp32 q9 k70 d64",         "bf16 q9 k70 d64",          "fp16 q9 k70 d128",           "bf16 q9 k70 d256",
    "bf16 q9 k70 d80 scale=1", "bf16 q9 k70 d64 scale=-2", "fp32 q9 k70 d32 scale=1e-6", "fp16 q9 k70 d33 scale=0.3",
    "e4m3 q9 k70 d64",         "e5m2 q9 k70 d64"};

TEST(Recipe, NormalHasUnitMomentsAndItsFactors) {
  const Inputs in = family_inputs("fp32 q100 k100 d100", "normal(2,0.5)");
  const Moments q = moments_of(decoded(in.q)), k = moments_of(decoded(in.k)), v = moments_of(decoded(in.v));
  const double tolerance = 4 / std::sqrt(1e4);
  EXPECT_NEAR(q.mean / 2, 0, tolerance);
  EXPECT_NEAR(q.deviation / 2, 1, tolerance);
  EXPECT_NEAR(k.deviation * 2, 1, tolerance);
  EXPECT_NEAR(v.deviation, 1, tolerance);
  EXPECT_NEAR(moments_of(decoded(in.d_o)).deviation, 1, tolerance);
  std::vector<double> sorted = decoded(in.v);
  std::sort(sorted.begin(), sorted.end());
  EXPECT_NEAR(sorted[1587], -1, 0.1);  // the quantile of -1 sigma
  EXPECT_NEAR(sorted[9772], 2, 0.2);   // of 2 sigma
}

TEST(Recipe, OutliersAreRareAndTenTimesAsWide) {
  const std::vector<double> k = decoded(family_inputs("bf16 q1 k1000 d1000", "outliers").k);
  const auto far = std::count_if(k.begin(), k.end(), [](double x) { return std::abs(x) > 6; });
  // P(|N(0, 101)| > 6) = 0.5505 of 0.001 of 10^6.
  EXPECT_NEAR(double(far), 550.5, 4 * std::sqrt(550.5));
  const std::vector<double> half = decoded(family_inputs("bf16 q1 k100 d100", "outliers(0.5)").v);
  EXPECT_NEAR(moments_of(half).deviation, std::sqrt(51), 0.5);
}

TEST(Recipe, UniformAndIntegersStayInTheirRange) {
  const Moments u = moments_of(decoded(family_inputs("fp32 q1 k100 d100", "uniform(3)").k));
  EXPECT_LE(u.largest, 3);
  EXPECT_NEAR(u.deviation, 3 / std::sqrt(3), 0.05);
  const std::vector<double> x = decoded(family_inputs("e4m3 q1 k100 d100", "integers").v);
  EXPECT_EQ(std::set<double>(x.begin(), x.end()), (std::set<double>{-2, -1, 0, 1, 2}));
  // A share 0.8, and a fifth of the rest by chance.
  EXPECT_NEAR(double(std::count(x.begin(), x.end(), 0)) / 1e4, 0.84, 0.015);
}

TEST(Recipe, ValuesOfOneHotConstantAndReadout) {
  const Inputs one_hot = family_inputs("q1 k10 d4", "one_hot_v"),
               constant = family_inputs("h2 q1 k10 d4", "constant_v");
  const Inputs readout = family_inputs("h2 q3 k10 d4 alibi bias=1hqk", "readout(1)");
  for (int64_t j = 0; j < 10; ++j) {
    for (int64_t c = 0; c < 4; ++c) {
      EXPECT_EQ(one_hot.v.at(j * 4 + c), c == j % 4 ? 1 : 0);
      EXPECT_EQ(constant.v.bits(j * 8 + c), constant.v.bits(c));
      EXPECT_NE(constant.v.bits(j * 8 + c), constant.v.bits(4 + c));
      EXPECT_EQ(readout.v.at(j * 8 + c), j == c + 4 ? 1 : 0);
    }
  }
  EXPECT_EQ(moments_of(decoded(readout.q)).largest, 0);
  EXPECT_EQ(moments_of(decoded(readout.bias)).largest, 0);
  EXPECT_EQ(readout.slopes, (std::vector<float>{0, 0}));
}

TEST(Recipe, EqualScoresAreEqual) {
  for (const auto& row : scores_of(family_inputs("fp16 q5 k40 d24", "equal_scores"))) {
    for (const double score : row) EXPECT_EQ(score, row[0]);
    EXPECT_NE(row[0], 0);
  }
}

TEST(Recipe, NegativeScoresAreAboutMinusA) {
  for (const char* problem : aimed_problems) {
    for (const auto& row : scores_of(family_inputs(problem, "negative"))) {
      for (const double score : row) EXPECT_NEAR(score, -20, 4) << problem;
    }
  }
}

TEST(Recipe, TheRunningMaximumCreepsUp) {
  for (const char* problem : aimed_problems) {
    for (const auto& row : scores_of(family_inputs(problem, "creeping_max"))) {
      double last = -INFINITY;
      for (size_t tile = 0; tile + 16 <= row.size(); tile += 16) {
        const double maximum = *std::max_element(row.begin() + int64_t(tile), row.begin() + int64_t(tile + 16));
        EXPECT_GT(maximum, last) << problem;
        EXPECT_NEAR(maximum, 0.05 * double(tile + 15), 1) << problem;
        last = maximum;
      }
    }
  }
}

TEST(Recipe, TheLastKeyOrTheFirstTakesTheMaximum) {
  for (const char* problem : aimed_problems) {
    for (const auto& row : scores_of(family_inputs(problem, "late_max"))) {
      EXPECT_NEAR(row.back(), 10, 2.5) << problem;
      for (size_t j = 0; j + 1 < row.size(); ++j) EXPECT_NEAR(row[j], 0, 2) << problem;
    }
    for (const auto& row : scores_of(family_inputs(problem, "sinks"))) {
      EXPECT_NEAR(row[0], 12, 2.5) << problem;
      for (size_t j = 1; j < row.size(); ++j) EXPECT_NEAR(row[j], 0, 2) << problem;
    }
  }
}

TEST(Recipe, NearTiesDifferByAFewUlps) {
  for (const char* problem : {"fp32 q4 k50 d64", "bf16 q4 k50 d64", "bf16 q4 k50 d96 scale=-0.5", "fp16 q4 k50 d128"}) {
    for (const auto& row : scores_of(family_inputs(problem, "near_ties"))) {
      const auto [least, most] = std::minmax_element(row.begin(), row.end());
      EXPECT_NEAR(std::abs(*least), 2.5, 1.2) << problem;
      EXPECT_NEAR((*most - *least) * 0x1p22, 6, 0.2) << problem;
      EXPECT_EQ(std::set<double>(row.begin(), row.end()).size(), 7u) << problem;
    }
  }
}

TEST(Recipe, CancellingTermsLeaveSmallScores) {
  for (const char* problem :
       {"fp32 q20 k50 d64", "bf16 q20 k50 d64", "fp16 q20 k50 d33", "bf16 q20 k50 d128 scale=1"}) {
    const Inputs in = family_inputs(problem, "cancelling");
    std::vector<double> scores;
    for (const auto& row : scores_of(in)) scores.insert(scores.end(), row.begin(), row.end());
    EXPECT_NEAR(moments_of(scores).deviation, 1, 0.5) << problem;
    // What half of the channels add up to: a sqrt(d) / 2 of the normalised score.
    const int64_t d = in.problem.head_dim;
    double half = 0;
    for (int64_t c = 0; c < d / 2; ++c) half += in.q.at(c) * in.k.at(c) * scale_of(in.problem);
    EXPECT_NEAR(half / (64 * double(d / 2) / std::sqrt(double(d))), 1, 0.15) << problem;
  }
}

TEST(Recipe, ExtremeMagnitudes) {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16, DType::e4m3, DType::e5m2}) {
    Case c = parse_case("q20 k20 d20 data=subnormal seed=3");
    c.problem.dtype = dtype;
    const Inputs small = make_inputs(c);
    const double least_normal = power_of_two(format_of(dtype).emin);
    for (const Tensor* tensor : {&small.q, &small.k, &small.v, &small.d_o}) {
      const std::vector<double> x = decoded(*tensor);
      EXPECT_LT(moments_of(x).largest, 2 * least_normal);
      const auto subnormal = std::count_if(x.begin(), x.end(), [&](double y) { return std::abs(y) < least_normal; });
      EXPECT_NEAR(double(subnormal), 200, 60);
    }
    c.recipe.family = Family::saturating;
    const Inputs large = make_inputs(c);
    for (const Tensor* tensor : {&large.v, &large.d_o}) {
      for (const double x : decoded(*tensor)) {
        ASSERT_GE(std::abs(x), format_of(dtype).largest / 2);
        ASSERT_LE(std::abs(x), format_of(dtype).largest);
      }
    }
  }
}

TEST(Recipe, ExactFamiliesHoldSmallIntegers) {
  const Inputs exact = family_inputs("e4m3 h2/1 q9 k40 d16 descale alibi", "exact");
  EXPECT_EQ(moments_of(decoded(exact.q)).largest, 0);
  EXPECT_EQ(moments_of(decoded(exact.v)).largest, 8);
  EXPECT_EQ(moments_of(decoded(exact.d_o)).largest, 2);
  EXPECT_EQ(exact.v_descale, (std::vector<float>{1}));
  EXPECT_EQ(exact.slopes, (std::vector<float>{0, 0}));
  for (const double x : decoded(exact.v)) ASSERT_EQ(x, std::round(x));
  const Inputs powers = family_inputs("q20 k40 d64 scale=1", "exact_powers");
  std::set<double> seen;
  for (const auto& row : scores_of(powers)) seen.insert(row.begin(), row.end());
  for (const double score : seen) ASSERT_EQ(score, std::round(score));
  EXPECT_GE(seen.size(), 8u);
  EXPECT_LE(*seen.rbegin(), 24);
}

TEST(Recipe, Modifiers) {
  const Inputs in = family_inputs("e5m2 b8 h16/8 q16 k16 d1 bias=11qk:fp32 alibi=bh sink descale", "normal");
  const std::vector<double> bias = decoded(in.bias);
  const auto hidden = std::count(bias.begin(), bias.end(), -INFINITY);
  EXPECT_NEAR(double(hidden), 16, 15);
  for (const float slope : in.slopes) EXPECT_TRUE(slope > 0 && slope < 1);
  for (const float sink : in.sinks) EXPECT_NEAR(sink, 1, 5);
  for (const auto* descales : {&in.q_descale, &in.k_descale, &in.v_descale}) {
    const auto [least, most] = std::minmax_element(descales->begin(), descales->end());
    EXPECT_TRUE(*least >= 0.5f && *least < 0.8f && *most <= 2 && *most > 1.7f);
  }
  for (const double x : decoded(family_inputs("e4m3 q16 k16 bias=11qk", "normal").bias)) ASSERT_LT(std::abs(x), 4);
}

TEST(Recipe, EveryNumberIsFiniteAtTheEndsOfTheRange) {
  for (int family = 0; family < family_count - 1; ++family) {
    for (int dtype = 0; dtype < dtype_count; ++dtype) {
      for (const char* problem :
           {"q3 k5 d1", "q3 k5 d2", "q3 k5 d3 scale=0", "q3 k5 d64 scale=1e-38", "q3 k5 d64 scale=-3e38"}) {
        Case c = parse_case(problem);
        c.problem.dtype = DType(dtype);
        c.recipe.family = Family(family);
        const Inputs in = make_inputs(c);
        for (const Tensor* tensor : {&in.q, &in.k, &in.v, &in.d_o}) {
          for (const double x : decoded(*tensor)) ASSERT_TRUE(std::isfinite(x)) << print(c);
        }
      }
    }
  }
}

}  // namespace
}  // namespace flashproof
