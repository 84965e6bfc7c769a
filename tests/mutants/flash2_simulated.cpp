// The kernels of a planted bug of sim:flash2, in place of those of kernels/simulator/flash2_bf16.cpp and so on.
#include <iterator>
#include <utility>

#include "kernels/flash2_forward.cuh"
#include "kernels/simulator/flash2_kernels.h"
#include "tests/mutants/flash2_configs.h"

namespace flashproof::flash2 {
namespace {

template <const auto& configs, size_t... n>
std::span<const SimulatedKernel> table_of(std::index_sequence<n...>) {
  static constexpr SimulatedKernel table[] = {{configs[n], forward<configs[n]>}...};
  return table;
}

}  // namespace

template <>
std::span<const SimulatedKernel> simulated_kernels<DType::bf16>() {
  return table_of<planted_bf16>(std::make_index_sequence<std::size(planted_bf16)>());
}
template <>
std::span<const SimulatedKernel> simulated_kernels<DType::e4m3>() {
  return table_of<planted_e4m3>(std::make_index_sequence<std::size(planted_e4m3)>());
}
template <>
std::span<const SimulatedKernel> simulated_kernels<DType::fp16>() {
  return {};
}
template <>
std::span<const SimulatedKernel> simulated_kernels<DType::e5m2>() {
  return {};
}

}  // namespace flashproof::flash2
