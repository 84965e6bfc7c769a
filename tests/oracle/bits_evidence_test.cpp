// `bits` judges a GPU's kernel where a certificate covers what the prediction rests on, and nowhere else.
#include "oracle/bits_evidence.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "oracle/bits.h"
#include "tests/kernels/made_up_certificate.h"
#include "tests/oracle/judged.h"
#include "tests/oracle/simulated_kernel.h"

namespace flashproof {
namespace {

struct OnGpu {
  Case c;
  Certificate certificate = test::made_up_certificate();
  Subject subject;

  explicit OnGpu(const std::string& text, const std::string& assembler = "ptxas 0.1") : c(parse_case(text)) {
    subject.arithmetic = test::hopper_arithmetic(c.problem, 64, 64);
    subject.gpu = GpuStanding{{certificate.gpu, certificate.compute_capability, assembler}, &certificate, ""};
  }
  bool applies() const { return test::check("bits").applies(c, subject); }
  std::string missing() const { return test::check("bits").missing(c, subject); }
};

bool has(const std::vector<std::string>& models, const std::string& model) {
  return std::find(models.begin(), models.end(), model) != models.end();
}

std::vector<std::string> models_of(const std::string& text) {
  const Problem p = parse_case(text).problem;
  return models_behind(p, parse_arithmetic(test::hopper_arithmetic(p, 64, 64)));
}

TEST(BitsEvidence, NamesTheInstructionsOfTheArithmetic) {
  const std::vector<std::string> bf16 = models_of("bf16 q4 k8 d16"), e5m2 = models_of("e5m2 q4 k8 d16");
  for (const char* model : {"ex2.approx.ftz.f32", "natural_log", "fma.rn.f32", "cvt.rn.bf16x2.f32", "mma.sync bf16",
                            "wgmma (A shared) bf16"})
    EXPECT_TRUE(has(bf16, model)) << model;
  for (const char* model : {"mma.sync fp16", "cvt.rn.f16x2.f32", "cvt.rn.satfinite.e4m3x2.f32", "mma.sync e4m3 e4m3"})
    EXPECT_FALSE(has(bf16, model)) << model;
  for (const char* model :
       {"mma.sync e5m2 e5m2", "mma.sync e4m3 e5m2", "cvt.rn.satfinite.e4m3x2.f32", "cvt.rn.bf16x2.f32"})
    EXPECT_TRUE(has(e5m2, model)) << model;
  for (const char* model : {"mma.sync e4m3 e4m3", "wgmma (A shared) e5m2 e5m2", "mma.sync bf16"})
    EXPECT_FALSE(has(e5m2, model)) << model;
}

TEST(BitsEvidence, IsNeededOnAGpuAlone) {
  OnGpu kernel("bf16 q4 k8 d16");
  EXPECT_TRUE(kernel.applies());
  EXPECT_EQ(kernel.missing(), "");
  kernel.subject.gpu->certificate = nullptr, kernel.subject.gpu->without = "no certificate of Made-up GPU";
  EXPECT_FALSE(kernel.applies());
  EXPECT_EQ(kernel.missing(), "no certificate of Made-up GPU");
  kernel.subject.gpu.reset();
  EXPECT_TRUE(kernel.applies());
  EXPECT_EQ(kernel.missing(), "");
}

/// A certificate compares each chip with its own models: what holds for an sm_80 does not certify those of sm_90.
TEST(BitsEvidence, OfAnotherChipIsNone) {
  OnGpu kernel("bf16 q4 k8 d16");
  kernel.certificate.compute_capability = kernel.subject.gpu->code.compute_capability = "8.0";
  EXPECT_FALSE(kernel.applies());
  EXPECT_NE(kernel.missing().find("`chip=sm_90` is not that of Made-up GPU, compute capability 8.0"), std::string::npos)
      << kernel.missing();
}

TEST(BitsEvidence, IsMissingWhereAModelBehindTheProblemDiffers) {
  for (const auto& [text, model] :
       {std::pair("bf16 q4 k8 d16", "mma.sync bf16"), std::pair("e5m2 q4 k8 d16", "mma.sync e4m3 e5m2"),
        std::pair("e4m3 q4 k8 d16", "cvt.rn.satfinite.e4m3x2.f32")}) {
    OnGpu kernel(text);
    EXPECT_TRUE(kernel.applies()) << text;
    test::check_in(kernel.certificate, model).mismatches = 1;
    EXPECT_FALSE(kernel.applies()) << text;
    EXPECT_NE(kernel.missing().find(model), std::string::npos) << kernel.missing();
    OnGpu other("fp16 q4 k8 d16");
    test::check_in(other.certificate, model).mismatches = 1;
    EXPECT_TRUE(other.applies()) << model << " is not behind fp16";
  }
}

TEST(BitsEvidence, OfFp8IsForTheAssemblersTried) {
  EXPECT_TRUE(OnGpu("e4m3 q4 k8 d16", "NVRTC 0.2").applies());
  EXPECT_TRUE(OnGpu("e4m3 q4 k8 d16", "").applies());
  EXPECT_FALSE(OnGpu("e4m3 q4 k8 d16", "ptxas 9.9").applies());
  EXPECT_TRUE(OnGpu("bf16 q4 k8 d16", "ptxas 9.9").applies());
}

/// Nothing a user brings would let these be judged, so nothing is missing.
TEST(BitsEvidence, IsNotAskedForWhereNothingIsPredicted) {
  OnGpu kernel("bf16 q4 k8 d16");
  kernel.subject.gpu->certificate = nullptr, kernel.subject.gpu->without = "none";
  kernel.subject.arithmetic = "";
  EXPECT_FALSE(kernel.applies());
  EXPECT_EQ(kernel.missing(), "");
}

TEST(BitsEvidence, StandsInTheVerdict) {
  const auto assumed = [](const OnGpu& kernel) {
    const Check& bits = test::check("bits");
    RunResult result;
    result.outputs = predict(make_inputs(kernel.c), parse_arithmetic(kernel.subject.arithmetic));
    const Verdict v = bits.judge(kernel.c, kernel.subject, bits.plan(kernel.c, kernel.subject), std::vector{result});
    EXPECT_EQ(v.status, Status::pass) << v.why;
    return v.assumed;
  };
  OnGpu kernel("e4m3 q4 k8 d16 data=normal");
  EXPECT_NE(assumed(kernel).find("certificate of Made-up GPU"), std::string::npos) << assumed(kernel);
  EXPECT_EQ(assumed(kernel).find("is taken to be made"), std::string::npos);
  kernel.subject.gpu->code.assembler = "";
  EXPECT_NE(assumed(kernel).find("is taken to be made by one of ptxas 0.1, NVRTC 0.2"), std::string::npos)
      << assumed(kernel);
  kernel.subject.gpu.reset();
  EXPECT_EQ(assumed(kernel).find("certificate"), std::string::npos) << assumed(kernel);
}

}  // namespace
}  // namespace flashproof
