// Which kernels a planted bug of flash2 is compiled into: tiles of sim:flash2, in fewer widths and two of the four
// formats, so that it takes seconds. One table for all bugs, whatever they need to show, and for both machines.
#pragma once
#include "kernels/tile_config.h"

namespace flashproof::flash2 {

constexpr TileConfig planted_bf16[] = {
    {DType::bf16, 16, 32, 2, 1, 64, 64, Features::plain},     {DType::bf16, 64, 32, 3, 2, 64, 64, Features::plain},
    {DType::bf16, 16, 32, 2, 1, 32, 32, Features::general},   {DType::bf16, 32, 32, 2, 2, 32, 32, Features::general},
    {DType::bf16, 64, 32, 3, 2, 32, 32, Features::general},   {DType::bf16, 16, 32, 2, 1, 64, 64, Features::general},
    {DType::bf16, 32, 32, 2, 2, 64, 64, Features::general},   {DType::bf16, 64, 32, 3, 2, 64, 64, Features::general},
    {DType::bf16, 64, 64, 2, 4, 128, 128, Features::general},
};
constexpr TileConfig planted_e4m3[] = {
    {DType::e4m3, 16, 32, 2, 1, 64, 64, Features::general},
    {DType::e4m3, 32, 32, 2, 2, 64, 64, Features::general},
    {DType::e4m3, 64, 32, 3, 2, 64, 64, Features::general},
    {DType::e4m3, 64, 64, 2, 4, 128, 128, Features::general},
};

}  // namespace flashproof::flash2
