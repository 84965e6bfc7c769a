// oracle/gpu on the GPU: the data and the prediction are the host's, bit for bit. Builds with CUDA only; skipped where
// there is no GPU.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <chrono>
#include <cstdio>

#include "oracle/bits.h"
#include "oracle/gpu/prediction.h"
#include "oracle/gpu/tokens.h"
#include "tests/oracle/judged.h"
#include "tests/oracle/predictable_case.h"

namespace flashproof {
namespace {

class GpuPrediction : public testing::Test {
  void SetUp() override {
    if (!tokens_by_gpu()) GTEST_SKIP() << "no GPU";
  }
};

TEST_F(GpuPrediction, MakesTheHostsData) {
  for (int family = 0; family < family_count; ++family) {
    if (Family(family) == Family::file) continue;
    for (const char* words :
         {"bf16 b2 h4/2 q300 k600 d64/96", "fp16 b3 h2/1 seqq=[900,0,200] seqk=[400,1,1000] d128",
          "e4m3 h2 q600 k900 d128", "e5m2 h2 q600 k900 d128", "fp32 h2 q600 k900 d128 usedk=[700]"}) {
      const Case c = parse_case(std::string(words) + " seed=3 data=" + name_of(Family(family)));
      const Inputs gpu = make_inputs(c, tokens_by_gpu()), host = make_inputs(c);
      EXPECT_TRUE(gpu.q == host.q && gpu.k == host.k && gpu.v == host.v && gpu.d_o == host.d_o) << print(c);
    }
  }
}

/// As RowGroups in gpu_prediction_test.cpp, by the device.
TEST_F(GpuPrediction, IsTheHosts) {
  int64_t elements = 0;
  EXPECT_TRUE(rc::check([&] {
    const Case c = test::draw_predictable_case(DType(test::draw(1, 4)), 300, 130, 130);
    const Inputs in = make_inputs(c);
    const Arithmetic arithmetic =
        parse_arithmetic(test::hopper_arithmetic(c.problem, test::draw(1, 130), 32 * test::draw(1, 8)));
    RC_LOG() << print(c) << "\n";
    RC_ASSERT(gpu_lacks(c.problem, arithmetic) == "");
    const Outputs host = predict(in, arithmetic), gpu = predict_on_gpu(in, arithmetic);
    RC_ASSERT(host.o == gpu.o);
    RC_ASSERT(host.lse == gpu.lse);
    elements += host.o.size() + host.lse.size();
  }));
  std::printf("%ld elements\n", long(elements));
}

/// How long each takes is printed; the device is started before.
TEST_F(GpuPrediction, IsTheHostsOfALargeCase) {
  const Case c = parse_case("bf16 h4/2 q2048 k2048 d128 causal data=normal");
  const Inputs in = make_inputs(c);
  const Arithmetic arithmetic = parse_arithmetic(test::hopper_arithmetic(c.problem, 128, 64));
  const auto timed = [&](const char* who, auto predictor) {
    const auto start = std::chrono::steady_clock::now();
    const Outputs outputs = predictor();
    std::printf("%s: %.3f s\n", who, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    return outputs;
  };
  predict_on_gpu(make_inputs(parse_case("bf16 q1 k1 d16")), arithmetic);
  const Outputs gpu = timed("GPU", [&] { return predict_on_gpu(in, arithmetic); });
  const Outputs host = timed("host", [&] { return predict(in, arithmetic); });
  EXPECT_TRUE(host.o == gpu.o);
  EXPECT_TRUE(host.lse == gpu.lse);
}

}  // namespace
}  // namespace flashproof
