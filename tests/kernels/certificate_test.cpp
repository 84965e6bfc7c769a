// Which certificate speaks of a GPU, and what one lacks; what the compiler at run time makes for it.
#include <cstdlib>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "kernels/embedded_sources.h"
#include "kernels/hardware/certify.h"
#include "kernels/hardware/certify_data.h"
#include "kernels/hardware/certify_mma.cuh"
#include "kernels/simulator/simulate.h"
#include "tests/kernels/made_up_certificate.h"

namespace flashproof {
namespace {

using test::check_in;
using test::made_up_certificate;

const GpuCode code = {"Made-up GPU", "9.0", "ptxas 0.1"};
const std::vector<std::string> bf16_models = {ex2_model, "mma.sync bf16", "wgmma (A in registers) bf16",
                                              "wgmma (A shared) bf16"};
const std::vector<std::string> fp8_models = {"mma.sync e4m3 e5m2"};

TEST(Certificate, SpeaksOfTheSameGpuAndItsPartsAlone) {
  const std::vector<Certificate> all = {made_up_certificate()};
  std::string reason;
  EXPECT_EQ(certificate_of(all, code, reason), &all[0]);
  EXPECT_EQ(reason, "");
  EXPECT_EQ(certificate_of(all, {"Made-up GPU MIG 1g.10gb", "9.0", ""}, reason), &all[0]);
  EXPECT_EQ(certificate_of(all, {"Made-up GPU", "8.0", ""}, reason), nullptr);
  EXPECT_NE(reason.find("no certificate of Made-up GPU, compute capability 8.0"), std::string::npos) << reason;
  EXPECT_EQ(certificate_of(all, {"Another made-up GPU", "9.0", ""}, reason), nullptr);
  EXPECT_NE(reason.find("no certificate of Another made-up GPU"), std::string::npos) << reason;
  EXPECT_NE(reason.find("flashproof certify"), std::string::npos) << reason;
  EXPECT_EQ(certificate_of({}, code, reason), nullptr);
}

TEST(Certificate, OfOtherModelsIsNone) {
  std::vector<Certificate> all = {made_up_certificate()};
  all[0].models = std::string(64, '0');
  std::string reason;
  EXPECT_EQ(certificate_of(all, code, reason), nullptr);
  EXPECT_NE(reason.find("is of other models than this program's"), std::string::npos) << reason;
  all.push_back(made_up_certificate());
  EXPECT_EQ(certificate_of(all, code, reason), &all[1]);
}

TEST(Certificate, OfTheCodesAssemblerComesFirst) {
  std::vector<Certificate> all = {made_up_certificate(), made_up_certificate()};
  all[0].assembler = "ptxas 0.0", all[0].run_time_assembler = "";
  std::string reason;
  EXPECT_EQ(certificate_of(all, code, reason), &all[1]);
  EXPECT_EQ(certificate_of(all, {"Made-up GPU", "9.0", "NVRTC 0.2"}, reason), &all[1]);
  EXPECT_EQ(certificate_of(all, {"Made-up GPU", "9.0", "ptxas 0.0"}, reason), &all[0]);
  EXPECT_EQ(certificate_of(all, {"Made-up GPU", "9.0", ""}, reason), &all[0]) << "unknown: the first";
}

TEST(Certificate, HasAGapWhereAModelDiffersOrWasNotCompared) {
  Certificate c = made_up_certificate();
  EXPECT_EQ(gap_in(c, bf16_models, code.assembler), "");
  check_in(c, "mma.sync fp16").mismatches = 1;
  EXPECT_EQ(gap_in(c, bf16_models, code.assembler), "") << "not a model of these";
  check_in(c, "wgmma (A shared) bf16").host_mismatches = 1;
  EXPECT_NE(gap_in(c, bf16_models, code.assembler).find("wgmma (A shared) bf16 computes otherwise"), std::string::npos);
  c = made_up_certificate();
  check_in(c, ex2_model).mismatches = 1;
  EXPECT_NE(gap_in(c, bf16_models, code.assembler).find("ex2.approx.ftz.f32 computes otherwise"), std::string::npos);
  c = made_up_certificate();
  check_in(c, ex2_model).mismatches = ~uint64_t{0}, check_in(c, ex2_model).host_mismatches = 1;
  EXPECT_NE(gap_in(c, bf16_models, code.assembler).find("ex2.approx.ftz.f32 computes otherwise"), std::string::npos)
      << "the two make 2^64";
  c = made_up_certificate();
  check_in(c, "mma.sync bf16").skipped = "for a test";
  EXPECT_NE(gap_in(c, bf16_models, code.assembler).find("lacks mma.sync bf16: for a test"), std::string::npos);
  c.checks.clear();
  EXPECT_NE(gap_in(c, bf16_models, code.assembler).find("does not cover ex2"), std::string::npos);
  c = made_up_certificate();
  check_in(c, ex2_model).inputs = check_in(c, ex2_model).sample = 0;
  EXPECT_NE(gap_in(c, bf16_models, code.assembler).find("does not cover ex2"), std::string::npos);
}

/// Of fp8 mma.sync the assembler is asked; of instructions that the chip has, it is not.
TEST(Certificate, AsksWhoMadeCodeOfFp8Alone) {
  Certificate c = made_up_certificate();
  EXPECT_EQ(gap_in(c, bf16_models, "ptxas 9.9"), "");
  EXPECT_NE(gap_in(c, fp8_models, "ptxas 9.9").find("was not tried with ptxas 9.9"), std::string::npos);
  for (const char* assembler : {"ptxas 0.1", "NVRTC 0.2", ""}) EXPECT_EQ(gap_in(c, fp8_models, assembler), "");
  for (ModelCheck& check : c.checks)
    if (check.assembler == c.run_time_assembler) check.mismatches = 3;
  EXPECT_EQ(gap_in(c, fp8_models, "ptxas 0.1"), "");
  EXPECT_NE(gap_in(c, fp8_models, "NVRTC 0.2").find("computes otherwise"), std::string::npos);
  EXPECT_NE(gap_in(c, fp8_models, "").find("computes otherwise"), std::string::npos) << "unknown: either may be it";
}

TEST(Certificate, IsOfModelsThatThisProgramHolds) {
  EXPECT_EQ(models_digest().size(), 64u);
  std::set<std::string> models;
  for (const EmbeddedSource& source : model_sources()) models.insert(source.path);
  const std::set<std::string> expected = {"kernels/hardware/convert.h",     "kernels/hardware/ex2.h",
                                          "kernels/hardware/natural_log.h", "kernels/hardware/tensor_core.cpp",
                                          "kernels/hardware/tensor_core.h", "reference/formats.h",
                                          "reference/wide_vectors.h"};
  EXPECT_EQ(models, expected) << "what the digest is of";
}

TEST(CertificateOfRunTimeCode, CompilesEveryFp8InstructionForHopper) {
  std::string reason;
  if (run_time_compiler(compiler_places(), reason).empty()) GTEST_SKIP() << reason;
  const CompilerPlaces uncached = {compiler_places().library, ""};
  for (const DType a : {DType::e4m3, DType::e5m2})
    for (const DType b : {DType::e4m3, DType::e5m2}) {
      const CompiledKernel kernel = compile_kernel(mma_sync_text(a, b, "sm_90a"), uncached);
      const auto resources = resources_of(kernel);
      ASSERT_TRUE(resources) << kernel.log;
      EXPECT_EQ(resources->spill_store_bytes, 0);
      EXPECT_GT(resources->registers, 16) << "operands of an instruction are 10 registers";
    }
}

/// Operands lie where the instruction takes them: the same text, on the simulated multiprocessor.
template <class A, class B>
void expect_carried_out(OperandFamily family) {
  using Instruction = certify_device::MmaSync<A, B>;
  constexpr int rows = Instruction::rows, products = Instruction::products, columns = certify_device::columns;
  constexpr uint64 count = 5;
  std::vector<uint32> a(count * rows * products), b(count * columns * products);
  std::vector<float> c(count * rows * columns), d(c.size());
  for (size_t i = 0; i < a.size(); ++i)
    a[i] = draw_operand(A::dtype, family,
                        {i / (rows * products), Operand::a, int(i / products % rows), int(i % products)}, products);
  for (size_t i = 0; i < b.size(); ++i)
    b[i] =
        draw_operand(B::dtype, family,
                     {i / (columns * products), Operand::b, int(i / products % columns), int(i % products)}, products);
  for (size_t i = 0; i < c.size(); ++i)
    c[i] = draw_accumulator(family, {i / (rows * columns), Operand::c, int(i / columns % rows), int(i % columns)});
  const certify_device::CarryOut work = {{rows, products, a.data(), b.data(), c.data(), d.data()}, count};
  SimulatedLaunch launch;
  launch.grid = {2, 1, 1}, launch.threads = Instruction::threads;
  simulate(launch, [&] { certify_device::carry_out<Instruction>(work); });
  const MatrixUnit unit = matrix_unit(Architecture::sm_90, MatrixInstruction::mma_sync, A::dtype, B::dtype);
  for (size_t i = 0; i < d.size(); ++i) {
    const size_t n = i / (rows * columns), row = i / columns % rows, column = i % columns;
    const float expected =
        fused_step(unit, &a[(n * rows + row) * products], &b[(n * columns + column) * products], c[i]);
    ASSERT_EQ(__builtin_bit_cast(uint32, d[i]), __builtin_bit_cast(uint32, expected)) << name_of(family) << " " << i;
  }
}

TEST(CertificateOfMmaSync, FillsRegistersAsTheInstructionTakesThem) {
  for (const OperandFamily family : {OperandFamily::normal, OperandFamily::cancelling}) {
    expect_carried_out<Bf16, Bf16>(family);
    expect_carried_out<E4m3, E5m2>(family);
  }
}

TEST(RunTimeTarget, IsRefusedWhereTheCompilerDoesNotKnowIt) {
  std::string reason;
  if (run_time_compiler(compiler_places(), reason).empty()) GTEST_SKIP() << reason;
  EXPECT_EQ(why_no_target("sm_90a"), "");
  EXPECT_EQ(why_no_target("sm_80"), "");
  EXPECT_EQ(why_no_target("sm_95a"), run_time_assembler() + " makes no code for sm_95a");
  EXPECT_TRUE(run_time_assembler().starts_with("NVRTC ")) << run_time_assembler();
  const CompilerPlaces nowhere = {"/nonexistent/libnvrtc.so", ""};
  EXPECT_NE(why_no_target("sm_90a", nowhere).find("/nonexistent/libnvrtc.so"), std::string::npos);
  EXPECT_EQ(run_time_assembler(nowhere), "");
}

}  // namespace
}  // namespace flashproof
