// Which TileConfigs are compiled for GPUs ahead of time: those of production. For flash2_bf16.cu and the like.
#pragma once
#include <utility>

#include "kernels/flash2_forward.cuh"
#include "kernels/flash2_kernels.h"

namespace flashproof::flash2 {

struct DeviceShape {
  int tile_m, tile_n, stages, warps, width;
  Features features;
};
/// Of equal cost the first is chosen (kernels/flash2_host.h). One tile_n for each width: a call that is not aligned takes the general
/// kernel, and bits do not depend on alignment. 32 rows a warp read K and V half as often from shared memory as 16 do, but from
/// d 128 on they take more registers than there are; fp8, whose operands the assembler widens to fp16, has fewer to spare.
constexpr DeviceShape shapes_of_16_bits[] = {
    {128, 64, 2, 4, 64, Features::plain},    {128, 64, 2, 4, 96, Features::plain},
    {128, 64, 2, 8, 128, Features::plain},   {128, 64, 2, 8, 192, Features::plain},
    {128, 64, 2, 8, 256, Features::plain},   {64, 64, 2, 4, 64, Features::plain},
    {64, 64, 2, 4, 128, Features::plain},    {64, 64, 2, 4, 256, Features::plain},
    {128, 64, 2, 8, 64, Features::general},  {128, 64, 2, 8, 128, Features::general},
    {128, 64, 2, 8, 256, Features::general},
};
constexpr DeviceShape shapes_of_8_bits[] = {
    {64, 64, 2, 4, 64, Features::plain},    {64, 64, 2, 4, 128, Features::plain},
    {128, 64, 2, 8, 256, Features::plain},  {64, 64, 2, 4, 64, Features::general},
    {64, 64, 2, 4, 128, Features::general}, {128, 64, 2, 8, 256, Features::general},
};

template <DType dtype>
constexpr std::span<const DeviceShape> device_shapes() {
  if constexpr (is_fp8(dtype)) return shapes_of_8_bits;
  return shapes_of_16_bits;
}

constexpr TileConfig config_of(DType dtype, const DeviceShape& s) {
  return {dtype, s.tile_m, s.tile_n, s.stages, s.warps, s.width, s.width, s.features};
}
template <DType dtype, int n>
constexpr TileConfig device_config = config_of(dtype, device_shapes<dtype>()[n]);

/// Of number n of the table: nvcc 13.0 makes no host code for a __global__ template whose argument is a struct. fp8 instructions
/// are there from sm_89 on; the launcher refuses older chips.
template <DType dtype, int n>
__global__ void __launch_bounds__(thread_count(device_config<dtype, n>))
    forward_kernel(const __grid_constant__ Call call) {
#if __CUDA_ARCH__ >= 890
  forward<device_config<dtype, n>>(call);
#else
  if constexpr (!is_fp8(dtype)) forward<device_config<dtype, n>>(call);
#endif
}

template <DType dtype, int... n>
std::span<const DeviceKernel> device_table(std::integer_sequence<int, n...>) {
  static const DeviceKernel table[] = {
      {device_config<dtype, n>, reinterpret_cast<const void*>(&forward_kernel<dtype, n>)}...};
  return table;
}

template <DType dtype>
std::span<const DeviceKernel> device_kernels() {
  return device_table<dtype>(std::make_integer_sequence<int, int(device_shapes<dtype>().size())>());
}

}  // namespace flashproof::flash2
