// The drawing of cases: a pure function of seed and index, legal, within the kernel's capabilities, and reaching every
// cell.
#include "fuzz/generate.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <thread>

#include "reference/errors.h"
#include "reference/safetensors.h"

namespace flashproof {
namespace {

TEST(Generate, IsAFunctionOfSeedAndIndex) {
  const LoadedKernel& kernel = load_kernel("cpu:flash2");
  for (uint64_t index = 0; index < 50; ++index) {
    const Drawn first = generate(kernel, Range{}, 7, index), second = generate(kernel, Range{}, 7, index);
    EXPECT_EQ(print(first.c), print(second.c));
    EXPECT_EQ(first.config, second.config);
  }
  EXPECT_NE(print(generate(kernel, Range{}, 7, 0).c), print(generate(kernel, Range{}, 8, 0).c));
}

TEST(Generate, MayBeCalledFromSeveralThreads) {
  const LoadedKernel& kernel = load_kernel("cpu:flash2");
  std::vector<std::string> texts(800);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (size_t index = t; index < texts.size(); index += 8)
        texts[index] = print(generate(kernel, Range{}, 7, index).c);
    });
  for (std::thread& thread : threads) thread.join();
  for (size_t index = 0; index < texts.size(); ++index)
    ASSERT_EQ(texts[index], print(generate(kernel, Range{}, 7, index).c));
}

TEST(Generate, DrawsLegalProblemsThatTheKernelTakes) {
  const LoadedKernel& kernel = load_kernel("cpu:flash2");
  std::set<std::string> texts;
  int rejected = 0;
  for (uint64_t index = 0; index < 500; ++index) {
    const Drawn drawn = generate(kernel, Range{}, 3, index);
    ASSERT_NO_THROW(validate(drawn.c.problem)) << print(drawn.c.problem);
    EXPECT_EQ(needed_features(drawn.c.problem) & ~kernel.table->features, 0u) << print(drawn.c.problem);
    std::string reason;
    rejected += !supports(kernel, drawn.c.problem, drawn.config, reason);
    texts.insert(print(drawn.c));
  }
  EXPECT_EQ(rejected, 0);
  EXPECT_GT(texts.size(), 495u);
}

TEST(Generate, VisitsNearlyAllCells) {
  const LoadedKernel& kernel = load_kernel("cpu:flash2");
  Coverage coverage;
  for (uint64_t index = 0; index < 20000; ++index) {
    const Drawn drawn = generate(kernel, Range{}, 5, index);
    coverage.visit(drawn.c.problem, drawn.tile);
  }
  const Coverage::Summary cells = coverage.summary({kernel});
  EXPECT_GE(double(cells.visited), 0.95 * double(cells.feasible)) << "emptiest: " << cells.emptiest.front();
}

TEST(Generate, KeepsTheCostNearTheRange) {
  const LoadedKernel& kernel = load_kernel("cpu:flash2");
  double largest = 0;
  for (uint64_t index = 0; index < 1000; ++index) {
    const Problem p = generate(kernel, Range{1e5, {}}, 9, index).c.problem;
    double pairs = 0;
    for (int64_t b = 0; b < p.batch; ++b) pairs += double(used_length(p.q, b)) * double(used_length(p.k, b));
    largest = std::max(largest, pairs * double(p.heads));
  }
  EXPECT_LT(largest, 5e6);
}

/// Of 4000 cases, so that a share of one half is known within 0.024 (three standard deviations), one of 0.014 within
/// 0.006.
struct Shares {
  double several_tiles = 0;  ///< of the tile that was drawn: at least 3 of keys and 2 of rows in one entry
  double long_keys = 0;      ///< at least 4096 keys
  double rejected = 0;
};
Shares shares_of(const LoadedKernel& kernel, double work = Range{}.work) {
  constexpr double part = 1.0 / 4000;
  Shares shares;
  for (uint64_t index = 0; index < 4000; ++index) {
    const Drawn drawn = generate(kernel, Range{work, {}}, 12, index);
    const Problem& p = drawn.c.problem;
    bool several = false;
    for (int64_t b = 0; b < p.batch; ++b)
      several |= used_length(p.q, b) > drawn.tile.m && used_length(p.k, b) > 2 * drawn.tile.n;
    shares.several_tiles += several * part;
    shares.long_keys += (max_used_length(p.k, p.batch) >= 4096) * part;
    std::string reason;
    shares.rejected += !supports(kernel, p, drawn.config, reason) * part;
  }
  return shares;
}

TEST(Generate, HalfOfTheCasesHaveSeveralTiles) {
  for (const char* name : {"sim:flash2", "cpu:flash2", "cpu:decode"}) {
    const Shares shares = shares_of(load_kernel(name));
    EXPECT_GT(shares.several_tiles, 0.5) << name;
    EXPECT_LT(shares.several_tiles, 0.65) << name;
    EXPECT_LT(shares.long_keys, 0.004) << name;
    EXPECT_LT(shares.rejected, 0.03) << name;
    if (std::string(name) == "sim:flash2") {
      EXPECT_GT(shares.rejected, 0) << "what a kernel refuses is drawn, too";
    }
  }
}

TEST(Generate, GivesUpSeveralTilesWhereTheyCostTooMuch) {
  // cpu:standard takes all rows and keys at once and is drawn for tiles of 64 x 64: at least 65 x 129 x 2
  // multiply-adds.
  EXPECT_LT(shares_of(load_kernel("cpu:standard"), 1e4).several_tiles, 0.2);
  EXPECT_GT(shares_of(load_kernel("cpu:standard"), 1e5).several_tiles, 0.5);
}

