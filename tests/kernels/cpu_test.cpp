// The CPU kernels against exact attention with a loose factor (the oracle judges them closely), what they must not
// touch, what they must pass on, and what they must refuse.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "kernels/builtin.h"
#include "reference/arithmetic.h"
#include "tests/kernels/compare.h"

namespace flashproof::test {
namespace {

std::vector<BuiltinKernel> cpu_kernels() {
  std::vector<BuiltinKernel> kernels;
  const BuiltinKernels table = builtin_kernel_table();
  for (int n = 0; n < table.count; ++n)
    if (std::string(table.first[n].name).starts_with("cpu:")) kernels.push_back(table.first[n]);
  return kernels;
}

std::string draw_config(const flashproof_kernel& kernel) {
  const std::string tunables = kernel.tunables;
  std::string config;
  if (tunables.find("tile_m") != std::string::npos)
    config += "tile_m=" + std::to_string(draw(1, 9)) + ",tile_n=" + std::to_string(draw(1, 9));
  if (tunables.find("splits") != std::string::npos) config += ",splits=" + std::to_string(draw(1, 4));
  if (tunables.find("levels") != std::string::npos) config += ",levels=" + std::to_string(draw(1, 2));
  return config;
}

std::string run_and_compare(const flashproof_kernel& kernel, const Inputs& in, const std::string& config,
                            double tolerance) {
  return compare_with_exact(in, tolerance, [&](SmallCall& small, Direction direction) -> std::string {
    char message[256] = "";
    const auto call = direction == Direction::forward ? kernel.forward : kernel.backward;
    return call(&small.call, config.c_str(), nullptr, message, sizeof message) == FLASHPROOF_OK ? "" : message;
  });
}

/// Everything outside the logical tensors is NaN here, so that reading any of it shows.
RC_GTEST_PROP(cpu_kernels, agree_with_exact_attention_in_fp32, ()) {
  const Inputs in = draw_inputs(draw_laid_out_problem(DType::fp32));
  RC_LOG() << print(in.problem);
  for (const BuiltinKernel& kernel : cpu_kernels()) {
    const std::string config = draw_config(*kernel.kernel());
    RC_LOG() << kernel.name << " " << config;
    RC_ASSERT(run_and_compare(*kernel.kernel(), in, config, 1e-4) == "");
  }
}

RC_GTEST_PROP(cpu_kernels, agree_with_exact_attention_in_16_bits, ()) {
  const DType dtype = coin() ? DType::bf16 : DType::fp16;
  const Inputs in = draw_inputs(draw_laid_out_problem(dtype));
  RC_LOG() << print(in.problem);
  for (const BuiltinKernel& kernel : cpu_kernels())
    RC_ASSERT(run_and_compare(*kernel.kernel(), in, draw_config(*kernel.kernel()),
                              dtype == DType::bf16 ? 0.06 : 0.008) == "");
}

/// P in e4m3 errs by 1/17 of itself at most; scores come from exact products, so nothing else is coarse. The gradients,
/// whose D carries that error of O, are left to the check `bound` (tests/fuzz/fp8_test.cpp).
RC_GTEST_PROP(cpu_kernels, agree_with_exact_attention_in_8_bits, ()) {
  Problem p = draw_laid_out_problem(coin() ? DType::e4m3 : DType::e5m2);
  p.direction = Direction::forward;
  const Inputs in = draw_inputs(p);
  RC_LOG() << print(in.problem);
  for (const BuiltinKernel& kernel : cpu_kernels())
    RC_ASSERT(run_and_compare(*kernel.kernel(), in, draw_config(*kernel.kernel()), 0.06) == "");
}

Case small_case() {
  Case c;
  c.problem.dtype = DType::bf16;
  c.problem.heads = c.problem.kv_heads = 2;
  c.problem.q.slot = c.problem.k.slot = 6;
  c.problem.head_dim = c.problem.value_dim = 4;
  return c;
}

TEST(cpu_kernels, compare_sees_a_wrong_input) {
  const Inputs in = make_inputs(small_case());
  Inputs other = in;
  other.v.set_bits(0, encode(DType::bf16, in.v.at(0) + 4));
  for (const BuiltinKernel& kernel : cpu_kernels()) {
    SmallCall small(other);
    ASSERT_EQ(kernel.kernel()->forward(&small.call, "", nullptr, nullptr, 0), FLASHPROOF_OK);
    EXPECT_NE(difference("O", small.gather_queries(small.call.o, 4), exact_attention<double>(in).o, 0.06), "");
  }
}

TEST(cpu_kernels, nan_reaches_what_it_must_and_nothing_else) {
  Case c = small_case();
  c.problem.dropout = Dropout{0.5f, 3};
  for (const BuiltinKernel& kernel : cpu_kernels()) {
    Inputs in = make_inputs(c);
    in.v.set_bits((2 * 2 + 1) * 4 + 3, nan_bits(DType::bf16));  // key 2, head 1, channel 3
    in.q.set_bits((4 * 2 + 0) * 4 + 0, nan_bits(DType::bf16));  // row 4, head 0
    SmallCall small(in);
    ASSERT_EQ(kernel.kernel()->forward(&small.call, "", nullptr, nullptr, 0), FLASHPROOF_OK);
    const std::vector<double> o = small.gather_queries(small.call.o, 4), l = small.gather_lse();
    for (int64_t i = 0; i < 6; ++i)
      for (int64_t h = 0; h < 2; ++h) {
        EXPECT_EQ(std::isnan(l[size_t(i * 2 + h)]), i == 4 && h == 0);
        for (int64_t ch = 0; ch < 4; ++ch)
          EXPECT_EQ(std::isnan(o[size_t((i * 2 + h) * 4 + ch)]), (h == 1 && ch == 3) || (i == 4 && h == 0))
              << kernel.name << " row " << i << " head " << h << " channel " << ch;
      }
  }
}

TEST(cpu_kernels, rows_without_keys_have_zero_gradients_whatever_they_hold) {
  Case c = small_case();
  c.problem.q.slot = 8;  // bottom-right causal: rows 0 and 1 see nothing
  c.problem.mask.causal = true;
  c.problem.direction = Direction::backward;
  const Inputs clean = make_inputs(c);
  Inputs in = clean;
  for (int64_t n = 0; n < 2 * 2 * 4; ++n)
    in.q.set_bits(n, nan_bits(DType::bf16)), in.d_o.set_bits(n, nan_bits(DType::bf16));
  for (const BuiltinKernel& kernel : cpu_kernels()) {
    std::vector<double> gradients[2];
    for (const Inputs* each : {&clean, static_cast<const Inputs*>(&in)}) {
      SmallCall small(*each);
      ASSERT_EQ(kernel.kernel()->forward(&small.call, "", nullptr, nullptr, 0), FLASHPROOF_OK);
      small.add_gradients();
      ASSERT_EQ(kernel.kernel()->backward(&small.call, "", nullptr, nullptr, 0), FLASHPROOF_OK);
      gradients[each == &in] = small.gather_key_gradients(small.call.dk, 4);
      const std::vector<double> dq = small.gather_queries(small.call.dq, 4);
      for (size_t n = 0; n < 16; ++n) EXPECT_EQ(dq[n], 0);
    }
    EXPECT_EQ(gradients[0], gradients[1]) << kernel.name;
  }
}

TEST(cpu_kernels, what_is_past_the_used_length_stays_as_it_was) {
  Case c = small_case();
  c.problem.q.used = {4};
  c.problem.layout.row_gap = 2;
  const Inputs in = make_inputs(c);
  for (const BuiltinKernel& kernel : cpu_kernels()) {
    SmallCall small(in);
    ASSERT_EQ(kernel.kernel()->forward(&small.call, "", nullptr, nullptr, 0), FLASHPROOF_OK);
    // 2 of 6 rows, and 2 of 6 elements of each of the others, in two heads of two bytes an element.
    EXPECT_GE(small.untouched_bytes(small.call.o), (2 * 6 + 4 * 2) * 2 * 2) << kernel.name;
    EXPECT_LT(small.untouched_bytes(small.call.o), (2 * 6 + 4 * 2) * 2 * 2 + 16) << kernel.name;
  }
}

TEST(cpu_kernels, split_decoding_sees_every_key_once) {
  Case c = small_case();
  c.problem.q.slot = 1;
  c.problem.k.slot = 11;
  c.recipe.family = Family::equal_scores;
  const Inputs in = make_inputs(c);
  for (int splits = 1; splits <= 13; ++splits)
    EXPECT_EQ(run_and_compare(*cpu_decode_kernel(), in, "tile_n=2,splits=" + std::to_string(splits), 0.06), "")
        << splits;
}

TEST(cpu_kernels, refuse_with_a_reason) {
  const Inputs in = make_inputs(small_case());
  struct Wrong {
    void (*spoil)(flashproof_problem&);
    const char* reason;
  };
  const Wrong wrongs[] = {
      {[](flashproof_problem& p) { p.dtype = FLASHPROOF_E4M3, p.out_dtype = FLASHPROOF_E4M3; }, "bf16 for fp8"},
      {[](flashproof_problem& p) { p.dtype = 17; }, "dtype"},
      {[](flashproof_problem& p) { p.kv_heads = 3; }, "kv_heads"},
      {[](flashproof_problem& p) { p.head_dim = 0; }, "head_dim"},
      {[](flashproof_problem& p) { p.window_left = -2; }, "window"},
      {[](flashproof_problem& p) { p.softcap = -1; }, "softcap"},
      {[](flashproof_problem& p) { p.dropout_rate = 1; }, "dropout"},
      {[](flashproof_problem& p) { p.scale = NAN; }, "scale"},
      {[](flashproof_problem& p) { p.descale = 1; }, "descales"},
      {[](flashproof_problem& p) { p.struct_size = 3; }, "struct_size"},
      {[](flashproof_problem& p) { p.max_seq_q = -1; }, "lengths"},
  };
  for (const BuiltinKernel& kernel : cpu_kernels()) {
    const flashproof_kernel& table = *kernel.kernel();
    for (const Wrong& wrong : wrongs) {
      SmallCall small(in);
      char message[256] = "";
      EXPECT_EQ(table.supports(&small.problem, "", message, sizeof message), FLASHPROOF_OK);
      wrong.spoil(small.problem);
      EXPECT_EQ(table.supports(&small.problem, "", message, sizeof message), FLASHPROOF_REJECTED) << wrong.reason;
      EXPECT_NE(std::string(message).find(wrong.reason), std::string::npos) << message;
      EXPECT_EQ(table.forward(&small.call, "", nullptr, message, sizeof message), FLASHPROOF_REJECTED) << wrong.reason;
    }
    SmallCall small(in);
    char message[256] = "";
    for (const char* config : {"tile_m=0", "tile_k=8", "splits=x", "tile_n=1000"})
      EXPECT_EQ(table.supports(&small.problem, config, message, sizeof message), FLASHPROOF_REJECTED) << config;
    small.call.k.data = nullptr;
    EXPECT_EQ(table.forward(&small.call, "", nullptr, message, sizeof message), FLASHPROOF_REJECTED);
    EXPECT_NE(std::string(message).find("tensor k"), std::string::npos) << message;
  }
}

TEST(kernel_header, refuses_what_its_table_leaves_out) {
  flashproof_kernel kernel = {};
  kernel.dtypes = 1u << FLASHPROOF_BF16;
  kernel.max_head_dim = 128;
  kernel.head_dim_multiple = 64;
  const auto reason = [&](const char* problem) {
    Case c;
    c.problem = parse_problem(problem);
    const Inputs in = make_inputs(c);
    SmallCall small(in);
    char message[256] = "";
    const flashproof_status status = flashproof_check_problem(&kernel, &small.problem, message, sizeof message);
    EXPECT_EQ(status == FLASHPROOF_OK, message[0] == 0) << message;
    return std::string(message);
  };
  EXPECT_EQ(reason("bf16 d64/128"), "");
  EXPECT_NE(reason("fp16 d64").find("dtype is not supported"), std::string::npos);
  EXPECT_NE(reason("bf16 d64/32").find("multiple"), std::string::npos);
  EXPECT_NE(reason("bf16 d192").find("larger"), std::string::npos);
}

Case small_fp8_case(DType dtype) {
  Case c = small_case();
  c.problem.dtype = dtype;
  c.problem.heads = 4;
  c.problem.batch = 2;
  c.problem.descale = true;
  return c;
}

TEST(cpu_kernels, descales_are_of_the_entry_and_kv_head) {
  for (const DType dtype : {DType::e4m3, DType::e5m2}) {
    Inputs in = make_inputs(small_fp8_case(dtype));
    in.q_descale = {1, 2, 3, 0.5f}, in.k_descale = {0.25f, 1, 0.5f, 1}, in.v_descale = {1, -3, 8, 0};
    for (const BuiltinKernel& kernel : cpu_kernels()) {
      EXPECT_EQ(run_and_compare(*kernel.kernel(), in, "", 0.06), "") << kernel.name;
      Inputs other = in;
      std::swap(other.v_descale[1], other.v_descale[2]);
      SmallCall small(other);
      ASSERT_EQ(kernel.kernel()->forward(&small.call, "", nullptr, nullptr, 0), FLASHPROOF_OK);
      EXPECT_NE(difference("O", small.gather_queries(small.call.o, 4), exact_attention<double>(in).o, 0.06), "");
      small.call.k_descale.data = nullptr;
      EXPECT_EQ(kernel.kernel()->forward(&small.call, "", nullptr, nullptr, 0), FLASHPROOF_REJECTED);
    }
  }
}

/// Weights of 2^-15 vanish in e4m3, whose least number is 2^-9, unless they are scaled: one key of score 15 ln 2 and
/// 2^15 zeros.
TEST(cpu_kernels, small_weights_survive_fp8) {
  Case c = parse_case("e4m3 q1 k32769 d1 scale=0.6931472 data=normal");
  Inputs in = make_inputs(c);
  in.q.set_bits(0, encode(DType::e4m3, 15));
  for (int64_t j = 0; j < 32769; ++j) {
    in.k.set_bits(j, encode(DType::e4m3, j == 0 ? 1 : 0));
    in.v.set_bits(j, encode(DType::e4m3, j == 0 ? 0 : 1));
  }
  for (const BuiltinKernel& kernel : cpu_kernels()) {
    SmallCall small(in);
    ASSERT_EQ(kernel.kernel()->forward(&small.call, "", nullptr, nullptr, 0), FLASHPROOF_OK);
    EXPECT_NEAR(small.gather_queries(small.call.o, 1)[0], 0.5, 0.002) << kernel.name;
  }
}

TEST(cpu_kernels, declared_arithmetic_is_fully_known_and_follows_the_config) {
  const Inputs in = make_inputs(small_case());
  SmallCall small(in);
  for (const BuiltinKernel& kernel : cpu_kernels()) {
    const Arithmetic arithmetic = parse_arithmetic(kernel.kernel()->arithmetic(&small.problem, ""));
    EXPECT_EQ(arithmetic.p_format, int(DType::bf16));
    EXPECT_TRUE(arithmetic.tile_m && arithmetic.tile_n && arithmetic.row_sum_lanes && arithmetic.splits);
    for (const char* word : {"order=", "scores=", "values=", "levels=", "exp=", "arg=", "tanh=", "s=", "prescaled=",
                             "normalized=", "dropout=", "division=", "ds=", "d="})
      EXPECT_NE((" " + print(arithmetic)).find(std::string(" ") + word), std::string::npos) << kernel.name << word;
  }
  for (const DType dtype : {DType::e4m3, DType::e5m2}) {
    const Inputs fp8 = make_inputs(small_fp8_case(dtype));
    SmallCall call(fp8);
    for (const BuiltinKernel& kernel : cpu_kernels()) {
      const Arithmetic arithmetic = parse_arithmetic(kernel.kernel()->arithmetic(&call.problem, ""));
      EXPECT_EQ(arithmetic.p_format, int(DType::e4m3));
      EXPECT_EQ(arithmetic.p_scale_log2, 8);
      EXPECT_EQ(arithmetic.ds_format, int(DType::bf16));
    }
  }
  const std::string text = cpu_decode_kernel()->arithmetic(&small.problem, "tile_m=3,tile_n=5,splits=7");
  const Arithmetic arithmetic = parse_arithmetic(text);
  EXPECT_EQ(arithmetic.tile_m, 3);
  EXPECT_EQ(arithmetic.tile_n, 5);
  EXPECT_EQ(arithmetic.splits, 7);
}

}  // namespace
}  // namespace flashproof::test
