#include "kernels/run_time_compiler.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>

#include "kernels/embedded_sources.h"
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
