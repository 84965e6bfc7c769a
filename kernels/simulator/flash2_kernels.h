// FlashAttention 2 forward compiled for the simulated multiprocessor: one function a TileConfig.
#pragma once
#include <span>

#include "kernels/flash2_call.h"
#include "kernels/tile_config.h"

namespace flashproof::flash2 {

struct SimulatedKernel {
  TileConfig config;
  void (*body)(const Call&);  ///< of one thread
};

/// Instantiated for each dtype in a source of its own (flash2_bf16.cpp and so on), so that they compile side by side.
template <DType dtype>
std::span<const SimulatedKernel> simulated_kernels();

}  // namespace flashproof::flash2
