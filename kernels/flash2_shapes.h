// Which TileConfigs of FlashAttention 2 are compiled for GPUs ahead of time: those of production.
#pragma once
#include <span>

#include "kernels/tile_config.h"

namespace flashproof::flash2 {

struct DeviceShape {
  int tile_m, tile_n, stages, warps, width;
  Features features;
};
/// Of equal cost the first is chosen (kernels/flash2_host.h). One tile_n for each width: a call that is not aligned
/// takes the general kernel, and bits do not depend on alignment. 32 rows a warp read K and V half as often from shared
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
