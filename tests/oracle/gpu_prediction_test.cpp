// oracle/gpu without a GPU: its functions run on the host, a thread a team, and give what the CPU's predictor gives;
// and oracle/large_cases: who predicts, and that a GPU which errs is named.
#include "oracle/gpu/prediction.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>

#include "oracle/bits.h"
#include "oracle/checks/checks.h"
#include "oracle/large_cases.h"
#include "reference/errors.h"
#include "tests/oracle/judged.h"
#include "tests/oracle/predictable_case.h"

namespace flashproof {
namespace {

/// A word of the format: any, or a number of few bits and small exponent, or zero.
uint32 draw_word(DType dtype) {
  const int64_t codes = int64_t(1) << format_of(dtype).bits;
  if (test::draw(0, 3) == 0) return 0;
  return test::coin() ? uint32(test::draw(0, codes - 1))
                      : encode(dtype, std::ldexp(double(test::draw(-1000, 1000)), int(test::draw(-14, -4))));
}

RC_GTEST_PROP(DecodedStep, IsTheInstructionOfTheModel, ()) {
  const DType a = DType(test::draw(1, 4)), b = is_fp8(a) ? DType(test::draw(3, 4)) : a;
  MatrixUnit unit =
      matrix_unit(Architecture::sm_90, test::coin() ? MatrixInstruction::wgmma : MatrixInstruction::mma_sync, a, b);
  if (unit.run != 0 && test::coin()) unit.run = 8;
  uint32 x[32], y[32];
  DecodedOperand decoded_x[32], decoded_y[32];
  for (int n = 0; n < products_an_instruction(unit); ++n) x[n] = draw_word(a), y[n] = draw_word(b);
  for (int n = 0; n < products_an_instruction(unit); ++n) {
    const int k = product_at(unit, n);
    const MatrixUnit step = unit_of_step(unit);
    decoded_x[n] = decoded_operand(float(decode(a, x[k])), format_of(step.a).emin);
    decoded_y[n] = decoded_operand(float(decode(b, y[k])), format_of(step.b).emin);
  }
  const float c = test::draw(0, 9) == 0 ? __builtin_bit_cast(float, draw_word(DType::fp32))
                                        : std::ldexp(float(test::draw(-100000, 100000)), int(test::draw(-40, 10)));
  RC_ASSERT(__builtin_bit_cast(uint32, decoded_instruction(unit, decoded_x, decoded_y, 1, c)) ==
            __builtin_bit_cast(uint32, fused_step(unit, x, y, c)));
}

/// Any mask and modifiers, several tiles of rows and keys, fp8 by either instruction.
void expect_same_bits(DType dtype) {
  const Case c = test::draw_predictable_case(dtype, 100, 70, 40);
  Inputs in = make_inputs(c);
  if (test::draw(0, 7) == 0)
    for (Tensor* tensor : {&in.q, &in.k, &in.v})
      if (tensor->size() > 0)
        tensor->set_bits(test::draw(0, tensor->size() - 1), test::coin() ? nan_bits(dtype) : infinity_bits(dtype));
  std::string words = test::hopper_arithmetic(c.problem, test::draw(1, 70), 32 * test::draw(1, 4));
  if (is_fp8(dtype) && test::coin()) words += " scores=tc:32:13:13 values=tc:32:13:13";
  RC_LOG() << print(c) << " " << words << "\n";
  const Arithmetic arithmetic = parse_arithmetic(words);
  const Outputs host = predict(in, arithmetic), groups = predict_by_groups(in, arithmetic, 1);
  RC_ASSERT(host.o == groups.o);
  RC_ASSERT(host.lse == groups.lse);
}
RC_GTEST_PROP(RowGroups, PredictBf16, ()) { expect_same_bits(DType::bf16); }
RC_GTEST_PROP(RowGroups, PredictFp16, ()) { expect_same_bits(DType::fp16); }
RC_GTEST_PROP(RowGroups, PredictE4m3, ()) { expect_same_bits(DType::e4m3); }
RC_GTEST_PROP(RowGroups, PredictE5m2, ()) { expect_same_bits(DType::e5m2); }

TEST(RowGroups, CoverTheRowsOfEachTileOnce) {
  for (const int64_t tile_m : {1, 15, 16, 17, 64, 100})
    for (const int64_t seq_q : {0, 1, 16, 33, 129}) {
      PredictionShape shape;
      shape.tile_m = tile_m;
      std::vector<int> seen(size_t(seq_q), 0);
      for (int64_t n = 0; n < groups_of_head(shape, seq_q); ++n) {
        const Span rows = rows_of_group(shape, seq_q, n);
        for (int64_t i = rows.begin; i < rows.end; ++i) {
          ++seen[size_t(i)];
          EXPECT_EQ(i / tile_m, rows.begin / tile_m);
        }
      }
      EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), seq_q) << tile_m << " " << seq_q;
    }
}

