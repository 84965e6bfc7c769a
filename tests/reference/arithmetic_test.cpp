// The text form of Arithmetic: what is printed can be read back, and a wrong token is named.
#include "reference/arithmetic.h"

#include <gtest/gtest.h>

#include "reference/errors.h"

namespace flashproof {
namespace {

TEST(arithmetic, printed_text_reads_back) {
  for (const char* text :
       {"",
        "tile=64x128 order=descending scores=tc values=tc:32:13:13 levels=2 exp=ex2 arg=fma2 tanh=approximate s=fp32 "
        "prescaled=yes p=e4m3 pscale=8 normalized=each-tile dropout=output rowsum=4 splits=3 division=approximate "
        "ds=bf16 d=exact",
        "tile=128x64 order=ascending scores=tc-pair:2 values=tc-pair:8 levels=1 exp=ex2 arg=fma2 scaled=yes "
        "tanh=accurate "
        "s=fp32 prescaled=no p=e4m3 pscale=8 normalized=no dropout=output rowsum=4 owner=m16n8 splits=1 "
        "division=reciprocal log=polynomial chip=sm_90",
        "tile=1x2147483647 scores=fp32 values=fp32-any levels=1 exp=__expf arg=sub p=fp16 normalized=yes "
        "dropout=weights d=rounded"}) {
    EXPECT_EQ(print(parse_arithmetic(text)), text);
    EXPECT_EQ(parse_arithmetic(print(parse_arithmetic(text))), parse_arithmetic(text));
  }
}

TEST(arithmetic, order_of_tokens_does_not_matter_and_absent_ones_are_unknown) {
  const Arithmetic a = parse_arithmetic("p=bf16  tile=3x5");
  EXPECT_EQ(a, parse_arithmetic("tile=3x5 p=bf16"));
  EXPECT_EQ(a.tile_m, 3);
  EXPECT_EQ(a.tile_n, 5);
  EXPECT_EQ(a.p_format, int(DType::bf16));
  EXPECT_EQ(a.ds_format, -1);
  EXPECT_EQ(a.exponential, Exponential::unknown);
  EXPECT_EQ(parse_arithmetic("scores=tc").scores, (Accumulation{Accumulation::tensor_core, 16, 25, 23}));
  EXPECT_EQ(parse_arithmetic("values=tc-pair:8").values,
            (Accumulation{.kind = Accumulation::tensor_core_pair, .run = 8}));
}

TEST(arithmetic, a_wrong_token_is_named) {
  for (const char* wrong :
       {"tile=64",      "tile=0x4",   "order=up", "scores=tc:16",   "scores=",          "levels=3",
        "exp=exp",      "s=e4m3",     "p=int8",   "pscale=x",       "normalized=maybe", "dropout=both",
        "rowsum=0",     "splits=-1",  "division", "values=tc-pair", "values=tc-pair:3", "scores=tc-pair:32",
        "scaled=maybe", "owner=warp", "log=libm", "chip=sm_70",     "colour=red"}) {
    try {
      parse_arithmetic(wrong);
      ADD_FAILURE() << wrong << " was read";
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find(wrong), std::string::npos) << error.what();
    }
  }
  try {
    parse_arithmetic("ordr=ascending");
    ADD_FAILURE();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("`order=`"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace flashproof
