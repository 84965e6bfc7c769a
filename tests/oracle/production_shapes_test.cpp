// Every TileConfig that is compiled for GPUs (kernels/flash2_shapes.h), which sim:flash2 has not, on the simulated
// multiprocessor: its bits are the predicted ones.
#include <gtest/gtest.h>

#include <bit>
#include <utility>

#include "kernels/flash2_shapes.h"
#include "oracle/bits.h"
#include "reference/case.h"
#include "tests/kernels/run_in_shape.h"
#include "tests/kernels/small_call.h"

namespace flashproof::test {
namespace {

bool same_bits(const std::vector<double>& got, const Tensor& predicted) {
  if (got.size() != size_t(predicted.size())) return false;
  for (int64_t n = 0; n < predicted.size(); ++n)
    if (std::bit_cast<uint64_t>(got[size_t(n)]) != std::bit_cast<uint64_t>(predicted.at(n))) return false;
  return true;
}

/// Two tiles of rows, the second nearly empty, and three of keys; V is padded.
template <TileConfig config>
void expect_predicted_bits() {
  const std::string text = (is_fp8(config.dtype) ? "e4m3 q" : "bf16 q") + std::to_string(config.tile_m + 7) + " k" +
                           std::to_string(2 * config.tile_n + 50) + " d" + std::to_string(config.head_dim) + "/" +
                           std::to_string(config.value_dim - 16) + " causal" +
                           (config.features == Features::general ? " softcap=5 dropout=0.2@3" : "");
  SCOPED_TRACE(flash2::tile_name(config) + ": " + text);
  const Inputs in = make_inputs(parse_case(text));
  const SmallCall small(in);
  run_in_shape<config>(small.call);
  const std::vector<double> o = small.gather_queries(small.call.o, in.problem.value_dim);
  Arithmetic arithmetic = parse_arithmetic(flash2::arithmetic_text(small.problem, config, "sm_90"));
  const Outputs predicted = predict(in, arithmetic);
  EXPECT_TRUE(same_bits(o, predicted.o));
  EXPECT_TRUE(same_bits(small.gather_lse(), predicted.lse));
  arithmetic.tile_n /= 2;
  EXPECT_FALSE(same_bits(o, predict(in, arithmetic).o)) << "no other tile of keys gives them";
}

template <DType dtype, int... n>
void expect_predicted_bits_of_all(std::integer_sequence<int, n...>) {
  (expect_predicted_bits<flash2::device_config<dtype, n>>(), ...);
}

TEST(ProductionShapes, HaveThePredictedBitsIn16Bits) {
  expect_predicted_bits_of_all<DType::bf16>(std::make_integer_sequence<int, std::size(flash2::shapes_of_16_bits)>());
}
TEST(ProductionShapes, HaveThePredictedBitsIn8Bits) {
  expect_predicted_bits_of_all<DType::e4m3>(std::make_integer_sequence<int, std::size(flash2::shapes_of_8_bits)>());
}

}  // namespace
}  // namespace flashproof::test