TEST(RowGroups, AreNoMoreForATileLongerThanTheSequence) {
  const Problem p = parse_problem("bf16 b2 h2 seqq=[40,7] seqk=[50,60] d16");
  const auto groups = [&p](int64_t tile_m) {
    return groups_of_head(prediction_shape(p, parse_arithmetic(test::hopper_arithmetic(p, tile_m, 32))), 40);
  };
  EXPECT_EQ(groups(1 << 30), groups(40));
  EXPECT_EQ(groups(40), 3);
  EXPECT_EQ(groups(16), 3);
  EXPECT_EQ(groups(8), 5);
}

// ---- Who predicts

std::string lacks_nothing(const Problem&, const Arithmetic&) { return ""; }
std::string lacks_device(const Problem&, const Arithmetic&) { return "no GPU"; }
Inputs right_inputs(const Case& c) { return make_inputs(c); }
Inputs wrong_inputs(const Case& c) {
  Inputs in = make_inputs(c);
  in.k.set_bits(77, in.k.bits(77) ^ 0x3f80);  // of 0 it makes 1
  return in;
}
Outputs right_outputs(const Inputs& in, const Arithmetic& a) { return predict(in, a); }
Outputs wrong_outputs(const Inputs& in, const Arithmetic& a) {
  Outputs outputs = predict(in, a);
  outputs.lse.set_bits(5, outputs.lse.bits(5) ^ 1);
  return outputs;
}
Outputs out_of_memory(const Inputs&, const Arithmetic&) { throw UnavailableError("the GPU's memory is too small"); }

/// A case just large enough, which is predicted twice or is not.
Case large_case(bool twice) {
  for (uint64_t seed = 0;; ++seed) {
    const Case c = parse_case("bf16 h2 q800 k800 d128 data=integers seed=" + std::to_string(seed));
    if (is_predicted_twice(c) == twice) return c;
  }
}

struct LargeCase : testing::TestWithParam<bool> {
  const Case c = large_case(GetParam());
  Subject subject;
  RunResult result;  ///< the right one
  LargeCase() {
    subject.arithmetic = test::hopper_arithmetic(c.problem, 64, 64);
    result.outputs = predict(make_inputs(c), parse_arithmetic(subject.arithmetic));
  }
  Verdict verdict(const GpuOracle& gpu) const { return judge_bits(c, subject, {&result, 1}, gpu); }
};
INSTANTIATE_TEST_SUITE_P(Predicted, LargeCase, testing::Values(false, true),
                         [](const auto& info) { return info.param ? "Twice" : "Once"; });

TEST_P(LargeCase, PassesWithARightGpuAndSaysWhoPredicted) {
  EXPECT_GE(products_of(c.problem), least_products_for_gpu);
  const Verdict by_gpu = verdict({lacks_nothing, right_inputs, right_outputs});
  EXPECT_EQ(by_gpu.status, Status::pass) << by_gpu.why;
  EXPECT_NE(by_gpu.assumed.find(GetParam() ? "by GPU and host" : "on the GPU"), std::string::npos) << by_gpu.assumed;
  const Verdict by_host = verdict({lacks_device, wrong_inputs, wrong_outputs});
  EXPECT_EQ(by_host.status, Status::pass) << by_host.why;
  EXPECT_EQ(by_host.assumed.find("GPU and host"), std::string::npos);
  EXPECT_EQ(verdict({lacks_nothing, right_inputs, out_of_memory}).status, Status::pass);
}

TEST_P(LargeCase, AGpuThatErrsIsNamedWhereTheHostPredictsToo) {
  for (const GpuOracle& gpu :
       {GpuOracle{lacks_nothing, wrong_inputs, right_outputs}, GpuOracle{lacks_nothing, right_inputs, wrong_outputs}}) {
    const Verdict verdict = this->verdict(gpu);
    EXPECT_EQ(verdict.status, Status::fail);
    EXPECT_EQ(verdict.kind, GetParam() ? "predictors" : "bits") << verdict.why;
    if (!GetParam()) continue;
    EXPECT_NE(verdict.why.find("an error of Flashproof"), std::string::npos) << verdict.why;
    EXPECT_NE(verdict.why.find(gpu.inputs == wrong_inputs ? "element 77 of k" : "L["), std::string::npos)
        << verdict.why;
  }
}

TEST(LargeCases, AreOneInAHundredPredictedTwiceAndSmallOnesNeverByTheGpu) {
  int twice = 0;
  for (int seed = 0; seed < 10000; ++seed)
    twice += is_predicted_twice(parse_case("bf16 q8 k8 d8 data=normal seed=" + std::to_string(seed)));
  EXPECT_NEAR(twice, 100, 50);  // five standard deviations
  const Case small = parse_case("bf16 q64 k64 d64 data=normal");
  const Arithmetic arithmetic = parse_arithmetic(test::hopper_arithmetic(small.problem, 64, 64));
  EXPECT_FALSE(predict_case(small, arithmetic, {lacks_nothing, wrong_inputs, out_of_memory}).on_gpu);
}

}  // namespace
}  // namespace flashproof
