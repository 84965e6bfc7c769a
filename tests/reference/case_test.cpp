// The case's text form and its id; index maps and element edits in the data; real data from files.
#include "reference/case.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>

#include "reference/errors.h"
#include "reference/inputs.h"
#include "reference/safetensors.h"
#include "tests/reference/arbitrary_problem.h"

namespace flashproof {
namespace {

std::string refusal_of(const std::string& text) {
  try {
    make_inputs(parse_case(text));
  } catch (const UsageError& error) {
    return error.what();
  } catch (const UnavailableError& error) {
    return std::string("unavailable: ") + error.what();
  }
  return "accepted";
}

Inputs inputs_of(const std::string& text) { return make_inputs(parse_case(text)); }

RC_GTEST_PROP(CaseText, ParseUndoesPrint, ()) {
  const Case c = test::any_case();
  RC_ASSERT(parse_case(print(c)) == c);
}

TEST(CaseText, CanonicalExamples) {
  const char* canonical[] = {
      "bf16 q1 k1 d64 data=normal seed=0",
      "bf16 h2 q3 k5 d64 causal data=normal(2,1) seed=7 keys=0-3,17 set=k[0,2,0,5]:0x3f80 set=q[0,0,1,63]:0x0",
      "bf16 q3 k5 d64 data=normal(_,0.5) seed=18446744073709551615 keys=4,3,2,1,0 value_channels=0-63",
      "bf16 q3 k5 d64 data=file:/a%20b/c%23d%25.safetensors#layers.3. first=4,0,1 seed=1",
      "fp16 b2 q3 k5 d4 alibi=bh bias=b1qk sink data=sinks(9) seed=1 set=slope[1,0,0,0]:0x3f800000 "
      "set=bias[1,2,0,4]:0xfc00 set=sink[0,0,0,0]:0x80000000",
  };
  for (const char* text : canonical) EXPECT_EQ(print(parse_case(text)), text);
}

TEST(CaseText, WhatIsIllegalIsRefusedWithAReason) {
  const std::pair<const char*, const char*> refused[] = {
      {"data=nromal", "did you mean `data=normal`"},
      {"data=file", "did you mean `data=file:PATH`"},
      {"data=file:", "data=file needs a path"},
      {"data=file:/nowhere.safetensors", "unavailable: /nowhere.safetensors"},
      {"data=file:/", "is a folder"},
      {"data=file:a%2", "two hexadecimal digits"},
      {"data=normal(1,2,3)", "takes 2 parameters"},
      {"data=exact(1)", "takes 0 parameters"},
      {"data=normal(-1)", "at least 0"},
      {"data=normal(1", "expected `(...)`"},
      {"data=cancelling(0)", "a must be above 0"},
      {"data=integers(1e9)", "at most 2^20"},
      {"first=1,2,3", "`first` is for data=file"},
      {"seed=-1", "whole number of at least 0"},
      {"seed=1 seed=2", "given twice"},
      {"k3 keys=0-1", "keys lists 2 positions, and the problem has 3"},
      {"k3 keys=2-0", "expected positions"},
      {"k3 keys=0-99999999999", "more than 2^24"},
      {"keys=300000000", "not in 0 to 2^28 - 1"},
      {"set=w[0,0,0,0]:0x0", "did you mean"},
      {"set=k[0,0,0]:0x0", "four indices"},
      {"set=k[0,0,0,0]", "expected `set=k[b,position,head,channel]:0xBITS`"},
      {"k4 set=k[0,4,0,0]:0x0", "index 1 must be below 4"},
      {"b2 k4 usedk=[4,1] set=k[1,1,0,0]:0x0", "index 1 must be below 1"},
      {"set=k[1,0,0,0]:0x0", "the problem has 1 entries"},
      {"set=k[0,0,0,0]:0x10000", "the format has 16 bits"},
      {"set=sink[0,0,0,0]:0x0", "no such element"},
      {"sink set=sink[0,0,0,0]:0x7f800000", "must be finite"},
      {"bias=1111 set=bias[0,0,0,0]:0x7f80", "must not be NaN or +infinity"},
      {"bias=1111 set=bias[0,0,0,0]:0x7fc0", "must not be NaN or +infinity"},
      {"kyes=0", "unknown word"},
  };
  for (const auto& [text, reason] : refused) {
    EXPECT_NE(refusal_of(text).find(reason), std::string::npos) << text << ": " << refusal_of(text);
  }
}

TEST(CaseText, IdIsTheHashOfTheText) {
  // FNV-1a, 64 bits, of "bf16 q1 k1 d64 data=normal seed=0", computed by another program.
  EXPECT_EQ(case_id(Case{}), "2b87cfcc7c2d67c6");
  EXPECT_NE(case_id(parse_case("seed=1")), case_id(Case{}));
}

TEST(CaseData, KeptKeysKeepTheirNumbers) {
  const Inputs whole = inputs_of("q2 k6 h2/1 d4 seed=5");
  const Inputs kept = inputs_of("q2 k3 h2/1 d4 seed=5 keys=0,5,2");
  EXPECT_EQ(kept.q, whole.q);
  const int64_t sources[] = {0, 5, 2};
  for (int64_t j = 0; j < 3; ++j) {
    for (int64_t c = 0; c < 4; ++c) {
      EXPECT_EQ(kept.k.bits(j * 4 + c), whole.k.bits(sources[j] * 4 + c));
      EXPECT_EQ(kept.v.bits(j * 4 + c), whole.v.bits(sources[j] * 4 + c));
    }
  }
}

TEST(CaseData, EveryAxisIsMapped) {
  const Inputs whole = inputs_of("b3 h4/2 q5 k6 d4/3 seed=5 bias=bhqk alibi=bh sink");
  const Inputs part = inputs_of(
      "b1 h2/1 q2 k3 d2/1 seed=5 bias=bhqk alibi=bh sink scale=0.5 batches=2 rows=1,4 keys=0-1,5 heads=3,2 kv_heads=1 "
      "channels=0,3 value_channels=2");
  const int64_t rows[] = {1, 4}, keys[] = {0, 1, 5}, heads[] = {3, 2}, channels[] = {0, 3};
  for (int64_t h = 0; h < 2; ++h) {
    EXPECT_EQ(part.slopes[size_t(h)], whole.slopes[size_t(2 * 4 + heads[h])]);
    EXPECT_EQ(part.sinks[size_t(h)], whole.sinks[size_t(heads[h])]);
    for (int64_t i = 0; i < 2; ++i) {
      const int64_t source = (2 * 5 + rows[i]) * 4 + heads[h];
      EXPECT_EQ(part.d_o.bits(i * 2 + h), whole.d_o.bits(source * 3 + 2));
      for (int64_t c = 0; c < 2; ++c)
        EXPECT_EQ(part.q.bits((i * 2 + h) * 2 + c), whole.q.bits(source * 4 + channels[c]));
      for (int64_t j = 0; j < 3; ++j)
        EXPECT_EQ(bias_at(part, 0, h, i, j), bias_at(whole, 2, heads[h], rows[i], keys[j]));
    }
  }
  for (int64_t j = 0; j < 3; ++j) {
    const int64_t source = (2 * 6 + keys[j]) * 2 + 1;
    EXPECT_EQ(part.v.bits(j), whole.v.bits(source * 3 + 2));
    for (int64_t c = 0; c < 2; ++c) EXPECT_EQ(part.k.bits(j * 2 + c), whole.k.bits(source * 4 + channels[c]));
  }
}

TEST(CaseData, EditsChangeTheNamedElementAlone) {
  const std::string text = "b2 h4/2 q5 usedk=[2,6] k6 d4/3 seed=6 alibi bias=1hq1 bwd";
  const Inputs before = inputs_of(text);
  const Inputs after = inputs_of(text +
                                 " set=k[1,5,1,3]:0x7fc0 set=v[1,0,0,2]:0x1 set=q[0,4,3,0]:0x2 set=do[1,0,0,1]:0x3 "
                                 "set=slope[0,0,2,0]:0x3f800000 set=bias[0,4,3,0]:0xff80");
  Inputs expected = before;
  expected.k.set_bits(((2 + 5) * 2 + 1) * 4 + 3, 0x7fc0);
  expected.v.set_bits((2 * 2 + 0) * 3 + 2, 1);
  expected.q.set_bits((4 * 4 + 3) * 4, 2);
  expected.d_o.set_bits(5 * 4 * 3 + 1, 3);
  expected.slopes[2] = expected.slopes[6] = 1;
  expected.bias.set_bits(3 * 5 + 4, 0xff80);
  EXPECT_EQ(after.k, expected.k);
  EXPECT_EQ(after.v, expected.v);
  EXPECT_EQ(after.q, expected.q);
  EXPECT_EQ(after.d_o, expected.d_o);
  EXPECT_EQ(after.bias, expected.bias);
  EXPECT_EQ(after.slopes, expected.slopes);
  EXPECT_TRUE(sees(before, 1, 3, 4, 0) && !sees(after, 1, 3, 4, 0) && !sees(after, 0, 3, 4, 1) &&
              sees(after, 0, 2, 4, 1));
}

TEST(CaseData, PackedUsedAndDenseLengthsGiveTheSameTokens) {
  const Inputs used = inputs_of("b3 q4 k9 usedk=[3,0,9] d4 seed=2"), packed = inputs_of("b3 q4 seqk=[3,0,9] d4 seed=2");
  EXPECT_EQ(used.k.shape, (std::vector<int64_t>{12, 1, 4}));
  EXPECT_EQ(used.k, packed.k);
  EXPECT_EQ(used.packing.k_begin, (std::vector<int64_t>{0, 3, 3, 12}));
}

TEST(CaseData, DropoutFollowsItsRule) {
  // Counter (j >> 1, (i >> 4) * 8 + (i & 7), h, b), word 2 * ((i >> 3) & 1) + (j & 1).
  const Problem p = parse_problem("dropout=0.25@81985529216486895");
  int kept = 0;
  for (int64_t i = 0; i < 64; ++i) {
    for (int64_t j = 0; j < 64; ++j) {
      const Philox words = philox4x32_10({uint32(j / 2), uint32(i / 16 * 8 + i % 8), 3, 2}, 0x89abcdefu, 0x01234567u);
      const bool keep = words.word[(i / 8 % 2) * 2 + j % 2] >= 0x40000000u;
      ASSERT_EQ(keeps(p, 2, 3, i, j), keep);
      kept += keep;
    }
  }
  EXPECT_NEAR(kept, 4096 * 0.75, 4 * std::sqrt(4096 * 0.75 * 0.25));
  EXPECT_TRUE(keeps(parse_problem("dropout=0@1"), 0, 0, 0, 0));
}

// ---- Real data ------------------------------------------------------------------------------------------------------

const std::string smollm = std::string(FLASHPROOF_TEST_DATA) + "/data/smollm2_layer00.safetensors";

double stored(const SafeTensors& file, const char* name, int64_t head, int64_t position, int64_t channel) {
  const SafeTensor& tensor = file.tensors.at(name);
  const auto index = size_t((head * tensor.shape[1] + position) * tensor.shape[2] + channel);
  return decode(DType::bf16, tensor.bytes[2 * index] | uint32(tensor.bytes[2 * index + 1]) << 8);
}

TEST(FileData, NumbersAreTheFilesAtTheStatedPlaces) {
  const SafeTensors file = read_safetensors(smollm);
  const Inputs in = inputs_of("b2 h3/1 q20 k30 d64 data=file:" + smollm + " first=500,7,1");
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t h = 0; h < 3; ++h) {
      EXPECT_EQ(in.q.at(((b * 20 + 19) * 3 + h) * 64 + 5),
                stored(file, "Q", (h + 1) % 3, (500 + 97 * b + 19) % 513, 5));
    }
    EXPECT_EQ(in.k.at((b * 30 + 29) * 64 + 63), stored(file, "K", 0, 7 + 97 * b + 29, 63));
    EXPECT_EQ(in.v.at((b * 30 + 3) * 64 + 1), stored(file, "V", 0, 7 + 97 * b + 3, 1));
  }
}

