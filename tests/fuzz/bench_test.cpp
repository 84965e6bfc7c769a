// The tables of fuzz/bench: what they compute on small inputs, and that a wrong number would show.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "fuzz/bench/accuracy_table.h"
#include "fuzz/bench/activations.h"
#include "fuzz/bench/compile_speed.h"
#include "fuzz/bench/plain_attention.h"
#include "fuzz/bench/quartiles.h"
#include "fuzz/cli/options.h"
#include "oracle/value.h"
#include "reference/errors.h"

namespace flashproof {
namespace {

const std::string data_folder = std::string(FLASHPROOF_TEST_DATA) + "/data";

void no_progress(int64_t, int64_t) {}

TEST(Quartiles, AreThoseOfTheSortedNumbers) {
  const Quartiles q = quartiles({5, 1, 4, 2, 3});
  EXPECT_EQ(q.low, 2);
  EXPECT_EQ(q.median, 3);
  EXPECT_EQ(q.high, 4);
  EXPECT_EQ(quartiles({1, 2}).median, 1.5);
  EXPECT_EQ(quartiles({7}).high, 7);
}

// What the oracle's speed is measured against must compute the same thing.
TEST(PlainAttention, IsTheOraclesValue) {
  const Inputs in = make_inputs(parse_case("bf16 q32 k128 d48 seed=3"));
  const PlainHead head{32, 128, 48, double(scale_of(in.problem)), decoded(in.q), decoded(in.k), decoded(in.v)};
  const std::vector<double> o = plain_attention(head);
  const OutputValues exact = value_double(in, {})[OutputId::o];
  ASSERT_EQ(o.size(), exact.mid.size());
  double largest = 0;
  for (size_t n = 0; n < o.size(); ++n) {
    EXPECT_NEAR(o[n], exact.mid[n], 1e-14);
    largest = std::max(largest, std::fabs(exact.mid[n]));
  }
  EXPECT_GT(largest, 0.1);
}

const AccuracyRow& row_of(const std::vector<AccuracyRow>& table, const std::string& format, const std::string& method,
                          const std::string& reference) {
  for (const AccuracyRow& row : table)
    if (row.format == format && row.method == method && row.reference == reference) return row;
  throw std::out_of_range(method);
}

TEST(AccuracyTable, OrdersTheMethodsAsTheirRoundingsDo) {
  const AccuracySettings settings{.keys = {512}, .rows = 64, .head_dim = 64, .seeds = 2};
  const std::vector<AccuracyRow> table = accuracy_table(settings, 1, no_progress);
  ASSERT_EQ(table.size(), 14u);
  const auto median = [&](const char* format, const char* method, const char* reference) {
    return row_of(table, format, method, reference).median();
  };
  EXPECT_LT(median("fp16", "FA2", "rounded"), median("fp16", "FA2", "unrounded"));
  EXPECT_LT(median("fp16", "FA2", "rounded"), median("fp16", "baseline", "rounded"));
  EXPECT_NEAR(median("fp16", "FA3", "rounded") / median("fp16", "FA2", "rounded"), 1, 0.2);
  EXPECT_LT(median("fp8", "FA3", "unrounded"), median("fp8", "no incoherent processing", "unrounded"));
  EXPECT_GT(median("fp8", "FA3", "unrounded"), 10 * median("fp16", "FA3", "unrounded"));
  for (const AccuracyRow& row : table) {
    ASSERT_EQ(row.rmse.size(), 2u);
    EXPECT_LE(row.low(), row.median());
    EXPECT_LE(row.median(), row.high());
    EXPECT_LT(row.low(), row.high()) << "two seeds must be two draws";
  }
}

TEST(AccuracyTable, SaysWhatItDoesNotReproduce) {
  AccuracyRow row{"fp16", "FA2", "rounded", 64, {1e-4, 2e-4, 3e-4}, 2.5e-4};
  EXPECT_TRUE(row.holds_published());
  EXPECT_TRUE(not_reproduced({row}).empty());
  row.published = 4e-4;
  AccuracyRow nearer = row;
  nearer.keys = 128, nearer.rmse = {3e-4, 3e-4, 3e-4};
  AccuracyRow held = row;
  held.reference = "unrounded", held.rmse = {1e-4, 5e-4};
  const std::vector<NotReproduced> list = not_reproduced({row, nearer, held});
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].reference, "rounded");
  EXPECT_EQ(list[0].keys, 128);
  EXPECT_DOUBLE_EQ(list[0].nearest, 3e-4);
}

TEST(Activations, FilesAreReadWithTheirMaskAndShapes) {
  const std::vector<ActivationFile> files = activation_files(data_folder);
  ASSERT_EQ(files.size(), 3u);
  EXPECT_EQ(files[0].name, "minilm_layer00");
  EXPECT_FALSE(files[0].causal);
  EXPECT_TRUE(files[1].causal);
  EXPECT_EQ(files[1].heads, 3);
  EXPECT_EQ(files[1].kv_heads, 1);
  EXPECT_EQ(files[2].seq_q, 322);
  EXPECT_THROW(activation_files("/nonexistent"), UnavailableError);
}

