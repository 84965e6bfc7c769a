// What lies around the data of a call, and that the report after it follows the kernel's conventions.
#include "fuzz/memory_plan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

namespace flashproof {
namespace {

flashproof_kernel kernel_with(const flashproof_conventions& conventions) {
  flashproof_kernel kernel = {};
  kernel.memory = FLASHPROOF_HOST;
  kernel.conventions = conventions;
  return kernel;
}

struct Laid {
  Inputs inputs;
  MemoryPlan plan;
};

Laid lay(const std::string& text, const Placement& placement = {},
         const flashproof_conventions& conventions = FLASHPROOF_DEFAULT_CONVENTIONS) {
  Inputs inputs = make_inputs(parse_case(text));
  MemoryPlan plan = plan_memory(inputs, placement, kernel_with(conventions), 1000);
  return {std::move(inputs), std::move(plan)};
}

double number_at(const Buffer& buffer, int64_t element) {  // of the image
  uint32_t bits = 0;
  std::memcpy(&bits, buffer.image.data() + element * buffer.element_bytes, buffer.element_bytes);
  return decode(DType(buffer.view.dtype), bits);
}

std::set<int64_t> data_elements(const Buffer& buffer) {
  std::set<int64_t> elements;
  for (int64_t token : buffer.token)
    for (int64_t h = 0; h < buffer.heads; ++h)
      for (int64_t c = 0; c < buffer.width; ++c) elements.insert(buffer.zone + token + h * buffer.head_stride + c);
  return elements;
}

TEST(MemoryPlan, SurroundsTheDataOfInputsWithNaNOrNoise) {
  const std::string texts[] = {"bf16 b2 h4/2 q5 usedq=[3,5] k9 d8 gap=3", "e4m3 seqq=[2,0,3] seqk=[4,1,0] d16",
                               "fp16 b2 q3 k10 usedk=[0,7] pages=shuffle(5,4) d8", "fp32 b2 h2 q3 k4 d8 layout=bhsd"};
  for (const std::string& text : texts)
    for (bool nan : {true, false}) {
      const Laid laid = lay(text, {.nan_outside = nan});
      for (int id : {buffer_q, buffer_k, buffer_v}) {
        const Buffer& buffer = laid.plan.buffers[id];
        const std::set<int64_t> data = data_elements(buffer);
        const Tensor& logical = id == buffer_q ? laid.inputs.q : id == buffer_k ? laid.inputs.k : laid.inputs.v;
        EXPECT_EQ(int64_t(data.size()), logical.size()) << "each element of the data has a place of its own";
        EXPECT_GE(buffer.zone, 512);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.view.data) % 256, 0u);
        for (int64_t e = 0; e < buffer.elements + 2 * buffer.zone; ++e)
          ASSERT_TRUE(data.contains(e) || std::isnan(number_at(buffer, e)) == nan) << text << " " << buffer.name << e;
      }
    }
}

TEST(MemoryPlan, PoisonsOutputsWithOtherNaNsForEachSeed) {
  const Laid first = lay("bf16 h2 q5 k6 d8 bwd", {.poison = 1}), second = lay("bf16 h2 q5 k6 d8 bwd", {.poison = 2});
  for (int id : {buffer_o, buffer_lse, buffer_dq, buffer_dk, buffer_dv}) {
    const Buffer& buffer = first.plan.buffers[id];
    for (int64_t e = 0; e < buffer.elements + 2 * buffer.zone; ++e) ASSERT_TRUE(std::isnan(number_at(buffer, e)));
    EXPECT_NE(buffer.image, second.plan.buffers[id].image);
  }
  EXPECT_NE(first.plan.buffers[buffer_workspace].image, second.plan.buffers[buffer_workspace].image);
}

TEST(MemoryPlan, EndsThePageTableWhereTheLongestSlotEndsForEverySecondSeed) {
  const auto table = [](const char* text) { return std::move(lay(text).plan.buffers[buffer_page_table]); };
  EXPECT_EQ(table("bf16 b3 q2 k40 usedk=[39,0,33] pages=shuffle(3,8) d8").elements, 3 * 6);
  const Buffer exact = table("bf16 b3 q2 k40 usedk=[39,0,33] pages=shuffle(4,8) d8");
  EXPECT_EQ(exact.elements, 3 * 5);
  EXPECT_LT(exact.host.back(), 5 + 0 + 5 + 3) << "the last entry leads to a page";
  EXPECT_GE(exact.zone, 512) << "a red zone behind it";
  EXPECT_EQ(table("bf16 b3 q2 k0 pages=shuffle(4,8) d8").elements, 3) << "never without a table";
}

TEST(MemoryPlan, ShufflesPagesAndLeavesSomeUnused) {
  const Laid laid = lay("bf16 b3 q2 k40 usedk=[40,0,9] pages=shuffle(3,8) d8");  // 5 + 0 + 2 pages
  const std::vector<int32_t>& table = laid.plan.buffers[buffer_page_table].host;
  ASSERT_EQ(table.size(), 3u * 6);
  std::multiset<int32_t> used;
  for (size_t n = 0; n < table.size(); ++n) {
    const int64_t b = n / 6, page = n % 6;
    if (page < (used_length(laid.inputs.problem.k, b) + 7) / 8) {
      used.insert(table[n]);
    } else {
      EXPECT_EQ(table[n], 0x7fffffff);
    }
  }
  EXPECT_EQ(used.size(), 7u);
  EXPECT_EQ(std::set<int32_t>(used.begin(), used.end()).size(), 7u) << "no page serves twice";
  EXPECT_FALSE(std::is_sorted(table.begin(), table.begin() + 5));
  EXPECT_GT(laid.plan.buffers[buffer_k].view.shape[0], 7);
  EXPECT_LT(*used.rbegin(), laid.plan.buffers[buffer_k].view.shape[0]);
}

