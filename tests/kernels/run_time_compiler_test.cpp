#include "kernels/run_time_compiler.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <thread>

#include <dlfcn.h>
#include <sys/stat.h>

#include <gtest/gtest.h>

#include "kernels/embedded_sources.h"
#include "kernels/flash2_run_time.h"
#include "kernels/kernel_cache.h"
#include "kernels/loaded_kernel.h"
#include "reference/errors.h"

namespace flashproof {
namespace {

namespace fs = std::filesystem;

const KernelText sum = {.text = R"(#include "kernels/ptx.cuh"
template <int terms>
__global__ void sum(const float* x, float* y) {
  for (int i = 0; i < terms; ++i) y[0] += x[i] * x[i];
}
)",
                        .kernel = "sum<7>"};

/// A folder of its own for each test, as cache; nothing but that differs from what the environment says.
class RunTimeCompiler : public testing::Test {
 protected:
  void SetUp() override {
    std::string reason;
    if (run_time_compiler(compiler_places(), reason).empty()) GTEST_SKIP() << reason;
    std::string pattern = (fs::temp_directory_path() / "flashproof-cache-XXXXXX").string();
    places_ = compiler_places();
    places_.cache = mkdtemp(pattern.data());
  }
  void TearDown() override {
    if (!places_.cache.empty()) fs::remove_all(places_.cache);
  }
  std::vector<fs::path> entries() const { return {fs::directory_iterator(places_.cache), fs::directory_iterator()}; }
  CompilerPlaces places_;
};

TEST_F(RunTimeCompiler, GivesMachineCodeAndWhatItTakes) {
  const CompiledKernel kernel = compile_kernel(sum, places_);
  EXPECT_TRUE(kernel.cubin.starts_with("\177ELF"));
  EXPECT_NE(kernel.cubin.find(kernel.symbol), std::string::npos) << kernel.symbol;
  const auto resources = resources_of(kernel);
  ASSERT_TRUE(resources) << kernel.log;
  EXPECT_GT(resources->registers, 4);
  EXPECT_LT(resources->registers, 64);
  EXPECT_EQ(resources->spill_store_bytes, 0);
}

TEST_F(RunTimeCompiler, SaysWhatIsSpilled) {
  const KernelText greedy = {
      .text = R"(__global__ void __launch_bounds__(1024) greedy(const float* x, float* y, int steps) {
  float a[96];
#pragma unroll
  for (int i = 0; i < 96; ++i) a[i] = x[i * steps + threadIdx.x];
  for (int n = 0; n < steps; ++n)
#pragma unroll
    for (int i = 0; i < 96; ++i) a[i] = a[i] * a[(i + 5) % 96] + x[n];
#pragma unroll
  for (int i = 0; i < 96; ++i) y[i] = a[i];
})",
      .kernel = "greedy"};
  const auto resources = resources_of(compile_kernel(greedy, places_));
  ASSERT_TRUE(resources);
  EXPECT_EQ(resources->registers, 64);  // 65536 registers for 1024 threads
  EXPECT_GT(resources->spill_store_bytes, 0);
  EXPECT_GT(resources->spill_load_bytes, 0);
}

TEST_F(RunTimeCompiler, CompilesOnceWhatIsAskedForTwice) {
  const CompiledKernel first = compile_kernel(sum, places_), second = compile_kernel(sum, places_);
  EXPECT_FALSE(first.cached);
  EXPECT_TRUE(second.cached);
  EXPECT_TRUE(first.cubin == second.cubin);
  EXPECT_EQ(first.symbol, second.symbol);
  EXPECT_EQ(first.log, second.log);
  EXPECT_EQ(entries().size(), 1u);
}

TEST_F(RunTimeCompiler, KeepsWhatDiffersApart) {
  KernelText other = sum;
  other.kernel = "sum<8>";
  KernelText chip = sum;
  chip.architecture = "sm_80";
  KernelText comment = sum;
  comment.text += "// more\n";
  for (const KernelText& kernel : {sum, other, chip, comment}) EXPECT_FALSE(compile_kernel(kernel, places_).cached);
  EXPECT_EQ(entries().size(), 4u);
}

