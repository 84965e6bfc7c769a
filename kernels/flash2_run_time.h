// FlashAttention 2 forward with tiles that no table holds: what is compiled at run time for them, and random ones.
#pragma once
#include <string>

#include "kernels/flash2_host.h"
#include "kernels/loaded_kernel.h"
#include "kernels/run_time_compiler.h"

namespace flashproof::flash2 {

/// The kernel of kernels/flash2_forward.cuh with this TileConfig, as text for the compiler. It takes a Call.
KernelText kernel_text(const TileConfig&, const std::string& architecture);

/// For a tile that the config names and no table holds. Both dims are padded to 64, 128 or 256, so that few kernels
/// serve many problems. Throws Rejected with the reason where it is not feasible.
TileConfig run_time_config(const flashproof_problem&, const Config&, Features);

/// Machine code of this TileConfig, compiled when it is first asked for in this process and not in the cache. Throws as
/// compile_kernel does. Safe to call from several threads, as is the next.
const CompiledKernel& run_time_code(const TileConfig&, const std::string& architecture);

/// Its kernel on the device, whose context must be current, loaded when it is first asked for in this process. Throws
/// as compile_kernel and load_kernel do.
const LaunchableKernel& run_time_kernel(const TileConfig&, int device);

/// Every field drawn: 1 to 8 warps of 16 or 32 rows, up to 256 keys, 1 to 5 stages, any format of the tensor core, any
/// padded dims, which differ in a quarter of the draws. Not always feasible. A pure function (Philox).
TileConfig random_config(uint64 seed, uint64 index);

/// How many tiles a fuzzer draws from besides those ahead of time: with four formats, two feature sets and three
/// paddings of dims they are fewer than 200 kernels.
constexpr int random_tile_count = 10;

/// Values of the tunable `tile` that are feasible for bf16, dims of 128 and general features: "64x48x2x4,...", drawn by
/// random_config, each once.
std::string random_tiles(int count);

/// "bf16 128x64x2x4 d128/64 general".
std::string print(const TileConfig&);

}  // namespace flashproof::flash2