// tests/data/README.md: one head of Whisper's puts 65 % of all attention on key 0.
TEST(Activations, HeadsAreSortedByTheKeyThatGetsMost) {
  std::vector<ActivationFile> files = activation_files(data_folder);
  files.erase(files.begin(), files.begin() + 2);
  const std::vector<HeadRow> rows = head_table(files, 1, no_progress);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_NEAR(rows[0].column, 0.65, 0.01);
  EXPECT_EQ(rows[0].key, 0);
  for (size_t n = 0; n < rows.size(); ++n) {
    EXPECT_GE(rows[0].column, rows[n].column);
    const double* rmse = rows[n].rmse;
    EXPECT_LT(rmse[int(PRounding::bf16)], rmse[int(PRounding::e4m3_scaled)]);
    EXPECT_LE(rmse[int(PRounding::e4m3_scaled)], rmse[int(PRounding::e4m3)]);
    EXPECT_GT(rows[n].worst[int(PRounding::e4m3)], rmse[int(PRounding::e4m3)] / rows[n].size)
        << "the worst row is worse than the mean";
  }
}

TEST(Activations, BoundsHoldAndAreComparedWithNormalData) {
  std::vector<ActivationFile> files = activation_files(data_folder);
  files.erase(files.begin(), files.begin() + 2);
  const TemporaryFolder scratch;
  const BoundTable table = bound_table(files, {"cpu:flash2"}, scratch.path(), 1, no_progress);
  EXPECT_FALSE(table.failed);
  EXPECT_TRUE(table.not_passed.empty()) << table.not_passed[0];
  int64_t backward = 0;
  for (const BoundRow& row : table.rows) {
    EXPECT_EQ(row.cases, 2);
    EXPECT_GT(row.activations, 0);
    EXPECT_LT(row.activations, 1);
    EXPECT_GT(row.normal, 0);
    EXPECT_NE(row.activations, row.normal);
    backward += row.output == OutputId::dk;
  }
  EXPECT_GE(backward, 2);
}

TEST(Activations, ScaleIsWorthMoreWhereItsErrorsAreLarger) {
  std::vector<HeadRow> rows(8);
  for (size_t n = 0; n < rows.size(); ++n) {
    rows[n].rmse[int(PRounding::e4m3_scaled)] = 0.5;
    rows[n].rmse[int(PRounding::e4m3)] = n < 2 ? 2 : 0.75;
  }
  EXPECT_EQ(scale_worth(rows).sinks, 4);
  EXPECT_EQ(scale_worth(rows).others, 1.5);
}

TEST(Activations, RankCorrelationIsSpearmans) {
  std::vector<HeadRow> rows(4);
  for (size_t n = 0; n < rows.size(); ++n) {
    rows[n].column = double(n);
    rows[n].size = 1;
    rows[n].rmse[0] = std::exp(double(n));
    rows[n].rmse[1] = -double(n);
    rows[n].rmse[2] = n == 0 ? 1 : n == 1 ? 0 : double(n);  // one exchange of neighbours: 1 - 6 * 2 / (4 * 15)
  }
  EXPECT_DOUBLE_EQ(rank_correlation(rows, PRounding::bf16), 1);
  EXPECT_DOUBLE_EQ(rank_correlation(rows, PRounding::e4m3_scaled), -1);
  EXPECT_DOUBLE_EQ(rank_correlation(rows, PRounding::e4m3), 0.8);
}

TEST(CompileSpeed, TellsWhatIsRefusedFromWhatCompiles) {
  const auto compile = [](const std::vector<TileConfig>& configs, const std::string& architecture) {
    return compile_each(configs, architecture, [](int64_t) {});
  };
  std::string reason;
  if (run_time_compiler(compiler_places(), reason).empty()) {
    EXPECT_THROW(compile({}, "sm_90a"), UnavailableError);
    GTEST_SKIP() << reason;
  }
  const TileConfig small = {DType::bf16, 16, 16, 2, 1, 32, 32, Features::plain};
  TileConfig odd = small;
  odd.tile_n = 17;
  const auto all = compile({small, odd}, "sm_90a");
  EXPECT_TRUE(all[0].compiled());
  EXPECT_GT(all[0].seconds, 0);
  ASSERT_TRUE(all[0].resources);
  EXPECT_FALSE(all[0].spills());
  EXPECT_EQ(all[1].refused, feasible(odd));
  EXPECT_FALSE(all[1].compiled());
  const auto none = compile({small}, "sm_1");
  EXPECT_FALSE(none[0].compiled());
  EXPECT_EQ(none[0].refused, "");
  EXPECT_NE(none[0].error.find("sm_1"), std::string::npos) << none[0].error;
}

}  // namespace
}  // namespace flashproof