TEST_F(RunTimeCompiler, CompilesAgainWhatIsDamaged) {
  compile_kernel(sum, places_);
  const fs::path entry = entries().front();
  std::ifstream file(entry, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(file), {}};
  std::string flipped = whole;
  flipped[whole.size() / 2] ^= 1;
  for (const std::string& damaged : {flipped, whole.substr(0, whole.size() - 1), whole.substr(0, 30), std::string()}) {
    std::ofstream(entry, std::ios::binary) << damaged;
    const CompiledKernel again = compile_kernel(sum, places_);
    EXPECT_FALSE(again.cached) << damaged.size();
    EXPECT_TRUE(again.cubin.starts_with("\177ELF"));
    const CompiledKernel kept = compile_kernel(sum, places_);
    EXPECT_TRUE(kept.cached);
    EXPECT_TRUE(kept.cubin == again.cubin);
  }
}

TEST_F(RunTimeCompiler, CompilesAgainWhatIsNoFile) {
  compile_kernel(sum, places_);
  const fs::path entry = entries().front();
  fs::remove(entry);
  ASSERT_EQ(mkfifo(entry.c_str(), 0600), 0);
  EXPECT_FALSE(compile_kernel(sum, places_).cached);
  EXPECT_TRUE(compile_kernel(sum, places_).cached) << "the entry took the pipe's place";
  fs::remove(entry);
  fs::create_directory(entry);
  EXPECT_NE(write_cached(places_.cache, entry.stem(), {}), "") << "a folder stays";
  EXPECT_FALSE(read_cached(places_.cache, entry.stem()));
  EXPECT_EQ(entries().size(), 1u) << "and no draft is left";
}

TEST_F(RunTimeCompiler, CompilesWhereNothingCanBeKept) {
  CompilerPlaces nowhere = places_;
  nowhere.cache = places_.cache + "/file/folder";
  std::ofstream(places_.cache + "/file") << "in the way";
  testing::internal::CaptureStderr();
  for (int n = 0; n < 2; ++n) EXPECT_FALSE(compile_kernel(sum, nowhere).cached);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find(nowhere.cache), std::string::npos) << said;
  EXPECT_EQ(said.find("flashproof:"), said.rfind("flashproof:")) << "said once: " << said;
}

