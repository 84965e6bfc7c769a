// FlashAttention 2 forward compiled for GPUs ahead of time: one function a TileConfig.
#pragma once
#include <span>

#include "kernels/flash2_call.h"
#include "kernels/tile_config.h"

namespace flashproof::flash2 {

struct DeviceKernel {
  TileConfig config;
  const void* function;  ///< for cudaLaunchKernel; its parameter is a Call
};

/// Instantiated for each dtype in a source of its own (flash2_bf16.cu and so on), so that they compile side by side.
template <DType dtype>
std::span<const DeviceKernel> device_kernels();

}  // namespace flashproof::flash2
