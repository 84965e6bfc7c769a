// oracle/bits: the predictor gives the bits of a plain transcription of FlashAttention 2's arithmetic on Hopper, one
// output at a time; a changed line of arithmetic changes bits; the check `bits` sees one flipped bit, which `bound`
// does not, and what is predicted keeps its bound.
#include "oracle/bits.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <sstream>

#include "kernels/hardware/convert.h"
#include "kernels/hardware/ex2.h"
#include "kernels/hardware/natural_log.h"
#include "kernels/hardware/tensor_core.h"
#include "oracle/bound.h"
#include "tests/oracle/judged.h"

namespace flashproof {
namespace {

constexpr float log2_e = 1.44269502f, infinity = std::numeric_limits<float>::infinity();

using test::eight_bits;
using test::raw_scores;

/// A line of arithmetic moved, which the declaration does not say.
enum class Moved { nothing, tile_order, one_lane, sum_of_rounded_p };

struct Plain {
  const Inputs& in;
  int64_t b, h, tile_m, tile_n;
  Moved moved = Moved::nothing;

  const Problem& problem() const { return in.problem; }
  int64_t seq_q() const { return in.packing.seq_q(b); }
  int64_t seq_k() const { return in.packing.seq_k(b); }
  int64_t kv_head() const { return h / (problem().heads / problem().kv_heads); }
  int64_t pair() const { return b * problem().kv_heads + kv_head(); }
  uint32_t q(int64_t i, int64_t c) const {
    return in.q.bits(((in.packing.q_begin[b] + i) * problem().heads + h) * problem().head_dim + c);
  }
  uint32_t k(int64_t j, int64_t c) const {
    return in.k.bits(((in.packing.k_begin[b] + j) * problem().kv_heads + kv_head()) * problem().head_dim + c);
  }
  uint32_t v(int64_t j, int64_t c) const {
    return in.v.bits(((in.packing.k_begin[b] + j) * problem().kv_heads + kv_head()) * problem().value_dim + c);
  }
};

/// c + sum_n a(n) b(n) by the instructions of the unit, zeros past `count`.
template <class A, class B>
float accumulate(const MatrixUnit& unit, int64_t count, const A& a, const B& b, float c) {
  const int width = products_an_instruction(unit);
  for (int64_t first = 0; first < count; first += width) {
    uint32_t x[32] = {}, y[32] = {};
    for (int n = 0; n < width && first + n < count; ++n) {
      x[n] = a(first + n);
      y[n] = b(first + n);
    }
    c = fused_step(unit, x, y, c);
  }
  return c;
}

float score(const Plain& at, int64_t i, int64_t j) {
  const Problem& p = at.problem();
  if (!sees(at.in, at.b, at.h, i, j)) return -infinity;
  const MatrixUnit unit = matrix_unit(Architecture::sm_90, MatrixInstruction::mma_sync, p.dtype, p.dtype);
  float s = accumulate(
      unit, p.head_dim, [&](int64_t c) { return at.q(i, c); }, [&](int64_t c) { return at.k(j, c); }, 0);
  if (raw_scores(p)) return s;
  float f = scale_of(p);
  if (p.descale) f = (f * at.in.q_descale[at.pair()]) * at.in.k_descale[at.pair()];
  s = f * s;
  if (p.softcap != 0) {
    const float k = float(2 * 1.4426950408889634 / double(p.softcap)), e = ex2_approx(s * k);
    s = p.softcap * (1 - 2 / (1 + e));
  }
  if (p.alibi != Alibi::none) {
    const int64_t distance = std::abs(i + (p.mask.top_left ? 0 : at.seq_k() - at.seq_q()) - j);
    s = s - at.in.slopes[at.b * p.heads + at.h] * float(distance);
  }
  if (p.bias) s = s + float(bias_at(at.in, at.b, at.h, i, j));
  return s;
}

struct RowState {
  float m = -infinity;
  std::array<float, 4> lane = {};
  std::vector<float> o;
};

/// The encoding of the weight that enters the tensor core.
uint32_t rounded_weight(const Plain& at, int64_t i, int64_t j, float p) {
  if (!keeps(at.problem(), at.b, at.h, i, j)) p = p * 0;
  return eight_bits(at.problem()) ? convert_rn(DType::e4m3, p * 256, true) : convert_rn(at.problem().dtype, p, false);
}

void add_tile(const Plain& at, int64_t i, int64_t begin, RowState& row) {
  const Problem& p = at.problem();
  const DType p_format = eight_bits(p) ? DType::e4m3 : p.dtype;
  const float c = raw_scores(p) ? scale_of(p) * log2_e : log2_e;
  const int64_t count = std::min(at.tile_n, at.seq_k() - begin);
  std::vector<float> s(at.tile_n, -infinity);  // a tile is worked on whole, with keys of zeros behind the last one
  for (int64_t n = 0; n < count; ++n) s[n] = score(at, i, begin + n);
  float m = row.m;
  for (float x : s)
    if (x > m) m = x;
  const float r = m == -infinity ? 0 : m, mu = r * c, alpha = ex2_approx((row.m - r) * c);
  row.m = m;
  for (float& lane : row.lane) lane = lane * alpha;
  std::vector<uint32_t> weights(at.tile_n);
  for (int64_t n = 0; n < at.tile_n; ++n) {
    const float weight = ex2_approx(raw_scores(p) ? fused_multiply_add(s[n], c, -mu) : (s[n] - r) * c);
    weights[n] = rounded_weight(at, i, begin + n, weight);
    float& lane = row.lane[at.moved == Moved::one_lane ? 0 : n % 8 / 2];
    const double scale = eight_bits(p) ? 256 : 1;
    lane = lane + (at.moved == Moved::sum_of_rounded_p ? float(decode(p_format, weights[n]) / scale) : weight);
  }
  MatrixUnit unit = matrix_unit(Architecture::sm_90, MatrixInstruction::mma_sync, p_format, p.dtype);
  if (unit.run != 0) unit.run = 8;
  for (int64_t channel = 0; channel < p.value_dim; ++channel) {
    float& o = row.o[channel];
    o = accumulate(
        unit, at.tile_n, [&](int64_t n) { return weights[n]; },
        [&](int64_t n) { return n < count ? at.v(begin + n, channel) : 0; }, o * alpha);
  }
}

/// Whether a row of the tile of rows may see a key of [begin, begin + tile_n): tiles that nobody sees are passed over.
bool seen_by_tile(const Plain& at, int64_t i, int64_t begin) {
  const int64_t first = i / at.tile_m * at.tile_m;
  for (int64_t row = first; row < std::min(first + at.tile_m, at.seq_q()); ++row) {
    const KeyRange keys = visible_keys(at.problem().mask, at.seq_q(), at.seq_k(), row);
    if (keys.begin < keys.end && keys.begin < begin + at.tile_n && begin < keys.end) return true;
  }
  return false;
}

void attend_row(const Plain& at, int64_t i, Outputs& out) {
  const Problem& p = at.problem();
  RowState row;
  row.o.assign(p.value_dim, 0);
  if (p.sink) row.m = at.in.sinks[at.h], row.lane[0] = 1;
  const int64_t tiles = (at.seq_k() + at.tile_n - 1) / at.tile_n;
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t begin = (at.moved == Moved::tile_order ? tiles - 1 - t : t) * at.tile_n;
    if (seen_by_tile(at, i, begin)) add_tile(at, i, begin, row);
  }
  const float l = (row.lane[0] + row.lane[2]) + (row.lane[1] + row.lane[3]);
  const float dropout = p.dropout ? float(1 / (1 - double(p.dropout->rate))) : 1;
  float g = p.descale ? at.in.v_descale[at.pair()] * dropout : dropout;
  if (eight_bits(p)) g = g * 0x1p-8f;
  const float w = l == 0 ? 0 : 1 / l * g;
  const int64_t place = (at.in.packing.q_begin[at.b] + i) * p.heads + at.h;
  for (int64_t channel = 0; channel < p.value_dim; ++channel) {
    out.o.set_bits(place * p.value_dim + channel, convert_rn(out.o.dtype, row.o[channel] * w + 0, false));
  }
  const float unit = raw_scores(p) ? scale_of(p) : 1;
  out.lse.set_bits(place, encode(DType::fp32, l == 0 ? -infinity : fused_multiply_add(row.m, unit, natural_log(l))));
}

Outputs transcribed(const Inputs& in, int64_t tile_m, int64_t tile_n, Moved moved = Moved::nothing) {
  Outputs out = make_outputs(in.problem);
  for (int64_t b = 0; b < in.problem.batch; ++b)
    for (int64_t h = 0; h < in.problem.heads; ++h)
      for (int64_t i = 0; i < in.packing.seq_q(b); ++i) attend_row({in, b, h, tile_m, tile_n, moved}, i, out);
  return out;
}

/// Elements of O and L that differ; every NaN is the same.
int64_t differing(const Outputs& a, const Outputs& b) {
  int64_t count = 0;
  for (const OutputId id : {OutputId::o, OutputId::lse})
    for (int64_t n = 0; n < tensor_of(a, id).size(); ++n) {
      const bool both_nan = std::isnan(tensor_of(a, id).at(n)) && std::isnan(tensor_of(b, id).at(n));
      count += tensor_of(a, id).bits(n) != tensor_of(b, id).bits(n) && !both_nan;
    }
  return count;
}

/// Any mask and modifiers; up to six tiles of keys and several of rows.
Problem draw_forward(DType dtype, int64_t longest) {
  Problem p = test::draw_problem(dtype, longest);
  p.direction = Direction::forward;
  p.head_dim = test::draw(1, 40);
  p.value_dim = test::coin() ? p.head_dim : test::draw(1, 20);
  if (test::coin()) {  // scores stay <q, k>
    p.softcap = 0, p.alibi = Alibi::none, p.sink = p.descale = false;
    p.bias.reset(), p.scale.reset();
  }
  return p;
}

Inputs draw_data(const Problem& p) {
  Case c;
  c.problem = p;
  constexpr Family families[] = {Family::normal,       Family::normal,     Family::outliers,
                                 Family::creeping_max, Family::sinks,      Family::cancelling,
                                 Family::subnormal,    Family::saturating, Family::near_ties};
  c.recipe.family = families[test::draw(0, 8)];
  c.recipe.seed = uint64_t(test::draw(0, 1 << 20));
  return make_inputs(c);
}

void expect_same_bits(DType dtype) {
  const Problem p = draw_forward(dtype, 100);
  Inputs in = draw_data(p);
  if (test::draw(0, 7) == 0)
    for (Tensor* tensor : {&in.q, &in.k, &in.v})
      if (tensor->size() > 0)
        tensor->set_bits(test::draw(0, tensor->size() - 1), test::coin() ? nan_bits(dtype) : infinity_bits(dtype));
  const int64_t step = eight_bits(p) ? 32 : 16, tile_m = test::draw(1, 40), tile_n = step * test::draw(1, 4);
  RC_LOG() << print(p) << " " << tile_m << "x" << tile_n << "\n";
  const Arithmetic arithmetic = parse_arithmetic(test::hopper_arithmetic(p, tile_m, tile_n));
  RC_ASSERT(unpredictable(p, arithmetic) == "");
  RC_ASSERT(differing(predict(in, arithmetic), transcribed(in, tile_m, tile_n)) == 0);
}
RC_GTEST_PROP(BitsTest, PredictsBf16, ()) { expect_same_bits(DType::bf16); }
RC_GTEST_PROP(BitsTest, PredictsFp16, ()) { expect_same_bits(DType::fp16); }
RC_GTEST_PROP(BitsTest, PredictsE4m3, ()) { expect_same_bits(DType::e4m3); }
RC_GTEST_PROP(BitsTest, PredictsE5m2, ()) { expect_same_bits(DType::e5m2); }

/// Where exponents overflow, the keys of zeros behind the last one weigh 2^(-inf + inf): the row sum is NaN, not
/// infinite.
TEST(BitsTest, CountsKeysBehindTheLastOne) {
  const Case c = parse_case("bf16 q3 k2 d64 scale=1e38 seed=5");
  const Inputs in = make_inputs(c);
  const Outputs predicted = predict(in, parse_arithmetic(test::hopper_arithmetic(c.problem, 16, 64)));
  EXPECT_TRUE(std::isnan(predicted.lse.at(1)));
  EXPECT_EQ(differing(predicted, transcribed(in, 16, 64)), 0);
}

/// Negative products below every fp32 number make -0, and an instruction of zeros, of which a tile of rows or keys may
/// have more or fewer, +0.
TEST(BitsTest, GivesZerosOneSignWhateverTheTiles) {
  const auto bits = [](const char* text, int64_t tile_m, int64_t tile_n) {
    const Case c = parse_case(text);
    return predict(make_inputs(c), parse_arithmetic(test::hopper_arithmetic(c.problem, tile_m, tile_n))).o.bytes;
  };
  const char* const last_key = "bf16 q16 k1 d40 alibi sink data=subnormal seed=0";
  EXPECT_EQ(bits(last_key, 16, 16), bits(last_key, 16, 32));
  const char* const later_rows =
      "bf16 q64 k64 d40 causal align=top-left scale=1e30 sink data=subnormal set=sink[0,0,0,0]:0x42a00000";
  EXPECT_EQ(bits(later_rows, 16, 32), bits(later_rows, 64, 32));
}

const std::string texts[] = {
    "bf16 h2 q20 k150 d32 data=normal seed=3", "fp16 h2 q20 k150 d32 causal sink softcap=5 data=normal",
    "e4m3 h2 q20 k150 d32 descale data=normal seed=4", "e5m2 h2 q20 k150 d32 alibi data=normal"};

RunResult result_of(const Outputs& outputs) {
  RunResult result;
  result.outputs = outputs;
  return result;
}

Verdict verdict_of(const char* id, const Case& c, const std::string& arithmetic, const Outputs& outputs) {
  Subject subject;
  subject.arithmetic = arithmetic;
  const Check& check = test::check(id);
  EXPECT_TRUE(check.applies(c, subject)) << id << " " << print(c);
  return check.judge(c, subject, check.plan(c, subject), std::vector{result_of(outputs)});
}

TEST(BitsTest, AMovedLineOfArithmeticChangesBitsAndKeepsTheBound) {
  for (const std::string& text : texts) {
    const Case c = parse_case(text);
    const Inputs in = make_inputs(c);
    const std::string words = test::hopper_arithmetic(c.problem, 64, 32);
    const Outputs predicted = predict(in, parse_arithmetic(words));
    EXPECT_EQ(verdict_of("bits", c, words, transcribed(in, 64, 32)).status, Status::pass) << text;
    for (const Moved moved : {Moved::tile_order, Moved::one_lane, Moved::sum_of_rounded_p}) {
      const Outputs other = transcribed(in, 64, 32, moved);
      const Verdict bits = verdict_of("bits", c, words, other), bound = verdict_of("bound", c, words, other);
      EXPECT_EQ(bits.status, Status::fail) << text << " " << int(moved);
      EXPECT_EQ(bits.kind, "bits");
      // A sum of rounded weights is a coarser denominator, and L shows it; the others are as good as what was declared.
      EXPECT_EQ(bound.status, moved == Moved::sum_of_rounded_p ? Status::fail : Status::pass) << text << bound.why;
    }
    EXPECT_GT(differing(predicted, transcribed(in, 64, 64)), 0) << text << ": another tile_n";
    EXPECT_EQ(differing(predicted, transcribed(in, 16, 32)), 0) << text << ": another tile_m";
  }
}

TEST(BitsTest, OneFlippedBitIsSeenAndNamed) {
  for (const std::string& text : texts) {
    const Case c = parse_case(text);
    const std::string words = test::hopper_arithmetic(c.problem, 64, 32);
    Outputs outputs = predict(make_inputs(c), parse_arithmetic(words));
    EXPECT_EQ(verdict_of("bits", c, words, outputs).status, Status::pass);
    EXPECT_EQ(verdict_of("bits", c, words, outputs).judged, outputs.o.size() + outputs.lse.size());
    const Where where = locate(c.problem, OutputId::lse, 11);
    outputs.lse.set_bits(11, outputs.lse.bits(11) ^ 1);
    const Verdict bits = verdict_of("bits", c, words, outputs);
    EXPECT_EQ(bits.status, Status::fail);
    EXPECT_EQ(print(bits.where), print(where));
    EXPECT_NE(bits.why.find("1 of 1320 elements differ"), std::string::npos) << bits.why;
    EXPECT_NE(bits.why.find("at most 1 ulp"), std::string::npos) << bits.why;
    EXPECT_EQ(verdict_of("bound", c, words, outputs).status, Status::pass);
  }
}

/// Without a word, or with one that has no model, nothing is predicted, and the reason names it.
TEST(BitsTest, AppliesToKnownArithmeticAlone) {
  const Case c = parse_case("e4m3 q4 k40 d32 softcap=3 dropout=0.5@1 data=normal");
  Subject subject;
  subject.arithmetic = test::hopper_arithmetic(c.problem, 64, 32);
  EXPECT_TRUE(test::check("bits").applies(c, subject));
  std::istringstream words(subject.arithmetic);
  const std::vector<std::string> all{std::istream_iterator<std::string>(words), {}};
  for (const std::string& left_out : all) {
    if (left_out.starts_with("pscale")) continue;  // undeclared it is 0
    std::string rest;
    for (const std::string& word : all) rest += word == left_out ? "" : word + " ";
    const std::string key = left_out.substr(0, left_out.find('=') + 1);
    EXPECT_EQ(unpredictable(c.problem, parse_arithmetic(rest)), "the arithmetic does not declare `" + key + "`");
    subject.arithmetic = rest;
    EXPECT_FALSE(test::check("bits").applies(c, subject)) << left_out;
    EXPECT_THROW(predict(make_inputs(c), parse_arithmetic(rest)), std::invalid_argument);
  }
  for (const char* other :
       {"tile=64x48", "order=descending", "scores=fp32", "scores=tc:32:14:14", "values=tc", "levels=2", "exp=expf",
        "arg=sub", "scaled=no", "tanh=approximate", "s=bf16", "prescaled=yes", "p=bf16", "normalized=yes",
        "dropout=weights", "rowsum=1", "splits=2", "division=ieee", "chip=sm_80"}) {
    const std::string key = std::string(other).substr(0, std::string(other).find('=') + 1);
    const std::string reason =
        unpredictable(c.problem, parse_arithmetic(test::hopper_arithmetic(c.problem, 64, 32) + " " + other));
    const bool of_format = key == "p=";  // then no instruction multiplies it with V
    EXPECT_EQ(reason, "the declared `" + (of_format ? "values=" : key) + "` has no model for this problem") << other;
  }
  EXPECT_NE(unpredictable(parse_problem("fp32 q4 k4"), parse_arithmetic(subject.arithmetic)), "");
}

/// Rows without keys are what the conventions say; what non-finite inputs leave open is not compared, NaN with any NaN
/// is.
TEST(BitsTest, FollowsTheConventions) {
  Case c = parse_case("bf16 q8 k5 d16 causal data=normal");  // rows 0, 1, 2 see no key
  Subject subject;
  subject.arithmetic = test::hopper_arithmetic(c.problem, 64, 32);
  const Check& bits = test::check("bits");
  const auto status = [&](const Outputs& outputs) {
    return bits.judge(c, subject, bits.plan(c, subject), std::vector{result_of(outputs)}).status;
  };
  Outputs outputs = predict(make_inputs(c), parse_arithmetic(subject.arithmetic));
  EXPECT_EQ(outputs.lse.at(2), -infinity);
  EXPECT_EQ(status(outputs), Status::pass);
  subject.conventions.empty_lse = FLASHPROOF_EMPTY_LSE_ZERO;
  EXPECT_EQ(status(outputs), Status::fail);
  for (int64_t i = 0; i < 3; ++i) outputs.lse.set_bits(i, 0);
  EXPECT_EQ(status(outputs), Status::pass);
  outputs.lse.set_bits(1, 1);
  EXPECT_EQ(status(outputs), Status::fail);
  subject.conventions.empty_lse = FLASHPROOF_EMPTY_LSE_UNDEFINED;
  EXPECT_EQ(status(outputs), Status::pass);
  outputs.o.set_bits(20, 1);
  EXPECT_EQ(status(outputs), Status::fail);
  subject.conventions.empty_o = FLASHPROOF_EMPTY_O_UNDEFINED;
  EXPECT_EQ(status(outputs), Status::pass);

  c = parse_case(
      "bf16 q2 k5 d16 data=normal set=q[0,0,0,3]:0x7fc0 set=q[0,1,0,3]:0x7f80");  // NaN; infinity: not judged
  outputs = predict(make_inputs(c), parse_arithmetic(subject.arithmetic));
  for (int64_t n = 0; n < 32; ++n) outputs.o.set_bits(n, 0xffc1);
  EXPECT_EQ(status(outputs), Status::pass);
  outputs.o.set_bits(3, 0);
  EXPECT_EQ(status(outputs), Status::fail);
}

/// What Hopper makes of the declared arithmetic stays within its bound. The worst ratios are printed.
TEST(BitsTest, PredictionsKeepTheirBound) {
  for (const DType dtype : {DType::bf16, DType::fp16, DType::e4m3, DType::e5m2}) {
    double worst_o = 0, worst_lse = 0;
    int64_t judged = 0;
    EXPECT_TRUE(rc::check([&] {
      for (int n = 0; n < 2; ++n) {
        const Problem p = draw_forward(dtype, n == 0 ? 150 : 40);
        const Inputs in = draw_data(p);
        const int64_t tile_n = 32 * test::draw(1, 4);
        const Arithmetic arithmetic = parse_arithmetic(test::hopper_arithmetic(p, 64, tile_n));
        const Outputs predicted = predict(in, arithmetic);
        const Values values = value_double(in, Sample{});
        const Bounds bounds = bound(in, arithmetic, values);
        for (const OutputId id : {OutputId::o, OutputId::lse})
          for (int64_t index = 0; index < tensor_of(predicted, id).size(); ++index) {
            const double error = std::abs(tensor_of(predicted, id).at(index) - values[id].mid[index]) -
                                 values[id].radius[index],
                         limit = bounds.bound[int(id)][index];
            if (std::isinf(limit) || !(error > 0)) continue;
            double& worst = id == OutputId::o ? worst_o : worst_lse;
            worst = std::max(worst, error / limit);
            ++judged;
            if (!(error <= limit)) RC_FAIL(print(locate(p, id, index)) + " in " + print(p));
          }
      }
    }));
    std::printf("format %d: %ld elements, error / bound of O at most %.3f, of L %.3f\n", int(dtype), judged, worst_o,
                worst_lse);
    EXPECT_GT(judged, 10000);
  }
}

}  // namespace
}  // namespace flashproof
