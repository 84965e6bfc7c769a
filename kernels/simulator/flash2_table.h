// Which TileConfigs are compiled for the simulated multiprocessor: small tiles, on which small problems have many, and
// the shapes that differ in kind: one warp, one to three stages, 16 rows a warp or 32, Q kept in registers or not,
// every swizzle.
#pragma once
#include <array>
#include <utility>

#include "kernels/flash2_forward.cuh"
#include "kernels/simulator/flash2_kernels.h"

namespace flashproof::flash2 {

struct SimulatedShape {
  int tile_m, tile_n, stages, warps, width;
};
constexpr SimulatedShape simulated_shapes[] = {
    {16, 32, 2, 1, 32}, {16, 32, 2, 1, 64},  {16, 32, 2, 1, 128}, {32, 32, 2, 2, 32},  {32, 32, 2, 2, 64},
    {32, 32, 2, 2, 96}, {32, 32, 2, 2, 128}, {32, 32, 2, 2, 256}, {64, 32, 3, 2, 32},  {64, 32, 3, 2, 64},
    {64, 64, 2, 4, 64}, {64, 32, 3, 2, 128}, {64, 64, 2, 4, 128}, {128, 64, 2, 4, 64}, {32, 32, 1, 2, 64},
};

/// Shape n with plain features, then all shapes with general ones.
template <DType dtype>
constexpr TileConfig simulated_config(size_t n) {
  const SimulatedShape& s = simulated_shapes[n % std::size(simulated_shapes)];
  return {dtype, s.tile_m, s.tile_n, s.stages, s.warps, s.width, s.width, Features(n / std::size(simulated_shapes))};
}

template <DType dtype, size_t... n>
std::span<const SimulatedKernel> simulated_table(std::index_sequence<n...>) {
  static constexpr SimulatedKernel table[] = {{simulated_config<dtype>(n), forward<simulated_config<dtype>(n)>}...};
  return table;
}

template <DType dtype>
std::span<const SimulatedKernel> simulated_kernels() {
  return simulated_table<dtype>(std::make_index_sequence<2 * std::size(simulated_shapes)>());
}

}  // namespace flashproof::flash2
