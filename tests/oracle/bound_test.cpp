// oracle/bound: right kernels stay within it, a constructed case nearly reaches it, declaring arithmetic never raises
// it, its terms add up, and it sees the planted faults of the table that other projects' tolerances were measured on.
#include "oracle/bound.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <map>
#include <sstream>

#include "tests/oracle/planted_faults.h"
#include "tests/oracle/simulated_kernel.h"

namespace flashproof {
namespace {

using test::SimulatedKernel;

Inputs inputs_of(const std::string& text) { return make_inputs(parse_case(text)); }

/// Largest (|result - exact| - radius) / bound of one output; infinity for a result that is not finite.
double worst_ratio(const Outputs& results, OutputId id, const Values& values, const Bounds& bounds) {
  double worst = 0;
  const Tensor& tensor = tensor_of(results, id);
  for (int64_t n = 0; n < int64_t(values[id].known.size()); ++n) {
    const double bound = bounds.bound[int(id)][n], result = tensor.at(n), exact = values[id].mid[n];
    if (!values[id].known[n] || std::isinf(bound) || result == exact) continue;
    const double error = std::abs(result - exact) - values[id].radius[n];
    if (error <= 0) continue;
    worst = std::max(worst, std::isfinite(error) && bound > 0 ? error / bound : HUGE_VAL);
  }
  return worst;
}

SimulatedKernel draw_kernel() {
  const auto algorithm = test::Algorithm(test::draw(0, 4));
  return {.algorithm = algorithm,
          .tile = {test::draw(1, 12), test::draw(1, 12)},
          .splits = test::draw(1, 5),
          .two_level = algorithm == test::Algorithm::flash3 && test::coin(),
          .exp_error = double(test::draw(-1, 1)) * 1.9 * 0x1p-23};
}

Problem draw_problem() {
  Problem p = test::draw_problem(DType(test::draw(0, dtype_count - 1)), 24);
  if (test::coin()) p.direction = Direction::backward_exact;
  return p;
}

RC_GTEST_PROP(BoundTest, RightKernelsStayWithin, ()) {
  static std::map<std::string, double> worst;  // by dtype and output, for the eye
  const Problem p = draw_problem();
  const Inputs in = test::draw_inputs(p);
  const SimulatedKernel kernel = draw_kernel();
  Outputs exact = make_outputs(p);
  const bool read_exact = p.direction == Direction::backward_exact;
  if (read_exact) correctly_rounded_forward(in, exact.o, exact.lse);
  const Outputs results = test::run(kernel, in, read_exact ? &exact.o : nullptr, read_exact ? &exact.lse : nullptr);
  const Values values = value_double(in, Sample{});
  const Bounds bounds = bound(in, parse_arithmetic(test::arithmetic_of(kernel, p)), values);
  for (int id = 0; id < output_count; ++id) {
    const double ratio = worst_ratio(results, OutputId(id), values, bounds);
    double& largest = worst[print(p).substr(0, 5) + name_of(OutputId(id))];
    if (ratio > largest)
      testing::Test::RecordProperty(print(p).substr(0, 4) + "_" + name_of(OutputId(id)),
                                    std::to_string(largest = ratio));
    RC_ASSERT(ratio <= 1.0);
  }
}

/// One more field declared never raises a bound; but formats, and P's scale, have no worst case: undeclared they are
/// the inputs'.
RC_GTEST_PROP(BoundTest, DeclaringNeverRaisesIt, ()) {
  const Problem p = draw_problem();
  const Inputs in = test::draw_inputs(p);
  const Values values = value_double(in, Sample{});
  std::istringstream words(p.dtype != DType::fp32 && test::coin() ? test::hopper_arithmetic(p, 16, 32)
                                                                  : test::arithmetic_of(draw_kernel(), p));
  std::vector<std::string> declared{std::istream_iterator<std::string>(words), {}};
  std::string all, without;
  std::erase_if(declared, [](const std::string& word) {
    return word.starts_with("p=") || word.starts_with("pscale=") || word.starts_with("ds=");
  });
  const int64_t dropped = test::draw(0, int64_t(declared.size()) - 1);
  for (int64_t n = 0; n < int64_t(declared.size()); ++n) {
    if (n != dropped && test::draw(0, 3) == 0) continue;  // both lack some fields, one lacks one more
    all += declared[n] + " ";
    if (n != dropped) without += declared[n] + " ";
  }
  const Bounds more = bound(in, parse_arithmetic(all), values), less = bound(in, parse_arithmetic(without), values);
  for (int id = 0; id < output_count; ++id)
    for (size_t n = 0; n < more.bound[id].size(); ++n)
      if (more.bound[id][n] > less.bound[id][n] * (1 + 1e-9))
        RC_FAIL(declared[dropped] + " raises the bound of " + name_of(OutputId(id)) + ", with " + all);
}

RC_GTEST_PROP(BoundTest, TermsAddUp, ()) {
  const Problem p = draw_problem();
  const Inputs in = test::draw_inputs(p);
  const Arithmetic arithmetic = parse_arithmetic(test::arithmetic_of(draw_kernel(), p));
  const Bounds bounds = bound(in, arithmetic, value_double(in, Sample{}));
  for (int id = 0; id < output_count; ++id) {
    if (bounds.bound[id].empty()) continue;
    const int64_t index = test::draw(0, int64_t(bounds.bound[id].size()) - 1);
    double sum = 0;
    for (const BoundTerm& term : bound_terms(in, arithmetic, OutputId(id), index)) sum += term.amount;
    const double total = bounds.bound[id][index];
    RC_LOG() << print(p) << " " << print(arithmetic) << " " << name_of(OutputId(id)) << " " << index << "\n";
    RC_ASSERT(sum == total || std::abs(sum - total) <= 1e-9 * total);
  }
}

/// n keys with P just under the middle of two bf16 numbers and V = v, one with P = 1 and V = 0: every P is rounded the
/// same way, the row sum is not, and O before its own rounding is just under the middle of two bf16 numbers too.
TEST(BoundTest, IsNearlyReached) {
  const double p = 0.501952, middle = 0.5 + 0x1p-9;
  int64_t n = 0;
  double v = 0, best = 0;
  for (int64_t keys = 64; keys <= 1024; ++keys)
    for (double value = 0.5; value < 1.1; value += 0x1p-8) {
      const double o = value * 0.5 * double(keys) / (1 + double(keys) * p);
      if (o < middle * (1 - 1e-4) && o > best) n = keys, v = value, best = o;
    }
  // q = 1 in three channels, k the score's leading bf16 digits in them; the scale is 1.
  const std::string k = std::to_string(n + 1);
  Inputs in = inputs_of("bf16 q1 k" + k + " d3/1 scale=1 data=normal");
  double rest = std::log(p), digits[3];
  for (double& digit : digits) rest -= digit = round_to(DType::bf16, rest);
  for (int64_t j = 0; j <= n; ++j) {
    for (int64_t c = 0; c < 3; ++c) in.k.set_bits(j * 3 + c, j == n ? 0 : encode(DType::bf16, digits[c]));
    in.v.set_bits(j, j == n ? 0 : encode(DType::bf16, v));
  }
  for (int64_t c = 0; c < 3; ++c) in.q.set_bits(c, encode(DType::bf16, 1));
  const SimulatedKernel kernel{test::Algorithm::flash2, {1, 2048}, 1};
  const Values values = value_double(in, Sample{});
  const Bounds bounds = bound(in, parse_arithmetic(test::arithmetic_of(kernel, in.problem)), values);
  const double ratio = worst_ratio(test::run(kernel, in), OutputId::o, values, bounds);
  RecordProperty("ratio", std::to_string(ratio));
  std::printf("%ld keys, V = %g: error / bound = %.4f\n", n, v, ratio);
  EXPECT_GE(ratio, 0.9);
  EXPECT_LE(ratio, 1.0);
}

/// The table of planted faults: which are seen at S = 512, d = 128, bf16, normal data, by the bound alone.
TEST(BoundTest, SeesPlantedFaults) {
  const Inputs in = inputs_of("bf16 h2 q512 k512 d128 data=normal seed=3");
  const Values values = value_double(in, Sample{});
  const Bounds bounds =
      bound(in,
            parse_arithmetic("tile=128x128 scores=fp32 values=fp32 levels=1 exp=expf arg=sub s=fp32 prescaled=no "
                             "p=bf16 normalized=no rowsum=1 splits=1 division=ieee"),
            values);
  int by_o = 0, by_l = 0;
  for (int n = 0; n < test::fault_count; ++n) {
    Outputs results;
    test::faulty_forward(in, test::Fault(n), results);
    const double o = worst_ratio(results, OutputId::o, values, bounds),
                 l = worst_ratio(results, OutputId::lse, values, bounds);
    std::printf("%-40s O %10.3f   L %10.3f\n", test::fault_names[n], o, l);
    if (n == 0) {
      EXPECT_LE(o, 1);
      EXPECT_LE(l, 1);
    } else {
      by_o += o > 1;
      by_l += l > 1;
    }
  }
  std::printf("seen of 13: %d by O, %d by L\n", by_o, by_l);
  EXPECT_GE(by_o, 8);
  EXPECT_GE(by_l, 7);
}

/// 600 keys of weight e^-8 beside one of weight 1: in e4m3 they are 0 unless P is scaled, and O loses a fifth.
TEST(BoundTest, SeesThatPInFp8WasNotScaled) {
  Inputs in = inputs_of("e4m3 q1 k601 d1 scale=1 descale data=normal");
  in.q_descale = {0.5f}, in.k_descale = {2}, in.v_descale = {-3};
  in.q.set_bits(0, encode(DType::e4m3, 8));
  for (int64_t j = 0; j <= 600; ++j) {
    in.k.set_bits(j, encode(DType::e4m3, j == 0));
    in.v.set_bits(j, encode(DType::e4m3, j != 0));
  }
  const Values values = value_double(in, Sample{});
  for (int n = 0; n < 5; ++n) {
    const SimulatedKernel right{.algorithm = test::Algorithm(n), .tile = {16, 1024}},
        wrong{.algorithm = test::Algorithm(n), .tile = {16, 1024}, .p_scale_log2 = 0};
    const Bounds bounds = bound(in, parse_arithmetic(test::arithmetic_of(right, in.problem)), values);
    EXPECT_LE(worst_ratio(test::run(right, in), OutputId::o, values, bounds), 1) << n;
    EXPECT_GT(worst_ratio(test::run(wrong, in), OutputId::o, values, bounds), 1) << n;
  }
}

/// P in e4m3 saturates above 448: 2^8 / (1 - rate) may, where dropout's factor may be on P.
TEST(BoundTest, FlagsSaturationOfP) {
  const Inputs in = inputs_of("e4m3 q8 k8 d8 dropout=0.5@1 data=normal");
  const std::string words = "tile=8x8 normalized=no p=e4m3 pscale=8 ds=bf16 dropout=";
  for (const bool on_output : {false, true}) {
    const Arithmetic arithmetic = parse_arithmetic(words + (on_output ? "output" : "weights"));
    EXPECT_EQ(bound(in, arithmetic, value_double(in, Sample{})).overflow_possible, !on_output);
  }
}

/// Scores of 8e6: the product m c may round by u m = 0.48, so that a weight of fma2 may be e^0.48, and 2^8 times that
/// is 413.
TEST(BoundTest, FlagsSaturationOfPByItsReference) {
  Inputs in = inputs_of("e4m3 q1 k2 d1 scale=40 data=normal");
  for (Tensor* tensor : {&in.q, &in.k})
    for (int64_t n = 0; n < tensor->size(); ++n) tensor->set_bits(n, largest_bits(DType::e4m3));
  const auto flagged = [&](const std::string& words) {
    return bound(in,
                 parse_arithmetic("tile=8x8 scores=fp32 s=fp32 prescaled=no normalized=no p=e4m3 pscale=8 "
                                  "dropout=output splits=1 " +
                                  words),
                 value_double(in, Sample{}))
        .overflow_possible;
  };
  EXPECT_TRUE(flagged("arg=fma2 scaled=no"));
  EXPECT_FALSE(flagged("arg=sub"));
}

TEST(BoundTest, FlagsOverflow) {
  const Arithmetic arithmetic = parse_arithmetic(test::arithmetic_of({}, Problem{}));
  const auto bounds_of = [&](const Inputs& in) { return bound(in, arithmetic, value_double(in, Sample{})); };
  Inputs in = inputs_of("fp16 q1 k2 d8 scale=1 data=normal");
  EXPECT_FALSE(bounds_of(in).overflow_possible);
  for (int64_t n = 0; n < in.v.size(); ++n) in.v.set_bits(n, largest_bits(DType::fp16));
  EXPECT_TRUE(bounds_of(in).overflow_possible) << "O at the top of fp16";
  in = inputs_of("bf16 q1 k2 d8 scale=1 data=normal");
  for (int64_t n = 0; n < in.q.size(); ++n) in.q.set_bits(n, encode(DType::bf16, 0x1p126));
  EXPECT_TRUE(bounds_of(in).overflow_possible) << "scores beyond fp32";
  EXPECT_EQ(bounds_of(in).score_error, 0);
  const Bounds off = bounds_of(inputs_of("bf16 q1 k2 d8 softcap=1e10 data=normal"));
  EXPECT_FALSE(off.overflow_possible);
  EXPECT_GT(off.score_error, 1e10 * 0x1p-24);
}

/// Of one output, all of whose exact values a right kernel may give as 0.
void expect_zeros_allowed(const Inputs& in, OutputId id, const std::string& arithmetic) {
  const Values values = value_double(in, Sample{});
  const Bounds bounds = bound(in, parse_arithmetic(arithmetic), values);
  for (size_t n = 0; n < values[id].mid.size(); ++n)
    EXPECT_GE(bounds.bound[int(id)][n], std::abs(values[id].mid[n])) << name_of(id) << " " << n;
}

/// q times scale rounds to 0, so dK is 0 whatever dS is.
TEST(BoundTest, AllowsForPrescaledQueriesThatUnderflow) {
  Inputs in = inputs_of("e4m3 q64 k3 d4 scale=0.25 bwd data=normal seed=1");
  for (int64_t n = 0; n < in.q.size(); ++n) in.q.set_bits(n, encode(DType::e4m3, 0x1p-8));
  expect_zeros_allowed(in, OutputId::dk,
                       "tile=64x64 scores=fp32 values=fp32 levels=1 exp=expf arg=sub s=fp32 prescaled=yes p=e4m3 "
                       "normalized=no rowsum=1 splits=1 division=ieee ds=e4m3 d=rounded");
}

/// A kernel that flushes subnormal operands reads v as 0 before dropout's 1 / (1 - rate) makes it normal.
TEST(BoundTest, AllowsForFlushedValuesUnderDropout) {
  Inputs in = inputs_of("bf16 q1 k4 d4 dropout=0.5@1 data=normal seed=1");
  in.problem.dropout->rate = 1 - 0x1p-10f;
  for (uint64_t& seed = in.problem.dropout->seed; !keeps(in.problem, 0, 0, 0, 0);) ++seed;
  for (int64_t n = 0; n < in.v.size(); ++n) in.v.set_bits(n, encode(DType::bf16, 0x1.fp-127));
  expect_zeros_allowed(in, OutputId::o, test::arithmetic_of({}, in.problem));
}

/// A mask made of huge finite numbers costs a row no more than longer sums: its keys weigh 0.
TEST(BoundTest, HugeNegativeBiasIsAlmostAsGoodAsAMask) {
  Inputs in = inputs_of("bf16 q1 k8 d4 bias=111k:fp32 data=normal seed=1");
  const Arithmetic arithmetic = parse_arithmetic(test::arithmetic_of({.tile = {16, 4}}, in.problem));
  const auto bounds_with = [&](double bias) {
    for (int64_t j = 0; j < 8; ++j) in.bias.set_bits(j, encode(DType::fp32, j % 2 ? bias : 0.25));
    return bound(in, arithmetic, value_double(in, Sample{}));
  };
  const Bounds masked = bounds_with(-HUGE_VAL), huge = bounds_with(-1e30);
  for (OutputId id : {OutputId::o, OutputId::lse})
    for (size_t n = 0; n < masked.bound[int(id)].size(); ++n)
      EXPECT_LE(huge.bound[int(id)][n], 2 * masked.bound[int(id)][n]) << name_of(id) << " " << n;
}

/// 0 times an infinite D is NaN: a row that overflows spoils dK of keys that it does not see.
TEST(BoundTest, OverflowReachesHiddenKeys) {
  Inputs in = inputs_of("fp16 q1 k2 d4 bias=111k bwd data=normal seed=1");
  in.bias.set_bits(0, encode(DType::fp16, 0));
  in.bias.set_bits(1, encode(DType::fp16, -HUGE_VAL));
  const auto bound_of_hidden_key = [&] {
    return bound(in, Arithmetic{}, value_double(in, Sample{})).bound[int(OutputId::dk)][4];
  };
  EXPECT_EQ(bound_of_hidden_key(), 0);
  for (int64_t c = 0; c < 4; ++c) in.v.set_bits(c, largest_bits(DType::fp16));
  EXPECT_EQ(bound_of_hidden_key(), HUGE_VAL);
}

/// A row whose query is NaN has no score: it is not judged, and the others are judged as without it.
TEST(BoundTest, PassesOverRowsOfNaN) {
  const std::string text = "bf16 q3 k4 d8 bwd data=normal seed=1";
  const auto bounds_of = [](const std::string& case_text) {
    const Inputs in = inputs_of(case_text);
    return bound(in, Arithmetic{}, value_double(in, Sample{}));
  };
  const Bounds sound = bounds_of(text), spoilt = bounds_of(text + " set=q[0,1,0,5]:0x7fc0");
  for (int64_t row : {0, 2}) {
    EXPECT_EQ(spoilt.bound[int(OutputId::lse)][row], sound.bound[int(OutputId::lse)][row]);
    for (int64_t c = 0; c < 8; ++c) {
      EXPECT_GT(spoilt.bound[int(OutputId::o)][row * 8 + c], 0);
      EXPECT_EQ(spoilt.bound[int(OutputId::o)][row * 8 + c], sound.bound[int(OutputId::o)][row * 8 + c]);
      EXPECT_EQ(spoilt.bound[int(OutputId::dq)][row * 8 + c], sound.bound[int(OutputId::dq)][row * 8 + c]);
    }
  }
}

/// Rows without keys: exact zeros and -infinity, so nothing is allowed for.
TEST(BoundTest, AllowsNothingForEmptyRows) {
  const Inputs in = inputs_of("bf16 q4 k2 d8 causal bwd data=normal");
  const Values values = value_double(in, Sample{});
  const Bounds bounds = bound(in, Arithmetic{}, values);
  for (int64_t c = 0; c < 8; ++c) {
    EXPECT_EQ(bounds.bound[int(OutputId::o)][c], 0);
    EXPECT_EQ(bounds.bound[int(OutputId::dq)][c], 0);
    EXPECT_GT(bounds.bound[int(OutputId::o)][3 * 8 + c], 0);
  }
}

}  // namespace
}  // namespace flashproof
