// A kernel compiled at run time, on the GPU; skipped where there is no GPU or no NVRTC.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "kernels/loaded_kernel.h"
#include "tests/kernels/device_numbers.h"

namespace flashproof {
namespace {

struct Argument {
  float* x;
  float factor;
};

/// Each thread scales one number, by way of as much dynamic shared memory as a block gets only where it is asked for.
TEST(LoadedKernel, RunsWithSharedMemoryOverTheDefault) {
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
  const LoadedKernel kernel = load_kernel(compile_kernel(scale), shared_bytes);
  const Argument argument = {x, 3};
  launch_kernel(kernel, {1, blocks, 1}, threads, &argument, nullptr);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  for (unsigned n = 0; n < blocks * threads; ++n) EXPECT_EQ(x[n], 3 * float(n));
  EXPECT_EQ(cudaFree(x), cudaSuccess);
  EXPECT_THROW(launch_kernel(kernel, {1, 1, 1}, 4096, &argument, nullptr), std::runtime_error);
}

TEST(LoadedKernel, SaysWhatTheDriverSays) {
  std::string reason;
  if (on_device::device_name(reason).empty()) GTEST_SKIP() << "no GPU: " << reason;
  ASSERT_EQ(cudaFree(nullptr), cudaSuccess);  // makes a context
  CompiledKernel none;
  none.cubin = "no machine code";
  EXPECT_THROW(load_kernel(none, 0), std::runtime_error);
}

}  // namespace
}  // namespace flashproof
