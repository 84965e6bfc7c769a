// What campaigns write can be read back, damage is named, and a newer version is refused.
#include "fuzz/record.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "reference/errors.h"

namespace flashproof {
namespace {

Verdict failing_verdict() {
  Verdict v;
  v.check = "bound", v.status = Status::fail, v.kind = "value", v.ratio = std::numeric_limits<double>::infinity();
  v.where = {OutputId::dk, 17, 1, 2, 0, 3};
  v.why = "dK[b=1 i=2 h=0 c=3]: observed \"nan\"\nand more";
  v.assumed = "tile unknown";
  v.ratios = {{OutputId::o, 0x1.8p-3, 5, 0x1.8p-10, 0x1p-7, 0x1p-8},
              {OutputId::dk, std::numeric_limits<double>::infinity(), 17}};
  v.judged = 99, v.undecided = 1;
  v.power = {{"zeros", true}, {"one key dropped", false}};
  return v;
}

Record failing_record() {
  Record r;
  r.index = 41, r.kernel = "cpu:flash2", r.config = "tile_m=16", r.text = "bf16 q4 k8 d16 data=normal seed=0",
  r.id = "0123456789abcdef";
  Verdict passing;
  passing.check = "readout";
  r.verdicts = {passing, failing_verdict()};
  r.arithmetic = "tile=16x16", r.tile_m = 16, r.tile_n = 32;
  r.kernel_seconds = 0.25, r.oracle_seconds = 0.5;
  return r;
}

TEST(Record, IsReadBackWhole) {
  const std::string line = print(failing_record());
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const Record back = parse_record(line);
  EXPECT_EQ(print(back), line);
  EXPECT_EQ(back.status(), Status::fail);
  ASSERT_EQ(back.verdicts.size(), 2u);
  const Verdict& v = back.verdicts[1];
  EXPECT_TRUE(std::isinf(v.ratio));
  EXPECT_EQ(v.where.output, OutputId::dk);
  EXPECT_EQ(v.where.index, 17);
  EXPECT_EQ(v.ratios[0].ratio, 0x1.8p-3);
  EXPECT_EQ(v.ratios[0].error, 0x1.8p-10);
  EXPECT_EQ(v.ratios[0].bound, 0x1p-7);
  EXPECT_EQ(v.ratios[0].ulp, 0x1p-8);
  EXPECT_EQ(v.ratios[1].ulp, 0) << "no number came";
  EXPECT_EQ(back.arithmetic, "tile=16x16");
  EXPECT_EQ(back.tile_n, 32);
  EXPECT_EQ(v.why, failing_verdict().why);
  EXPECT_EQ(v.power.size(), 2u);
  EXPECT_EQ(v.judged, 99);
  EXPECT_EQ(v.undecided, 1);
}

TEST(Record, DamageIsAUsageErrorThatSaysWhat) {
  const std::string line = print(failing_record());
  for (size_t cut = 0; cut < line.size(); cut += 7) EXPECT_THROW(parse_record(line.substr(0, cut)), UsageError) << cut;
  for (const char* wrong : {"", "[]", "null", "{}", "{\"format\":\"flashproof-case\",\"version\":1}",
                            "{\"format\":\"other\",\"version\":1}"})
    EXPECT_THROW(parse_record(wrong), UsageError) << wrong;
  for (const char* index : {"\"x\"", "4.5", "true", "99999999999999999999", "9223372036854775808"}) {
    std::string wrong_index = line;
    wrong_index.replace(wrong_index.find("41"), 2, index);
    EXPECT_THROW(parse_record(wrong_index), UsageError) << index;
  }
  std::string wrong_status = line;
  wrong_status.replace(wrong_status.find("\"status\":\"pass\""), 15, "\"status\":\"fine\"");
  EXPECT_THROW(parse_record(wrong_status), UsageError);
}

TEST(Record, ANewerVersionIsRefusedWithWhatToDo) {
  std::string line = print(failing_record());
  line.replace(line.find("\"version\":1"), 11, "\"version\":2");
  try {
    parse_record(line);
    FAIL() << "a newer version was read";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("update Flashproof"), std::string::npos) << error.what();
  }
}

TEST(Record, ManifestsAndWitnessesAreReadBackWhole) {
  Manifest m;
  m.seed = std::numeric_limits<uint64_t>::max(), m.cases = 7, m.seconds = 60.5, m.work = 3e6;
  m.kernels = {"cpu:flash2", "./mine.so"}, m.kernel_hashes = {"1", "2"}, m.checks = {"bound"}, m.data = {"tests/data"};
  m.program_version = "0.1.0", m.compiler = "GNU", m.machine = "x", m.gpu = "", m.started = "2026-01-01T00:00:00Z";
  EXPECT_EQ(print(parse_manifest(print(m))), print(m));
  const std::string without = print(m);
  m.kernel_features = {3, 4}, m.kernel_dtypes = {1, 0};
  EXPECT_EQ(print(parse_manifest(print(m))), print(m));
  EXPECT_EQ(parse_manifest(print(m)).kernel_features, m.kernel_features);
  EXPECT_EQ(without.find("kernel_features"), std::string::npos) << "the id of an older manifest must stay its own";
  EXPECT_EQ(citable_id(parse_manifest(print(m))), citable_id(m));
  Manifest other = m;
  other.seed = 1;
  EXPECT_NE(citable_id(other), citable_id(m));
  EXPECT_THROW(parse_manifest(print(failing_record())), UsageError);
  other.kernel_hashes.pop_back();
  EXPECT_THROW(parse_manifest(print(other)), UsageError);

  Witness w;
  w.bucket = "cpu-flash2.bound.value.dK", w.kernel = "cpu:flash2", w.text = "bf16 q1 k1 d1", w.id = "0",
  w.verdict = failing_verdict();
  w.replay = "./flashproof replay --kernel cpu:flash2 'bf16 q1 k1 d1'", w.reduce_seconds = 1.5, w.reduce_runs = 12;
  EXPECT_EQ(print(parse_witness(print(w))), print(w));
}

TEST(Record, HexFloatsLoseNothing) {
  for (const double x : {0.0, 1.0 / 3, -0x1p-1074, 0x1.fffffffffffffp1023, 1e300})
    EXPECT_EQ(parse_hex_float(hex_float(x)), x);
  EXPECT_TRUE(std::isinf(parse_hex_float(hex_float(INFINITY))));
  EXPECT_TRUE(std::isnan(parse_hex_float(hex_float(NAN))));
}

}  // namespace
}  // namespace flashproof