TEST_F(RunTimeCompiler, QuotesTheCompiler) {
  const auto refusal = [this](const KernelText& kernel) -> std::string {
    try {
      compile_kernel(kernel, places_);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  };
  KernelText wrong = sum;
  wrong.text = "#include \"kernels/ptx.cuh\"\n__global__ void wrong() { missing(); }\n";
  wrong.kernel = "wrong";
  EXPECT_NE(refusal(wrong).find("kernel.cu(2): error: identifier \"missing\" is undefined"), std::string::npos)
      << refusal(wrong);
  wrong = sum;
  wrong.kernel = "product<7>";
  EXPECT_NE(refusal(wrong).find("product"), std::string::npos) << refusal(wrong);
  wrong = sum;
  wrong.architecture = "sm_1";
  EXPECT_NE(refusal(wrong).find("sm_1"), std::string::npos) << refusal(wrong);
  EXPECT_TRUE(entries().empty());
}

/// The source's a*b+c is two roundings: as much code as the product and the sum written out, more than a fused one.
TEST_F(RunTimeCompiler, ContractsNothing) {
  const auto code_bytes = [this](const std::string& expression) {
    const std::string body = "#pragma unroll\n  for (int i = 0; i < 64; ++i) x[i] = " + expression + ";\n";
    return compile_kernel({.text = "__global__ void f(float* x) {\n" + body + "}\n", .kernel = "f"}, places_)
        .cubin.size();
  };
  const size_t separate = code_bytes("__fadd_rn(__fmul_rn(x[i], x[i + 64]), x[i + 128])");
  EXPECT_EQ(code_bytes("x[i] * x[i + 64] + x[i + 128]"), separate);
  EXPECT_LT(code_bytes("__fmaf_rn(x[i], x[i + 64], x[i + 128])"), separate);
}

TEST_F(RunTimeCompiler, TakesEachDeviceHeaderAlone) {
  ASSERT_GT(embedded_sources().count, 1);
  for (const EmbeddedSource& source : embedded_sources()) {
    const KernelText alone = {.text = "#include \"" + std::string(source.path) + "\"\n__global__ void empty() {}\n",
                              .kernel = "empty"};
    try {
      EXPECT_EQ(compile_kernel(alone, places_).symbol, "_Z5emptyv");
    } catch (const std::runtime_error& error) {
      ADD_FAILURE() << source.path << ": " << error.what();
    }
  }
}

TEST_F(RunTimeCompiler, TakesATileOfFlash2) {
  const TileConfig tile = {DType::e4m3, 48, 32, 3, 3, 64, 64, Features::general};
  ASSERT_EQ(feasible(tile), nullptr);
  const CompiledKernel kernel = compile_kernel(flash2::kernel_text(tile, "sm_90a"), places_);
  EXPECT_TRUE(resources_of(kernel)) << kernel.log;
  TileConfig wrong = tile;
  wrong.tile_n = 16;
  EXPECT_THROW(compile_kernel(flash2::kernel_text(wrong, "sm_90a"), places_), std::runtime_error);
}

/// A call that follows supports() finds the machine code in the process, whether or not a cache keeps it.
TEST_F(RunTimeCompiler, KeepsTheCodeOfATileInTheProcess) {
  const TileConfig tile = {DType::bf16, 16, 16, 2, 1, 32, 32, Features::plain};
  const CompiledKernel* found[2] = {};
  std::thread threads[2];
  for (int n = 0; n < 2; ++n) threads[n] = std::thread([&, n] { found[n] = &flash2::run_time_code(tile, "sm_90a"); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(found[0], found[1]);
  EXPECT_TRUE(found[0]->cubin.starts_with("\177ELF"));
  EXPECT_NE(&flash2::run_time_code(tile, "sm_80"), found[0]);
  for (int n = 0; n < 2; ++n)
    EXPECT_THROW(flash2::run_time_code(tile, "sm_95a"), std::runtime_error) << "tried again: a failure is not kept";
}

TEST(Flash2RunTime, DrawsTilesThatEveryBf16ProblemOfDim128Takes) {
  const std::string list = flash2::random_tiles(flash2::random_tile_count);
  flashproof_problem p = {};
  p.dtype = FLASHPROOF_BF16;
  p.head_dim = 128, p.value_dim = 72;
  std::istringstream words(list);
  std::set<std::string> different;
  for (std::string word; std::getline(words, word, ',');) {
    different.insert(word);
    const flash2::Config config = flash2::parse_config(("tile=" + word).c_str(), false);
    const TileConfig tile = flash2::run_time_config(p, config, Features::general);
    EXPECT_EQ(tile.tile_n, config.tile_n);
    EXPECT_EQ(tile.head_dim, 128);
    EXPECT_EQ(tile.value_dim, 128);
  }
  EXPECT_EQ(different.size(), size_t(flash2::random_tile_count));
}

TEST(Flash2RunTime, CompilesFewerThan200KernelsForAllThatIsFuzzed) {
  std::istringstream words(flash2::random_tiles(flash2::random_tile_count));
  std::set<std::string> kernels;
  for (std::string word; std::getline(words, word, ',');)
    for (int dtype : {FLASHPROOF_BF16, FLASHPROOF_FP16, FLASHPROOF_E4M3, FLASHPROOF_E5M2})
      for (Features features : {Features::plain, Features::general})
        for (int64_t dim = 8; dim <= 256; dim += 8) {
          flashproof_problem p = {};
          p.dtype = dtype, p.head_dim = dim, p.value_dim = 16;
          try {
            const flash2::Config config = flash2::parse_config(("tile=" + word).c_str(), false);
            kernels.insert(flash2::print(flash2::run_time_config(p, config, features)));
          } catch (const Rejected&) {  // too large for these dims, or for fp8 no multiple of 32 keys
          }
        }
  EXPECT_GT(kernels.size(), 100u);
  EXPECT_LT(kernels.size(), 200u);
}

TEST(Flash2RunTime, RefusesWhatIsNotFeasible) {
  flashproof_problem p = {};
  p.dtype = FLASHPROOF_BF16;
  p.head_dim = p.value_dim = 200;
  try {
    flash2::run_time_config(p, flash2::parse_config("tile=32x128x4x2", false), Features::plain);
    FAIL();
  } catch (const Rejected& reason) {
    EXPECT_NE(std::string(reason.what()).find("tile 32x128x4x2: the tiles need more shared memory"), std::string::npos)
        << reason.what();
  }
}

/// Every field takes several values, and some draws are feasible.
TEST(Flash2RunTime, DrawsEveryField) {
  std::set<int> values[8];
  int possible = 0;
  for (uint64 index = 0; index < 500; ++index) {
    const TileConfig c = flash2::random_config(7, index);
    EXPECT_EQ(flash2::print(c), flash2::print(flash2::random_config(7, index)));
    const int fields[] = {int(c.dtype), c.warps,    warp_rows(c), c.tile_n,
                          c.stages,     c.head_dim, c.value_dim,  int(c.features)};
    for (size_t n = 0; n < std::size(fields); ++n) values[n].insert(fields[n]);
    possible += feasible(c) == nullptr;
  }
  const size_t sizes[] = {4, 8, 2, 16, 5, 7, 7, 2};
  for (size_t n = 0; n < std::size(sizes); ++n) EXPECT_EQ(values[n].size(), sizes[n]) << n;
  EXPECT_GT(possible, 50);
  EXPECT_LT(possible, 450);
}

TEST(LaunchableKernel, SaysWhyItCannotBeLoaded) {
  if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) != nullptr) GTEST_SKIP() << "this machine has a CUDA driver";
  try {
    load_kernel({}, 0);
    FAIL();
  } catch (const UnavailableError& error) {
    EXPECT_STREQ(error.what(), "no CUDA driver (libcuda.so.1)");
  }
  EXPECT_THROW(device_architecture(), UnavailableError);
}

TEST(RunTimeCompilerLibrary, SaysWhyThereIsNone) {
  const CompilerPlaces nowhere = {"/nonexistent/libnvrtc.so", ""};
  std::string reason;
  EXPECT_EQ(run_time_compiler(nowhere, reason), "");
  EXPECT_NE(reason.find("/nonexistent/libnvrtc.so: cannot open"), std::string::npos) << reason;
  EXPECT_THROW(compile_kernel(sum, nowhere), UnavailableError);
  const CompilerPlaces other = {"libm.so.6", ""};
  EXPECT_EQ(run_time_compiler(other, reason), "");
  EXPECT_NE(reason.find("libm.so.6 lacks nvrtc"), std::string::npos) << reason;
}

TEST(KernelResources, AreThoseOfTheKernelNamed) {
  const auto entry = [](const std::string& name, const std::string& numbers) {
    return "ptxas info    : Compiling entry function '" + name +
           "' for 'sm_90a'\nptxas info    : Function properties for " + name + "\nptxas         .     " + numbers +
           ", used 1 barriers\n";
  };
  CompiledKernel kernel;
  kernel.symbol = "b";
  kernel.log =
      entry("a", "8 bytes stack frame, 4 bytes spill stores, 5 bytes spill loads\nptxas info    : Used 30 registers") +
      entry("b",
            "16 bytes stack frame, 12 bytes spill stores, 20 bytes spill loads\nptxas info    : Used 255 registers");
  const auto resources = resources_of(kernel);
  ASSERT_TRUE(resources);
  EXPECT_EQ(resources->registers, 255);
  EXPECT_EQ(resources->stack_bytes, 16);
  EXPECT_EQ(resources->spill_store_bytes, 12);
  EXPECT_EQ(resources->spill_load_bytes, 20);
  for (const char* log :
       {"", "Compiling entry function 'b'", "Compiling entry function 'b'\nFunction properties for b\nUsed ",
        "Compiling entry function 'b'\nFunction properties for b\nnone\nUsed 7 registers"}) {
    kernel.log = log;
    EXPECT_FALSE(resources_of(kernel)) << log;
  }
}

TEST(CompilerPlaces, FollowTheEnvironment) {
  const char* names[] = {"FLASHPROOF_NVRTC", "FLASHPROOF_CACHE", "XDG_CACHE_HOME", "HOME"};
  std::vector<std::optional<std::string>> before;
  for (const char* name : names) {
    const char* value = std::getenv(name);
    before.push_back(value == nullptr ? std::nullopt : std::optional<std::string>(value));
    unsetenv(name);
  }
  EXPECT_EQ(compiler_places().cache, "");
  setenv("HOME", "/home/a", 1);
  EXPECT_EQ(compiler_places().cache, "/home/a/.cache/flashproof");
  setenv("XDG_CACHE_HOME", "/caches", 1);
  EXPECT_EQ(compiler_places().cache, "/caches/flashproof");
  setenv("FLASHPROOF_CACHE", "/here", 1);
  EXPECT_EQ(compiler_places().cache, "/here");
  EXPECT_EQ(compiler_places().library, "");
  setenv("FLASHPROOF_NVRTC", "/there/libnvrtc.so", 1);
  EXPECT_EQ(compiler_places().library, "/there/libnvrtc.so");
  for (size_t n = 0; n < std::size(names); ++n)
    if (before[n]) {
      setenv(names[n], before[n]->c_str(), 1);
    } else {
      unsetenv(names[n]);
    }
}

}  // namespace
}  // namespace flashproof
