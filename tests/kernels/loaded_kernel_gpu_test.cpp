// Kernels compiled at run time, on the GPU, and the launcher that takes them. Builds with CUDA only; what needs a GPU
// or NVRTC is skipped where there is none.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include "kernels/builtin.h"
#include "kernels/loaded_kernel.h"
#include "tests/kernels/device_numbers.h"
#include "tests/kernels/small_call.h"

namespace flashproof {
namespace {

struct Argument {
  float* x;
  float factor;
};

/// Each thread scales one number, by way of as much dynamic shared memory as a block gets only where it is asked for.
TEST(LaunchableKernel, RunsWithSharedMemoryOverTheDefault) {
  std::string reason;
  if (on_device::device_name(reason).empty()) GTEST_SKIP() << "no GPU: " << reason;
  if (run_time_compiler(compiler_places(), reason).empty()) GTEST_SKIP() << reason;
  constexpr unsigned shared_bytes = 96 << 10, blocks = 3, threads = 64;
  float* x = nullptr;
  ASSERT_EQ(cudaMallocManaged(&x, blocks * threads * sizeof(float)), cudaSuccess);
  for (unsigned n = 0; n < blocks * threads; ++n) x[n] = float(n);

  const KernelText scale = {.text = R"(struct Argument { float* x; float factor; };
__global__ void scale(const Argument a) {
  extern __shared__ float tile[];
  const unsigned n = blockIdx.y * blockDim.x + threadIdx.x, last = (96 << 10) / 4 - 1 - threadIdx.x;
  tile[last] = a.x[n];
  __syncthreads();
  a.x[n] = a.factor * tile[last];
})",
                            .kernel = "scale",
                            .architecture = device_architecture()};
  const LaunchableKernel kernel = load_kernel(compile_kernel(scale), shared_bytes);
  const Argument argument = {x, 3};
  launch_kernel(kernel, {1, blocks, 1}, threads, &argument, nullptr);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  for (unsigned n = 0; n < blocks * threads; ++n) EXPECT_EQ(x[n], 3 * float(n));
  EXPECT_EQ(cudaFree(x), cudaSuccess);
  EXPECT_THROW(launch_kernel(kernel, {1, 1, 1}, 4096, &argument, nullptr), std::runtime_error);
}

TEST(LaunchableKernel, SaysWhatTheDriverSays) {
  std::string reason;
  if (on_device::device_name(reason).empty()) GTEST_SKIP() << "no GPU: " << reason;
  ASSERT_EQ(cudaFree(nullptr), cudaSuccess);  // makes a context
  CompiledKernel none;
  none.cubin = "no machine code";
  EXPECT_THROW(load_kernel(none, 0), std::runtime_error);
}

const flashproof_kernel& gpu_flash2() {
  const BuiltinKernels kernels = builtin_kernel_table();
  const auto* at = std::find_if(kernels.first, kernels.first + kernels.count,
                                [](const BuiltinKernel& each) { return std::string_view(each.name) == "gpu:flash2"; });
  if (at == kernels.first + kernels.count) throw std::logic_error("gpu:flash2 is not in the table");
  return *at->kernel();
}

/// Needs no GPU: supports() then answers for a Hopper.
TEST(GpuFlash2, TakesATileThatItsTableLacksWhereThereIsNvrtc) {
  const Inputs inputs = make_inputs(parse_case("bf16 q64 k64 d72"));
  const test::SmallCall small(inputs);
  const auto answer = [&small](const char* config) {
    char message[1024] = "";
    const flashproof_status status = gpu_flash2().supports(&small.problem, config, message, sizeof message);
    return status == FLASHPROOF_OK ? std::string("taken") : std::string(message);
  };
  const char* before = std::getenv("FLASHPROOF_NVRTC");
  const std::string library = before == nullptr ? "" : before;
  setenv("FLASHPROOF_NVRTC", "/nonexistent/libnvrtc.so", 1);
  EXPECT_EQ(answer(""), "taken");
  EXPECT_EQ(answer("tile=64x64x2x4"), "taken");
  const std::string refusal = answer("tile=48x48x2x3");
  EXPECT_NE(refusal.find("64x64x2x4"), std::string::npos) << refusal;
  EXPECT_NE(refusal.find("/nonexistent/libnvrtc.so"), std::string::npos) << refusal;
  setenv("FLASHPROOF_NVRTC", library.c_str(), 1);  // an empty one is none

  std::string reason;
  if (run_time_compiler(compiler_places(), reason).empty()) GTEST_SKIP() << reason;
  EXPECT_EQ(answer("tile=48x48x2x3"), "taken");
  EXPECT_NE(answer("tile=48x50x2x3").find("multiple of 16"), std::string::npos) << answer("tile=48x50x2x3");
  EXPECT_EQ(std::string(gpu_flash2().arithmetic(&small.problem, "tile=48x48x2x3")).find("tile=48x48"), 0u);
}

}  // namespace
}  // namespace flashproof
