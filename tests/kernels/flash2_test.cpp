// FlashAttention 2 as a whole on the simulated multiprocessor: against exact attention with a loose factor (the oracle
// judges it closely, `bits` to the last one), that nothing but tile_n decides its bits, what it refuses, and how its
// launcher chooses.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "kernels/builtin.h"
#include "kernels/flash2_host.h"
#include "reference/arithmetic.h"
#include "tests/kernels/compare.h"
#include "tests/kernels/run_in_shape.h"

namespace flashproof::test {
namespace {

using flash2::Config;

const flashproof_kernel& kernel() { return *sim_flash2_kernel(); }

/// A legal problem of any feature, forward alone, with head dims that the kernel takes.
Problem draw_forward_problem(DType dtype) {
  Problem p = draw_laid_out_problem(dtype, 100);
  const int64_t step = is_fp8(p.dtype) ? 16 : 8;
  p.head_dim = step * draw(1, 128 / step);
  p.value_dim = coin() ? p.head_dim : step * draw(1, 128 / step);
  p.direction = Direction::forward;
  return p;
}

/// The status, with O and L as they are after the call, decoded.
struct Outcome {
  flashproof_status status;
  std::string message;
  std::vector<double> o, l;
};
Outcome run(const Inputs& in, const std::string& config) {
  SmallCall small(in);
  char message[4096] = "";
  const flashproof_status status = kernel().forward(&small.call, config.c_str(), nullptr, message, sizeof message);
  return {status, message, small.gather_queries(small.call.o, in.problem.value_dim), small.gather_lse()};
}

void agrees_with_exact_attention(DType dtype, double tolerance) {
  const Inputs in = draw_inputs(draw_forward_problem(dtype));
  constexpr const char* tiles[] = {"", "tile=32x32x2x2,", "tile=64x64x2x4,"};
  const std::string config = tiles[draw(0, 2)] + ("schedule=" + std::to_string(draw(0, 9999)));
  RC_LOG() << print(in.problem) << " " << config;
  RC_ASSERT(compare_with_exact(in, tolerance, [&](SmallCall& small, Direction) -> std::string {
              char message[4096] = "";
              return kernel().forward(&small.call, config.c_str(), nullptr, message, sizeof message) == FLASHPROOF_OK
                         ? ""
                         : message;
            }) == "");
}

RC_GTEST_PROP(Flash2, agreesWithExactAttentionInBf16, ()) { agrees_with_exact_attention(DType::bf16, 0.06); }
RC_GTEST_PROP(Flash2, agreesWithExactAttentionInFp16, ()) { agrees_with_exact_attention(DType::fp16, 0.008); }
RC_GTEST_PROP(Flash2, agreesWithExactAttentionInE4m3, ()) { agrees_with_exact_attention(DType::e4m3, 0.06); }
RC_GTEST_PROP(Flash2, agreesWithExactAttentionInE5m2, ()) { agrees_with_exact_attention(DType::e5m2, 0.06); }

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return std::ranges::equal(a, b, {}, std::bit_cast<uint64_t, double>, std::bit_cast<uint64_t, double>);
}

/// Tiles of rows, stages, warps, schedules and alignment change nothing; the tile of keys does.
RC_GTEST_PROP(Flash2, hasBitsThatDependOnTheTileOfKeysAlone, ()) {
  constexpr DType dtypes[] = {DType::bf16, DType::fp16, DType::e4m3, DType::e5m2};
  Problem p = draw_forward_problem(dtypes[draw(0, 3)]);
  p.layout = {};
  const Inputs in = draw_inputs(p);
  RC_LOG() << print(p);
  const Outcome first = run(in, "tile=16x32x2x1,schedule=0");
  RC_ASSERT(first.message == "");
  for (const char* config : {"tile=16x32x2x1,schedule=1", "tile=32x32x2x2", "tile=64x32x3x2"}) {
    const Outcome other = run(in, config);
    RC_ASSERT(same_bits(first.o, other.o) && same_bits(first.l, other.l));
  }
  p.layout.row_gap = 1;
  Inputs apart = in;
  apart.problem = p;
  const Outcome unaligned = run(apart, "tile=16x32x2x1");
  RC_ASSERT(unaligned.message == "");
  RC_ASSERT(same_bits(first.o, unaligned.o) && same_bits(first.l, unaligned.l));
}

Inputs inputs_of(const char* text) { return make_inputs(parse_case(text)); }

/// The last key tile of the last rows adds nothing but zeros to those before, whose O is below every fp32 number.
TEST(Flash2, ZerosHaveOneSignWhateverTheTileOfRows) {
  const Inputs in =
      inputs_of("bf16 q64 k64 d40 causal align=top-left scale=1e30 sink data=subnormal set=sink[0,0,0,0]:0x42a00000");
  const Outcome first = run(in, "tile=16x32x2x1");
  EXPECT_TRUE(same_bits(first.o, run(in, "tile=64x32x3x2").o));
}

TEST(Flash2, TileOfKeysShowsInTheBits) {
  const Inputs in = inputs_of("bf16 q64 k200 d64");
  EXPECT_FALSE(same_bits(run(in, "tile=64x32x3x2").o, run(in, "tile=64x64x2x4").o));
}

/// The exception: NaN in V at key 40, which row 10 does not see, but row 63 does.
TEST(Flash2, HiddenNaNInVReachesTheRowsWhoseTileSeesItsTile) {
  Inputs in = inputs_of("bf16 q64 k64 d32 causal");
  in.v.set_bits(40 * 32, nan_bits(DType::bf16));
  const auto o = [&](const char* config) { return run(in, config).o[10 * 32]; };
  EXPECT_TRUE(std::isfinite(o("tile=16x32x2x1")));
  EXPECT_TRUE(std::isnan(o("tile=64x32x3x2")));
}

template <TileConfig config>
void expect_exact_attention(const char* text) {
  const std::string found = compare_with_exact(inputs_of(text), 0.06, [](SmallCall& small, Direction) -> std::string {
    run_in_shape<config>(small.call);
    return "";
  });
  EXPECT_EQ(found, "") << text;
}

/// Shapes that no table has: a narrow tile of keys, many stages, three warps, Q and V of different widths.
TEST(Flash2, RunsInUnusualShapes) {
  expect_exact_attention<{DType::fp16, 16, 16, 5, 1, 32, 160, Features::plain}>("fp16 h2/1 q40 k150 d24/136 causal");
  expect_exact_attention<{DType::bf16, 96, 48, 3, 3, 192, 96, Features::plain}>("bf16 b2 q100 k130 d168/72");
  expect_exact_attention<{DType::bf16, 32, 80, 2, 2, 64, 32, Features::general}>("bf16 q50 k170 d40/8 window=30,9");
  expect_exact_attention<{DType::e4m3, 64, 96, 2, 2, 160, 64, Features::general}>("e4m3 q70 k200 d144/48 softcap=5");
  expect_exact_attention<{DType::e5m2, 16, 32, 8, 1, 96, 192, Features::plain}>("e5m2 q20 k300 d80/176");
}

TEST(Flash2, NaNReachesWhatItMust) {
  for (const char* text : {"bf16 q40 k40 d64 causal", "e4m3 q40 k40 d64 causal"}) {
    Inputs in = inputs_of(text);
    const uint32 nan = nan_bits(in.problem.dtype);
    in.q.set_bits(7 * 64 + 3, nan);
    in.k.set_bits(30 * 64 + 5, nan);
    const Outcome got = run(in, "");
    for (int64_t i = 0; i < 40; ++i) {
      EXPECT_EQ(std::isnan(got.l[size_t(i)]), i == 7 || i >= 30) << text << " row " << i;
      EXPECT_EQ(std::isnan(got.o[size_t(i * 64)]), i == 7 || i >= 30) << text << " row " << i;
    }
  }
}

/// The factor of the exponential may be infinite, subnormal, negative or 0.
TEST(Flash2, RowsWithoutKeysAreEmptyWhateverTheScale) {
  for (const char* text : {"bf16 q20 k8 d64 causal scale=3e38", "fp16 q20 k8 d64 causal scale=1e-45",
                           "bf16 q20 k8 d64 causal scale=-3e38", "e4m3 q20 k8 d64 causal scale=0"}) {
    const Outcome got = run(inputs_of(text), "");
    for (size_t i = 0; i < 12; ++i) {
      EXPECT_EQ(got.l[i], -HUGE_VAL) << text << " row " << i;
      for (size_t c = 0; c < 64; ++c) EXPECT_EQ(got.o[i * 64 + c], 0) << text << " row " << i;
    }
  }
}

TEST(Flash2, AFaultOfTheMachineIsAnErrorWithTheKernelsLine) {
  const Inputs in = inputs_of("bf16 q40 k40 d64");
  SmallCall small(in);
  small.call.o.shape[1] = 39;
  char message[4096] = "";
  EXPECT_EQ(kernel().forward(&small.call, "schedule=5", nullptr, message, sizeof message), FLASHPROOF_ERROR);
  EXPECT_NE(std::string(message).find("flash2_store.cuh"), std::string::npos) << message;
}

// ---- the host's side

/// The reason of a rejection; "" if it is taken.
std::string rejection(const flashproof_problem& p, const char* config) {
  char message[512] = "";
  const flashproof_status status = kernel().supports(&p, config, message, sizeof message);
  EXPECT_EQ(status == FLASHPROOF_OK, message[0] == 0);
  return message;
}
std::string rejection(const char* text, const char* config = "") {
  const Inputs in = inputs_of(text);
  return rejection(SmallCall(in).problem, config);
}

TEST(Flash2, RefusesWithAReasonWhatItDoesNotDo) {
  EXPECT_EQ(rejection("bf16 q10 k10 d8"), "");
  EXPECT_EQ(rejection("e4m3 q10 k10 d256"), "");
  EXPECT_EQ(rejection("bf16 q10 k10 d64", "tile=64x64x2x4 schedule=3"), "");
  EXPECT_NE(rejection("fp32 q10 k10 d64").find("dtype"), std::string::npos);
  EXPECT_NE(rejection("bf16 q10 k10 d64 bwd").find("backward"), std::string::npos);
  EXPECT_NE(rejection("bf16 q10 k10 d12").find("multiple"), std::string::npos);
  EXPECT_NE(rejection("bf16 q10 k10 d264").find("larger"), std::string::npos);
  EXPECT_NE(rejection("e5m2 q10 k10 d24").find("multiples of 16"), std::string::npos);
  EXPECT_NE(rejection("bf16 q10 k10 d64 softcap=1e-40").find("softcap"), std::string::npos);
  EXPECT_NE(rejection("bf16 q10 k10 d64", "tile=48x64x2x4").find("48x64x2x4"), std::string::npos);
  for (const char* config : {"tile=64", "tile=64x64x2", "tile=64x64x2x4x1", "tile=0x64x2x4", "tile=64x64x2x4y",
                             "tile=16x1073741824x2x1", "tile=64x64x2x4,tile=64x64x2x4", "schedule=-1", "schedule=10000",
                             "schedule=1.5", "schedule=1 schedule=1", "splits=2"})
    EXPECT_NE(rejection("bf16 q10 k10 d64", config).find("config '"), std::string::npos) << config;
  EXPECT_EQ(rejection("bf16 q10 k10 d64", "schedule=9999"), "");
  EXPECT_THROW(flash2::parse_config("schedule=1", false), Rejected);

  const Inputs in = inputs_of("bf16 q10 k10 d64");
  flashproof_problem p = SmallCall(in).problem;
  p.max_seq_k = p.total_k = int64_t(1) << 30;
  EXPECT_NE(rejection(p, "").find("2^29"), std::string::npos);
}

TEST(Flash2, RefusesCallsThatLackWhatTheProblemSpeaksOf) {
  const Inputs in = inputs_of("bf16 b2 seqq=[3,5] k9 d16 sink alibi bias=1h1k pages=shuffle(7,4)");
  const auto refusal = [&](auto change) -> std::string {
    SmallCall small(in);
    change(small.call);
    try {
      flash2::call_of(small.call);
    } catch (const Rejected& reason) {
      return reason.what();
    }
    return "";
  };
  using C = flashproof_call;
  EXPECT_EQ(refusal([](C&) {}), "");
  EXPECT_NE(refusal([](C& c) { c.lse.data = nullptr; }).find("lse"), std::string::npos);
  EXPECT_NE(refusal([](C& c) { c.o.dtype = FLASHPROOF_FP16; }).find("tensor o"), std::string::npos);
  EXPECT_NE(refusal([](C& c) { c.bias.dtype = FLASHPROOF_FP16; }).find("bias"), std::string::npos);
  EXPECT_NE(refusal([](C& c) { c.sink = {}; }).find("sink"), std::string::npos);
  EXPECT_NE(refusal([](C& c) { c.slopes = {}; }).find("slopes"), std::string::npos);
  EXPECT_NE(refusal([](C& c) { c.cu_seqlens_q = {}; }).find("cu_seqlens_q"), std::string::npos);
  EXPECT_NE(refusal([](C& c) { c.page_table = {}; }).find("page_table"), std::string::npos);
}

/// Integers that lead outside a tensor or an entry's slot are refused with their name; the kernel is not started.
TEST(Flash2, RefusesLengthsAndPagesThatLeadOutside) {
  const Inputs packed = inputs_of("bf16 seqq=[3,5] seqk=[6,9] d16");
  const Inputs paged = inputs_of("bf16 b2 q3 k9 d16 usedk=[7,9] pages=shuffle(7,4)");
  using List = flashproof_integers flashproof_call::*;
  const auto refusal = [](const Inputs& in, List list, int64_t position, int32_t value) -> std::string {
    SmallCall small(in);
    flashproof_integers& integers = small.call.*list;
    std::vector<int32_t> changed(integers.data, integers.data + integers.length);
    changed.at(size_t(position)) = value;
    integers.data = changed.data();  // what the kernel reads
    char message[4096] = "";
    const flashproof_status status = kernel().forward(&small.call, "", nullptr, message, sizeof message);
    return status == FLASHPROOF_OK         ? ""
           : status == FLASHPROOF_REJECTED ? message
                                           : "no refusal: " + std::string(message);
  };
  const List cu_q = &flashproof_call::cu_seqlens_q, cu_k = &flashproof_call::cu_seqlens_k;
  const List used_k = &flashproof_call::seqused_k, pages = &flashproof_call::page_table;
  EXPECT_EQ(refusal(packed, cu_q, 0, 0), "");
  EXPECT_EQ(refusal(packed, cu_q, 2, 2), "cu_seqlens_q decreases at entry 1");
  EXPECT_EQ(refusal(packed, cu_q, 1, 2), "cu_seqlens_q gives entry 1 a slot of 6, longer than max_seq_q");
  EXPECT_EQ(refusal(packed, cu_k, 0, -1), "cu_seqlens_k leads entry 0 outside the 15 tokens that there are");
  EXPECT_EQ(refusal(packed, cu_k, 2, 16), "cu_seqlens_k leads entry 1 outside the 15 tokens that there are");
  EXPECT_EQ(refusal(paged, used_k, 0, 7), "");
  EXPECT_EQ(refusal(paged, used_k, 0, -1), "length -1 of entry 0 on side k is outside its slot of 9");
  EXPECT_EQ(refusal(paged, used_k, 1, 10), "length 10 of entry 1 on side k is outside its slot of 9");
  EXPECT_EQ(refusal(paged, pages, 1, 8), "page_table entry 8 is no page of k");
  EXPECT_EQ(refusal(paged, pages, 1, -1), "page_table entry -1 is no page of k");
  EXPECT_EQ(refusal(paged, pages, 2, INT32_MAX), "") << "past ceil(7 / 4) pages: never followed";
}

TEST(Flash2, DeclaresTheArithmeticOfItsChoice) {
  const Inputs plain = inputs_of("bf16 q100 k10 d64"), scaled = inputs_of("e5m2 q100 k10 d64 softcap=3");
  const SmallCall small(plain), other(scaled);
  const Arithmetic a = parse_arithmetic(kernel().arithmetic(&small.problem, "tile=64x64x2x4"));
  EXPECT_EQ(a.tile_m, 64);
  EXPECT_EQ(a.tile_n, 64);
  EXPECT_EQ(a.p_format, int(DType::bf16));
  EXPECT_EQ(a.row_sum_lanes, 4);
  const Arithmetic b = parse_arithmetic(kernel().arithmetic(&other.problem, ""));
  EXPECT_EQ(b.p_format, int(DType::e4m3));
  EXPECT_EQ(b.p_scale_log2, 8);
  EXPECT_NE(a, b);
  EXPECT_STREQ(kernel().arithmetic(&small.problem, "tile=1x1x1x1"), "");
}

constexpr TileConfig table[] = {
    {DType::bf16, 128, 64, 2, 4, 64, 64, Features::plain},   {DType::bf16, 64, 64, 2, 4, 64, 64, Features::plain},
    {DType::bf16, 128, 32, 2, 8, 128, 128, Features::plain}, {DType::bf16, 128, 64, 2, 8, 64, 64, Features::general},
    {DType::fp16, 128, 64, 2, 4, 64, 64, Features::general},
};
int choice(const char* text, const Config& config = {}) {
  const Inputs in = inputs_of(text);
  return flash2::choose(table, SmallCall(in).problem, config);
}

TEST(Flash2, ChoosesTheLeastThatHoldsTheProblem) {
  EXPECT_EQ(choice("bf16 q1000 k10 d64"), 0);
  EXPECT_EQ(choice("bf16 q64 k10 d64"), 0) << "half of the rows are at work";
  EXPECT_EQ(choice("bf16 q63 k10 d64"), 1);
  EXPECT_EQ(choice("bf16 q1000 k10 d64/72"), 2);
  EXPECT_EQ(choice("bf16 q1000 k10 d64 softcap=2"), 3);
  EXPECT_EQ(choice("bf16 q1000 k10 d64 dropout=0.5@1"), 3);
  EXPECT_EQ(choice("bf16 q1000 k10 d64 scale=-1"), 3);
  EXPECT_EQ(choice("bf16 q1000 k10 d64 scale=3e38"), 3) << "times log2(e) it is infinite";
  EXPECT_EQ(choice("fp16 q1000 k10 d64"), 4) << "general holds plain, too";
  EXPECT_EQ(choice("bf16 q1000 k10 d64", {128, 64, 2, 8}), 3);
  EXPECT_THROW(choice("bf16 q1000 k10 d128 softcap=2"), Rejected);
  EXPECT_THROW(choice("bf16 q1000 k10 d64", {16, 16, 2, 1}), Rejected);
}

TEST(Flash2, TakesTheGeneralKernelOfTheSameTileOfKeysForUnalignedRows) {
  const Inputs in = inputs_of("bf16 q1000 k10 d64"), wide = inputs_of("bf16 q1000 k10 d128");
  flash2::Call call = {};
  call.q.aligned = call.k.aligned = call.v.aligned = call.o.aligned = 1;
  EXPECT_EQ(flash2::choose_for_call(table, 0, call, SmallCall(in).problem, {}), 0);
  call.v.aligned = 0;
  EXPECT_EQ(flash2::choose_for_call(table, 0, call, SmallCall(in).problem, {}), 3);
  EXPECT_EQ(flash2::choose_for_call(table, 1, call, SmallCall(in).problem, {64, 64, 2, 4}), 3) << "no such tile";
  EXPECT_THROW(flash2::choose_for_call(table, 2, call, SmallCall(wide).problem, {}), Rejected);
}

}  // namespace
}  // namespace flashproof::test