TEST(FileData, WideDimsPadQueriesAndKeysAndRepeatValues) {
  const SafeTensors file = read_safetensors(smollm);
  const Inputs in = inputs_of("fp16 q2 k3 d80/70 data=file:" + smollm);
  EXPECT_EQ(in.q.at(80 + 79), 0);
  EXPECT_EQ(in.k.at(2 * 80 + 64), 0);
  EXPECT_EQ(in.v.at(2 * 70 + 69), round_to(DType::fp16, stored(file, "V", 0, 2, 5)));
}

TEST(FileData, NarrowFormatsRoundOnceAndStayFinite) {
  const SafeTensors file = read_safetensors(smollm);
  const Inputs in = inputs_of("e4m3 q9 k40 d64 data=file:" + smollm);
  for (int64_t n = 0; n < 40 * 64; ++n) {
    ASSERT_EQ(in.k.at(n), round_to(DType::e4m3, stored(file, "K", 0, n / 64, n % 64)));
  }
}

TEST(FileData, AFileOfAnotherFormIsRefused) {
  const std::string path = testing::TempDir() + "flashproof_case_test_" + std::to_string(getpid()) + ".safetensors";
  const auto refusal = [&](const SafeTensors& file) {
    write_safetensors(path, file);
    return refusal_of("data=file:" + path);
  };
  const auto tensor = [](std::vector<int64_t> shape, const char* dtype = "BF16") {
    size_t bytes = dtype[0] == 'I' ? 4 : 2;
    for (const int64_t extent : shape) bytes *= size_t(extent);
    return SafeTensor{dtype, shape, std::vector<uint8_t>(bytes)};
  };
  EXPECT_NE(refusal({{{"Q", tensor({1, 2, 4})}, {"K", tensor({1, 2, 4})}}, {}}).find("has no tensor `V`"),
            std::string::npos);
  const auto three = [&](const SafeTensor& q, const SafeTensor& k, const SafeTensor& v) {
    return refusal({{{"Q", q}, {"K", k}, {"V", v}}, {}});
  };
  const SafeTensor good = tensor({2, 3, 4});
  EXPECT_EQ(three(good, good, good), "accepted");
  EXPECT_NE(three(tensor({2, 3}), good, good).find("must be [heads, seq, dim]"), std::string::npos);
  EXPECT_NE(three(good, tensor({2, 0, 4}), good).find("none of them 0"), std::string::npos);
  EXPECT_NE(three(tensor({2, 3, 5}), good, good).find("do not belong together"), std::string::npos);
  EXPECT_NE(three(tensor({3, 3, 4}), good, good).find("do not belong together"), std::string::npos);
  EXPECT_NE(three(good, good, tensor({2, 4, 4})).find("do not belong together"), std::string::npos);
  EXPECT_NE(three(good, good, tensor({2, 3, 4}, "I32")).find("has dtype `I32`"), std::string::npos);
}

}  // namespace
}  // namespace flashproof
