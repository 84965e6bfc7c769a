// A case through files: tensors come back bit for bit whatever the lengths, and what is wrong with a file is named.
#include "fuzz/case_files.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "fuzz/common_rules.h"
#include "oracle/value.h"
#include "reference/errors.h"

namespace flashproof {
namespace {

constexpr flashproof_conventions usual = FLASHPROOF_DEFAULT_CONVENTIONS;

Outputs numbered(const Problem& p) {
  Outputs outputs = make_outputs(p);
  for (int id = 0; id < output_count; ++id) {
    Tensor& tensor = tensor_of(outputs, OutputId(id));
    for (int64_t i = 0; i < tensor.size(); ++i) tensor.set_bits(i, uint32_t(i * 7 + id));
  }
  return outputs;
}

TEST(CaseFiles, OutputsComeBackBitForBit) {
  for (const char* text :
       {"bf16 q3 k4 d8", "bf16 b2 h4/2 q5 k7 d8/6 bwd", "fp16 h2 seqq=[3,0,5] seqk=[2,4,0] d4 bwd sink bias=bhqk",
        "fp32 b3 h2 q4 k6 d8 usedk=[6,0,2] usedq=[1,4,0] bwd"}) {
    const Problem p = parse_problem(text);
    const Outputs outputs = numbered(p), back = outputs_of_file(p, usual, output_file(p, outputs));
    for (int id = 0; id < output_count; ++id)
      EXPECT_TRUE(tensor_of(outputs, OutputId(id)) == tensor_of(back, OutputId(id)))
          << text << " " << name_of(OutputId(id));
  }
}

TEST(CaseFiles, PaddingIsNanOrZeroAndDataStandAtTheirPlaces) {
  const Inputs in = make_inputs(parse_case("bf16 h2 seqq=[3,1] seqk=[2,4] d4 seed=3"));
  for (const bool nan : {false, true}) {
    const SafeTensors file = input_file(in, nan, {{"case", "x"}});
    const SafeTensor& q = file.tensors.at("q");
    EXPECT_EQ(q.shape, (std::vector<int64_t>{2, 3, 2, 4}));
    uint16_t first_of_entry_1 = 0, padding = 1;
    std::memcpy(&first_of_entry_1, &q.bytes[size_t(3 * 2 * 4) * 2], 2);
    std::memcpy(&padding, &q.bytes[size_t((3 + 1) * 2 * 4) * 2], 2);
    EXPECT_EQ(first_of_entry_1, in.q.bits(3 * 2 * 4));
    EXPECT_EQ(padding, nan ? nan_bits(DType::bf16) : 0);
  }
}

TEST(CaseFiles, WhatIsWrongWithAnOutputFileIsNamed) {
  const Problem p = parse_problem("bf16 h2 q3 k4 d8");
  const SafeTensors right = output_file(p, numbered(p));
  const auto message = [&](const SafeTensors& file) -> std::string {
    try {
      outputs_of_file(p, usual, file);
      return "";
    } catch (const UsageError& error) {
      return error.what();
    }
  };
  EXPECT_EQ(message(right), "");
  SafeTensors file = right;
  file.tensors.erase("lse");
  EXPECT_NE(message(file).find("`lse` is missing; it must be F32 [1, 2, 3]"), std::string::npos) << message(file);
  file = right;
  file.tensors["o"].dtype = "F16";
  EXPECT_NE(message(file).find("F16 [1, 3, 2, 8], and must be BF16 [1, 3, 2, 8]"), std::string::npos) << message(file);
  file = right;
  file.tensors["o"].shape = {1, 2, 3, 8};
  EXPECT_NE(message(file).find("must be BF16 [1, 3, 2, 8]"), std::string::npos) << message(file);
}

TEST(CaseFiles, InstructionsFollowTheCaseAndItsConventions) {
  const auto text = [](const char* words, const char* conventions, size_t runs = 1) {
    const Case c = parse_case(words);
    return instructions(c, input_file(make_inputs(c), true, {}), parse_conventions(conventions), runs);
  };
  const auto has = [](const std::string& all, const char* part) { return all.find(part) != std::string::npos; };
  const std::string plain = text("bf16 h4/2 q3 k5 d8 causal", "");
  for (const char* part :
       {"seqlens_k  I32 [1]", "k  BF16 [1, 5, 2, 8]", "o  BF16 [1, 3, 4, 8]", "kv head h / (heads / kv",
        "lse = ln z, the natural logarithm", "o = 0 and lse = -infinity", "off = Sk - Sq"})
    EXPECT_TRUE(has(plain, part)) << part << "\n" << plain;
  EXPECT_FALSE(has(plain, "run-000"));
  EXPECT_TRUE(has(text("bf16 q3 k5 d8", "", 3), "One of 3 runs, which lie in run-000"));
  const std::string other = text("bf16 q3 k5 d8", "lse=base2,empty_o=undefined,empty_lse=inf");
  EXPECT_TRUE(has(other, "lse = log2 z") && has(other, "any o and lse = +infinity") && !has(other, "natural")) << other;
  const std::string none = text("bf16 q3 k5 d8 sink", "lse=none");
  EXPECT_TRUE(!has(none, "lse =") && has(none, "exp(s) + exp(sink[h])")) << none;
}

TEST(CaseFiles, ConventionsAreReadAndWrongOnesNamed) {
  const flashproof_conventions c = parse_conventions("lse=base2,empty_o=undefined,deterministic=no");
  EXPECT_EQ(c.lse_base, FLASHPROOF_LSE_BASE_2);
  EXPECT_EQ(c.empty_o, FLASHPROOF_EMPTY_O_UNDEFINED);
  EXPECT_EQ(c.deterministic, FLASHPROOF_DETERMINISTIC_NO);
  EXPECT_EQ(parse_conventions("deterministic=any-layout").deterministic, FLASHPROOF_DETERMINISTIC_LAYOUT);
  EXPECT_EQ(parse_conventions("deterministic=any-batch").deterministic, FLASHPROOF_DETERMINISTIC_BATCH);
  EXPECT_EQ(parse_conventions("deterministic=any-rows").deterministic, FLASHPROOF_DETERMINISTIC_ROWS);
  EXPECT_EQ(parse_conventions("").lse_base, FLASHPROOF_LSE_NATURAL);
  EXPECT_THROW(parse_conventions("lse=base3"), UsageError);
  for (const char* text : {"", "lse=base2", "lse=none,deterministic=no,tail=zero", "empty_lse=inf,saturates=yes"})
    EXPECT_EQ(print(parse_conventions(print(parse_conventions(text)))), print(parse_conventions(text))) << text;
  EXPECT_NE(print(parse_conventions("lse=base2")).find("lse=base2"), std::string::npos);
}

TEST(CommonRules, PlainAttentionIsAttentionToAFewUnitsOfItsFormat) {
  for (const char* text : {"bf16 h4/2 q13 k21 d16 causal bwd seed=1", "fp16 b2 q9 k9 d32 window=3,0 bwd seed=2",
                           "bf16 h2 q7 k17 d16 causal softcap=15 alibi seed=3"}) {
    const Inputs in = make_inputs(parse_case(text));
    const Outputs plain = plain_attention(in);
    const Values exact = value_double(in, Sample{});
    for (const OutputId id : {OutputId::o, OutputId::dq, OutputId::dk, OutputId::dv}) {
      const Tensor& tensor = tensor_of(plain, id);
      double size = 0, error = 0;
      for (int64_t i = 0; i < tensor.size(); ++i) {
        size = std::max(size, std::abs(exact[id].mid[size_t(i)]));
        error = std::max(error, std::abs(tensor.at(i) - exact[id].mid[size_t(i)]));
      }
      EXPECT_LE(error, 8 * ulp(in.problem.dtype, size)) << text << " " << name_of(id);
    }
  }
}

}  // namespace
}  // namespace flashproof
