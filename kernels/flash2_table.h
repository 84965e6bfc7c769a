// The kernels of a format as a table, one a production TileConfig. For flash2_bf16.cu and the like.
#pragma once
#include <utility>

#include "kernels/flash2_forward.cuh"
#include "kernels/flash2_kernels.h"
#include "kernels/flash2_shapes.h"

namespace flashproof::flash2 {

/// Of number n of the table: nvcc 13.0 makes no host code for a __global__ template whose argument is a struct. fp8
/// instructions are there from sm_89 on; code for older chips is empty, and the launcher does not run it.
template <DType dtype, int n>
__global__ void __launch_bounds__(thread_count(device_config<dtype, n>), resident_blocks(device_config<dtype, n>))
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