/// A kernel of a GPU, so far as the drawing of cases sees it: with the tile that its config names, or 128 x 64.
flashproof_kernel device_kernel() {
  flashproof_kernel table = *load_kernel("sim:flash2").table;
  table.memory = FLASHPROOF_CUDA;
  table.tunables = "tile=64x64,128x64,128x128,64x256,256x128";
  table.supports = [](const flashproof_problem*, const char*, char*, size_t) { return FLASHPROOF_OK; };
  table.arithmetic = [](const flashproof_problem*, const char* config) { return *config ? config : "tile=128x64"; };
  return table;
}

TEST(Generate, OneInAHundredOfAGpuKernelHas4096Keys) {
  const flashproof_kernel table = device_kernel();
  const Shares shares = shares_of({"gpu", "", "", &table});
  EXPECT_GT(shares.several_tiles, 0.5);
  EXPECT_LT(shares.several_tiles, 0.65);
  EXPECT_GT(shares.long_keys, 0.01);
  EXPECT_LT(shares.long_keys, 0.02);
}

TEST(Generate, PrefersConfigsThatTheKernelHasForTheHeadDims) {
  flashproof_kernel table = device_kernel();
  table.tunables = "tile=64x64,32x32";
  table.arithmetic = [](const flashproof_problem* p, const char* config) {
    const bool taken = *config == 0 || p->head_dim <= 64 || std::string(config) == "tile=32x32";
    return !taken ? "" : *config ? config : "tile=64x64";
  };
  const LoadedKernel kernel{"gpu", "", "", &table};
  int wide = 0, refused = 0;
  for (uint64_t index = 0; index < 2000; ++index) {
    const Drawn drawn = generate(kernel, Range{1e9, {}}, 12, index);
    wide += drawn.c.problem.head_dim > 64;
    refused += drawn.c.problem.head_dim > 64 && drawn.config == "tile=64x64";
  }
  EXPECT_GT(wide, 200);
  EXPECT_GT(refused, 0) << "what a kernel refuses is drawn, too";
  EXPECT_LT(refused, 0.3 * wide) << "of one draw it would be 2/3 x 7/8, of three it is the third power";
}

TEST(Generate, RefusesTunablesThatAreNoneOrTooMany) {
  flashproof_kernel table = {};
  const LoadedKernel kernel{"mine", "", "", &table};
  table.tunables = "tile_m=16:64:16 tile_n=4,8";
  ASSERT_EQ(parse_tunables(kernel).size(), 2u);
  EXPECT_EQ(parse_tunables(kernel)[0].values, (std::vector<std::string>{"16", "32", "48", "64"}));
  table.tunables = "tile=16x32,8x8";
  EXPECT_EQ(parse_tunables(kernel)[0].values, (std::vector<std::string>{"16x32", "8x8"}));
  table.tunables = "a=0:9223372036854775807:4611686018427387904";
  EXPECT_EQ(parse_tunables(kernel)[0].values.size(), 2u);
  for (const char* wrong : {"tile", "tile=", "a=1:2:0", "a=2:1:1", "a=0:9223372036854775807:1"}) {
    table.tunables = wrong;
    EXPECT_THROW(parse_tunables(kernel), UnavailableError) << wrong;
  }
}

TEST(Generate, RefusesDataFilesWithoutQKV) {
  const std::string path = (std::filesystem::temp_directory_path() / "flashproof-no-qkv.safetensors").string();
  SafeTensors file;
  file.tensors["Q"] = {"F32", {1, 2, 4}, std::vector<uint8_t>(32)};
  file.tensors["K"] = file.tensors["V"] = file.tensors["Q"];
  write_safetensors(path, file);
  EXPECT_NO_THROW(validate(FileData{path, "", 0, 0, 0}));
  file.tensors["V"] = {"F32", {1, 0, 4}, {}};
  write_safetensors(path, file);
  EXPECT_THROW(validate(FileData{path, "", 0, 0, 0}), UsageError);
  file.tensors.erase("V");
  write_safetensors(path, file);
  EXPECT_THROW(validate(FileData{path, "", 0, 0, 0}), UsageError);
  std::filesystem::remove(path);
}

TEST(Coverage, EdgesAreTriedInOrder) {
  EXPECT_EQ(edge_of(0, 64), Edge::zero);
  EXPECT_EQ(edge_of(1, 64), Edge::one);
  EXPECT_EQ(edge_of(1, 1), Edge::one);
  EXPECT_EQ(edge_of(63, 64), Edge::below);
  EXPECT_EQ(edge_of(64, 64), Edge::exact);
  EXPECT_EQ(edge_of(65, 64), Edge::above);
  EXPECT_EQ(edge_of(30, 64), Edge::inside);
  EXPECT_EQ(edge_of(192, 64), Edge::multiple);
  EXPECT_EQ(edge_of(100, 64), Edge::ragged);
}

TEST(Coverage, CountsAPairOnlyWithBothFeatures) {
  const LoadedKernel& kernel = load_kernel("cpu:flash2");
  Coverage coverage;
  coverage.visit(parse_problem("bf16 q64 k65 d8"), TileShape{64, 64});
  EXPECT_EQ(coverage.summary({kernel}).visited, 0);
  coverage.visit(parse_problem("bf16 q64 k65 d8 causal"), TileShape{64, 64});
  EXPECT_EQ(coverage.summary({kernel}).visited, 2);  // bf16 x causal on the query and on the key side
}

}  // namespace
}  // namespace flashproof
