// Which TileConfigs of FlashAttention 2 are compiled for GPUs ahead of time: those of production.
#pragma once
#include <span>

#include "kernels/tile_config.h"

namespace flashproof::flash2 {

struct DeviceShape {
  int tile_m, tile_n, stages, warps, width;
  Features features;
};
/// Of equal cost the first is chosen (kernels/flash2_host.h). 32 rows a warp read K and V half as often from shared
/// memory as 16 do, but above d 128 and in `general` they take more registers than there are; fp8, whose
/// operands the assembler widens to fp16, has fewer to spare. With one stage a multiprocessor has room for two blocks
/// of d 256, one of which works while the other waits: the faster where rows see few keys (kernels/SPEED.md).
constexpr DeviceShape shapes_of_16_bits[] = {
    {128, 64, 2, 4, 64, Features::plain},    {128, 64, 2, 4, 96, Features::plain},
    {128, 64, 2, 4, 128, Features::plain},   {128, 64, 2, 8, 192, Features::plain},
    {64, 64, 1, 4, 256, Features::plain},    {64, 64, 2, 4, 64, Features::plain},
    {64, 64, 2, 4, 128, Features::plain},    {128, 64, 2, 8, 256, Features::plain},
    {128, 64, 2, 8, 64, Features::general},  {128, 64, 2, 8, 128, Features::general},
    {128, 64, 2, 8, 256, Features::general},
};
constexpr DeviceShape shapes_of_8_bits[] = {
    {64, 64, 2, 4, 64, Features::plain},    {64, 64, 2, 4, 128, Features::plain},
    {128, 64, 2, 8, 256, Features::plain},  {64, 64, 2, 4, 64, Features::general},
    {64, 64, 2, 4, 128, Features::general}, {128, 64, 2, 8, 256, Features::general},
};

/// Whether every plain shape has the tile_n of the narrowest general one that holds its width: a call that is not
/// aligned takes that one instead, and bits do not depend on alignment.
constexpr bool one_tile_n_for_each_width(std::span<const DeviceShape> shapes) {
  for (const DeviceShape& plain : shapes) {
    if (plain.features == Features::general) continue;
    const DeviceShape* narrowest = nullptr;
    for (const DeviceShape& s : shapes)
      if (s.features == Features::general && s.width >= plain.width &&
          (narrowest == nullptr || s.width < narrowest->width))
        narrowest = &s;
    if (narrowest == nullptr || narrowest->tile_n != plain.tile_n) return false;
  }
  return true;
}
static_assert(one_tile_n_for_each_width(shapes_of_16_bits) && one_tile_n_for_each_width(shapes_of_8_bits));

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

}  // namespace flashproof::flash2
