// The kernels of a planted bug of gpu:flash2, in place of those of kernels/flash2_bf16.cu and so on.
#include <iterator>
#include <utility>

#include "kernels/flash2_forward.cuh"
#include "kernels/flash2_kernels.h"
#include "tests/mutants/flash2_configs.h"

namespace flashproof::flash2 {
namespace {

template <int n>
__global__ void __launch_bounds__(thread_count(planted_bf16[n])) forward_bf16(const __grid_constant__ Call call) {
  forward<planted_bf16[n]>(call);
}
template <int n>
__global__ void __launch_bounds__(thread_count(planted_e4m3[n])) forward_e4m3(const __grid_constant__ Call call) {
#if __CUDA_ARCH__ >= 890  // the launcher refuses older chips
  forward<planted_e4m3[n]>(call);
#endif
}

template <int... n>
std::span<const DeviceKernel> bf16_table(std::integer_sequence<int, n...>) {
  static const DeviceKernel table[] = {{planted_bf16[n], reinterpret_cast<const void*>(&forward_bf16<n>)}...};
  return table;
}
template <int... n>
std::span<const DeviceKernel> e4m3_table(std::integer_sequence<int, n...>) {
  static const DeviceKernel table[] = {{planted_e4m3[n], reinterpret_cast<const void*>(&forward_e4m3<n>)}...};
  return table;
}

}  // namespace

template <>
std::span<const DeviceKernel> device_kernels<DType::bf16>() {
  return bf16_table(std::make_integer_sequence<int, int(std::size(planted_bf16))>());
}
template <>
std::span<const DeviceKernel> device_kernels<DType::e4m3>() {
  return e4m3_table(std::make_integer_sequence<int, int(std::size(planted_e4m3))>());
}
template <>
std::span<const DeviceKernel> device_kernels<DType::fp16>() {
  return {};
}
template <>
std::span<const DeviceKernel> device_kernels<DType::e5m2>() {
  return {};
}

}  // namespace flashproof::flash2
