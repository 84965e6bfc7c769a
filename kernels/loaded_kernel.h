// Machine code of the run-time compiler on the GPU, through the driver alone (CUDA Driver API reference, modules 6.5,
// 6.12, 6.23). The calling thread's current context is meant throughout, which the kernels' callers set. What is loaded
// stays loaded.
#pragma once
#include <string>

#include "kernels/run_time_compiler.h"

namespace flashproof {

/// "sm_90a", "sm_80". Hopper's own instructions, and those of what came after, are in the architectures with an a.
std::string architecture_name(int capability_major, int capability_minor);
/// Of the current device. UnavailableError with the reason where there is no driver or no context.
std::string device_architecture();

/// A kernel ready for launch.
struct LaunchableKernel {
  void* function = nullptr;
  unsigned shared_bytes = 0;
};
/// `shared_bytes` of dynamic shared memory for a block. Throws UnavailableError as above, std::runtime_error with the
/// driver's message for code that the device does not take.
LaunchableKernel load_kernel(const CompiledKernel&, unsigned shared_bytes);

/// Enqueues a grid of blocks of so many threads on the stream. `parameter` points to the kernel's only one. Throws
/// std::runtime_error with the driver's message.
void launch_kernel(const LaunchableKernel&, const unsigned (&grid)[3], unsigned threads, const void* parameter,
                   void* stream);

}  // namespace flashproof
