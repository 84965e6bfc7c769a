// The problem's text form: what is printed can be typed back in, and what is illegal is refused with a useful message.
#include "reference/problem.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "reference/errors.h"
#include "tests/reference/arbitrary_problem.h"

namespace flashproof {
namespace {

std::string refusal_of(const std::string& text) {
  try {
    parse_problem(text);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

RC_GTEST_PROP(ProblemText, ParseUndoesPrint, ()) {
  const Problem p = test::any_problem();
  RC_ASSERT(parse_problem(print(p)) == p);
}

RC_GTEST_PROP(ProblemText, WordsMayComeInAnyOrder, ()) {
  const Problem p = test::any_problem();
  std::string reversed;
  std::string word;
  for (const char letter : print(p) + " ") {
    if (letter != ' ')
      word += letter;
    else
      reversed = word + " " + reversed, word.clear();
  }
  RC_ASSERT(parse_problem(reversed) == p);
}

TEST(ProblemText, CanonicalExamples) {
  const char* canonical[] = {
      "bf16 q1 k1 d64",
      "bf16 b2 h8/2 q1 k4096 d128 causal window=128,0",
      "fp32 h3 q0 k0 d1/7 align=top-left window=open,3",
      "fp16 b3 seqq=[3,0,5] seqk=[0,9,5] d40 usedk=[0,4,5] alibi=bh sink dropout=0.25@1234 bwd=exact",
      "e4m3 h2/1 q4 k5 d16 scale=0.125 softcap=30 alibi bias=1h1k:fp32 descale pages=shuffle(7,16) gap=8 bwd",
      "e5m2 q4 k5 d16 scale=-1e-45 bias=bhqk layout=bhsd",
  };
  for (const char* text : canonical) EXPECT_EQ(print(parse_problem(text)), text);
}

TEST(ProblemText, OtherSpellings) {
  const std::pair<const char*, const char*> same[] = {
      {"", "bf16 q1 k1 d64"},
      {"k7 d8 bf16 h4/4 b1", "bf16 h4 q1 k7 d8"},
      {"q1 k1 d64 scale=0x1.8p-4", "bf16 q1 k1 d64 scale=0.09375"},
      {"seqk=[1,2] q1 align=bottom-right layout=bshd", "bf16 b2 q1 seqk=[1,2] d64"},
      {"q9 k9 b3 usedk=uniform(1,4,4)", "bf16 b3 q9 k9 d64 usedk=[4,4,4]"},
      {"dropout=0.5@0x10", "bf16 q1 k1 d64 dropout=0.5@16"},
  };
  for (const auto& [text, canonical] : same) EXPECT_EQ(print(parse_problem(text)), canonical) << text;
}

TEST(ProblemText, ARecipeOfLengthsIsWrittenOutAndStaysInItsRange) {
  const Problem p = parse_problem("b64 q1 seqk=uniform(3,2,9)");
  ASSERT_EQ(p.k.packed.size(), 64u);
  EXPECT_EQ(*std::min_element(p.k.packed.begin(), p.k.packed.end()), 2);
  EXPECT_EQ(*std::max_element(p.k.packed.begin(), p.k.packed.end()), 9);
  EXPECT_EQ(parse_problem(print(p)), p);
}

TEST(ProblemText, EmptyWindowSidesStayOpen) {
  EXPECT_EQ(parse_problem("window=open,0").mask.window_left, open_window);
  EXPECT_EQ(print(parse_problem("window=open,open")), "bf16 q1 k1 d64");
}

TEST(ProblemText, WhatIsIllegalIsRefusedWithAReason) {
  const std::pair<const char*, const char*> refused[] = {
      {"casual", "did you mean `causal`"},
      {"windw=3,0", "did you mean `window=128,0`"},
      {"bf61", "did you mean `bf16`"},
      {"x12", "A whole problem: `bf16 b2 h8/2 q1 k4096 d128 causal window=128,0`"},
      {"q=3", "expected the form `q128`"},
      {"q", "expected the form `q128`"},
      {"q3.5", "not a whole number"},
      {"q3 q4", "given twice"},
      {"bf16 fp16", "given twice"},
      {"causal=yes", "expected `causal`"},
      {"align=left", "`align=bottom-right` or `align=top-left`"},
      {"h8/3", "3 does not divide 8"},
      {"h2/4", "kv_heads = 4"},
      {"b0", "batch = 0"},
      {"h0", "heads = 0"},
      {"d0", "head_dim = 0"},
      {"d64/0", "value_dim = 0"},
      {"q-1", "q = -1"},
      {"k2147483648", "k = 2147483648"},
      {"k99999999999999999999", "out of range"},
      {"h1/1/1", "one or two numbers"},
      {"b2 q8 usedq=[9,1]", "usedq = 9, must be 0 to 8"},
      {"b2 q8 usedq=[1]", "must have one a batch entry, 2"},
      {"seqk=[]", "the list is empty"},
      {"seqk=3,4", "expected `[...]`"},
      {"seqk=[3,-4]", "seqk = -4"},
      {"q3 seqq=[3]", "exclude each other"},
      {"seqq=uniform(1,5)", "expected the form `uniform(seed,lo,hi)`"},
      {"seqq=uniform(1,5,4)", "0 <= lo <= hi"},
      {"window=-1,0", "write `open` for no limit"},
      {"window=3", "expected the form `window=left,right`"},
      {"scale=nan", "not a finite number"},
      {"scale=inf", "not a finite number"},
      {"scale=1e39", "out of range"},
      {"scale=--1", "finite number"},
      {"scale=", "not a number"},
      {"softcap=-1", "softcap must be finite and above 0"},
      {"dropout=1@3", "rate must be at least 0 and below 1"},
      {"dropout=-0.1@3", "rate must be at least 0 and below 1"},
      {"dropout=0.1", "dropout=rate@seed"},
      {"bias=hbqk", "four axes"},
      {"bias=bh", "four axes"},
      {"bias", "four axes"},
      {"alibi=h", "`alibi` or `alibi=bh`"},
      {"descale", "needs an fp8 dtype"},
      {"pages=shuffle(7)", "pages=shuffle(seed,size)"},
      {"pages=shuffle(7,0)", "page size = 0"},
      {"seqk=[3] pages=shuffle(7,16)", "pages need dense keys"},
      {"seqk=[3] layout=bhsd", "dense lengths"},
      {"pages=shuffle(7,16) layout=bhsd", "does not apply"},
      {"gap=-8", "gap = -8"},
      {"bwd=both", "`bwd` or `bwd=exact`"},
      {"b100000 h1000 q100000 k1 d256", "more than 2^40 elements"},
      {"b200000000 h200000000 q2000000000 k1 d2000000000", "more than 2^40 elements"},
      {"h64 q1000000 k1000000 bias=1hqk", "bias would have more than 2^40 elements"},
      {"b200000000 pages=shuffle(1,2000000000)", "more than 2^40 elements"},
  };
  for (const auto& [text, reason] : refused) {
    EXPECT_NE(refusal_of(text).find(reason), std::string::npos) << text << ": " << refusal_of(text);
  }
}

RC_GTEST_PROP(ProblemText, AnyTextIsParsedOrRefused, ()) {
  // Damage to a legal text: it must throw UsageError or give a problem that prints and parses as itself.
  std::string text = print(test::any_problem());
  for (int n = test::uniform_in(1, 3); n > 0; --n) {
    const size_t at = test::uniform_in<size_t>(0, text.size() - 1);
    text[at] = "0123456789-=,/[]()@:. abhkqdx"[test::uniform_in(0, 28)];
  }
  try {
    const Problem p = parse_problem(text);
    RC_ASSERT(parse_problem(print(p)) == p);
  } catch (const UsageError&) {
  }
}

TEST(Problem, DefaultScaleIsTheCorrectlyRoundedReciprocalRoot) {
  // Against the midpoints to the neighbours: M^2 d compared with 2^k in 128-bit integers, where midpoint = M 2^(-k/2).
  for (int64_t d = 1; d <= 100000; ++d) {
    Problem p;
    p.head_dim = d;
    const float scale = scale_of(p);
    int exponent = 0;
    const auto significand = int64_t(std::ldexp(std::frexp(scale, &exponent), 24));
    const auto compare = [&](int64_t twice_midpoint) {  // sign of midpoint - 1/sqrt(d)
      const __int128 square = __int128(twice_midpoint) * twice_midpoint * d;
      const __int128 one = __int128(1) << (2 * (25 - exponent));
      return square < one ? -1 : square > one ? 1 : 0;
    };

    ASSERT_GE(compare(2 * significand + 1), 0) << d;
    if (significand != (1 << 23)) {
      ASSERT_LE(compare(2 * significand - 1), 0) << d;
    }
  }
}

TEST(Problem, LengthsOfEntries) {
  const Problem p = parse_problem("b3 q9 seqk=[3,0,17] usedk=[2,0,17] e4m3");
  EXPECT_EQ(slot_length(p.q, 2), 9);
  EXPECT_EQ(used_length(p.q, 2), 9);
  EXPECT_EQ(slot_length(p.k, 0), 3);
  EXPECT_EQ(used_length(p.k, 0), 2);
  EXPECT_EQ(max_used_length(p.k, p.batch), 17);
  EXPECT_EQ(output_dtype(p), DType::bf16);
  EXPECT_EQ(output_dtype(parse_problem("fp16")), DType::fp16);
}

}  // namespace
}  // namespace flashproof
