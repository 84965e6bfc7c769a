// Each device header stands alone: what it needs it includes, under the host compiler and nvcc. NVRTC:
// run_time_compiler_test.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include "kernels/embedded_sources.h"

namespace flashproof {
namespace {

namespace fs = std::filesystem;

/// Runs `compiler` on a file of that ending that includes the header and nothing else; "" or what the compiler said.
std::string complaint(const std::string& compiler, const char* ending, const std::string& header) {
  std::string folder = (fs::temp_directory_path() / "flashproof-header-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return "no temporary folder";
  const fs::path source = fs::path(folder) / (std::string("alone") + ending), log = fs::path(folder) / "log";
  std::ofstream(source) << "#include \"" << header << "\"\n";
  const std::string command = compiler + " -std=c++20 -I\"" FLASHPROOF_TEST_DATA "/..\" \"" + source.string() +
                              "\" -o \"" + (fs::path(folder) / "out").string() + "\" >\"" + log.string() + "\" 2>&1";
  const bool failed = std::system(command.c_str()) != 0;
  std::ifstream file(log);
  const std::string said{std::istreambuf_iterator<char>(file), {}};
  fs::remove_all(folder);
  return failed ? command + "\n" + said : "";
}

constexpr char host[] =
    "\"" FLASHPROOF_TEST_CXX "\" -fsyntax-only -Wall -Wextra -Werror -Wno-unknown-pragmas -ffp-contract=off";
constexpr char device[] = "\"" FLASHPROOF_TEST_NVCC "\" -cubin -arch=sm_90a --fmad=false";

TEST(DeviceHeaders, StandAloneUnderTheHostCompiler) {
  for (const EmbeddedSource& source : embedded_sources()) {
    const std::string said = complaint(host, ".cpp", source.path);
    EXPECT_TRUE(said.empty()) << said;
  }
  EXPECT_NE(complaint(host, ".cpp", "kernels/none.h"), "");
}

TEST(DeviceHeaders, StandAloneUnderNvcc) {
  if (*FLASHPROOF_TEST_NVCC == 0) GTEST_SKIP() << "this build has no CUDA compiler";
  for (const EmbeddedSource& source : embedded_sources()) {
    const std::string said = complaint(device, ".cu", source.path);
    EXPECT_TRUE(said.empty()) << said;
  }
  EXPECT_NE(complaint(device, ".cu", "kernels/none.h"), "");
}

/// The README compiles a user's kernel with kernels/ on the include path, where no file may have the name of one that
/// CUDA's own headers include.
TEST(DeviceHeaders, FolderOnTheIncludePathOfNvcc) {
  if (*FLASHPROOF_TEST_NVCC == 0) GTEST_SKIP() << "this build has no CUDA compiler";
  const std::string said =
      complaint(std::string(device) + " -I\"" FLASHPROOF_TEST_DATA "/../kernels\"", ".cu", "flashproof_kernel.h");
  EXPECT_TRUE(said.empty()) << said;
}

}  // namespace
}  // namespace flashproof