TEST(MemoryPlan, HidesTheLargestNumbersWhereNoRowSees) {
  // Causal, top-left: row i sees keys 0 to i; keys 3 and 4 are hidden from all. Key 0 is hidden by the bias's data
  // alone.
  const std::string text = "fp16 h2 q3 k5 d8 causal align=top-left";
  const std::string biased = text + " bias=111k set=bias[0,0,0,0]:0xfc00";
  const auto holds_largest = [](const Laid& laid, int64_t key) {
    const Buffer& k = laid.plan.buffers[buffer_k];
    return std::abs(number_at(k, k.zone + k.token[key])) == 65504;
  };
  for (bool hidden : {false, true}) {
    const Laid laid = lay(text, {.largest_hidden = hidden}), with_bias = lay(biased, {.largest_hidden = hidden});
    for (int64_t key = 0; key < 5; ++key) {
      EXPECT_EQ(holds_largest(laid, key), hidden && key >= 3) << key;
      EXPECT_EQ(holds_largest(with_bias, key), hidden && (key >= 3 || key == 0)) << key;
    }
  }
  flashproof_conventions bears = FLASHPROOF_DEFAULT_CONVENTIONS;
  bears.bears_hidden_nan = 1;
  const Laid laid = lay(text, {.largest_hidden = true}, bears);
  const Buffer& v = laid.plan.buffers[buffer_v];
  EXPECT_TRUE(std::isnan(number_at(v, v.zone + v.token[4])));
  EXPECT_FALSE(std::isnan(number_at(v, v.zone + v.token[2])));
}

// ---- the report

/// Writes a constant byte to all data of O, and to all data of L where `with_lse`; O's tails too where `with_tail`.
MemoryReport report_of(Laid& laid, uint8_t byte, bool with_lse, bool with_tail) {
  for (int id : {buffer_o, buffer_lse}) {
    Buffer& buffer = laid.plan.buffers[id];
    if (id == buffer_lse && !with_lse) continue;
    char* begin = buffer.memory.data() + buffer.zone * buffer.element_bytes;
    for (int64_t e : data_elements(buffer))
      std::memset(buffer.memory.data() + e * buffer.element_bytes, byte, buffer.element_bytes);
    if (with_tail) std::memset(begin, byte, buffer.elements * buffer.element_bytes);
  }
  read_back(laid.plan);
  MemoryReport report;
  inspect(laid.plan, laid.inputs.problem, false, report);
  EXPECT_EQ(report.red_zone + report.input_changed, "");
  return report;
}

TEST(MemoryReport, FollowsTheConventionForTails) {
  const std::string text = "bf16 b2 h2 q5 usedq=[3,5] k4 d8";
  const auto tail_finding = [&](int32_t tail, uint8_t byte, bool with_tail) {
    flashproof_conventions conventions = FLASHPROOF_DEFAULT_CONVENTIONS;
    conventions.tail = tail;
    Laid laid = lay(text, {}, conventions);
    const MemoryReport report = report_of(laid, byte, true, with_tail);
    EXPECT_EQ(report.unwritten, "");
    return report.tail_touched;
  };
  EXPECT_EQ(tail_finding(FLASHPROOF_TAIL_UNTOUCHED, 0, false), "");
  EXPECT_EQ(tail_finding(FLASHPROOF_TAIL_UNTOUCHED, 0, true), "o: element 48 past the used length was written");
  EXPECT_EQ(tail_finding(FLASHPROOF_TAIL_ZERO, 0, true), "");
  EXPECT_EQ(tail_finding(FLASHPROOF_TAIL_ZERO, 0, false), "o: element 48 past the used length is not zero");
  EXPECT_EQ(tail_finding(FLASHPROOF_TAIL_ZERO, 1, true), "o: element 48 past the used length is not zero");
  EXPECT_EQ(tail_finding(FLASHPROOF_TAIL_UNDEFINED, 1, true), "");
}

TEST(MemoryReport, ExcusesWhatTheKernelDeclaresUndefined) {
  const auto unwritten = [](const char* text, const flashproof_conventions& conventions, bool with_lse) {
    Laid laid = lay(text, {}, conventions);
    return report_of(laid, 0, with_lse, false).unwritten;
  };
  flashproof_conventions conventions = FLASHPROOF_DEFAULT_CONVENTIONS;
  EXPECT_EQ(unwritten("bf16 q5 k2 d8 causal", conventions, false), "L[b=0 i=0 h=0] was not written");
  conventions.empty_lse = FLASHPROOF_EMPTY_LSE_UNDEFINED;  // rows 0 to 2 see no key
  EXPECT_EQ(unwritten("bf16 q5 k2 d8 causal", conventions, false), "L[b=0 i=3 h=0] was not written");
  EXPECT_EQ(unwritten("bf16 q5 k2 d8 causal sink", conventions, false), "L[b=0 i=0 h=0] was not written");
  conventions.lse_base = FLASHPROOF_LSE_NONE;
  EXPECT_EQ(unwritten("bf16 q5 k2 d8 causal", conventions, false), "");
}

}  // namespace
}  // namespace flashproof
