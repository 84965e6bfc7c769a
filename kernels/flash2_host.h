// What the launchers of FlashAttention 2 share, on the GPU and on the simulated multiprocessor: which problems are
// taken, which TileConfig of a table carries one out, the Arithmetic that it has then, and the call as the kernel gets
// it.
//
// Choice of the TileConfig. Of those in the table that hold the problem's dtype and dims, have the features it needs
// and, if the config says `tile=MxNxSTAGESxWARPS`, that tile: the least features, then the least padding, then no more
// than half of the rows idle (or else the fewest rows); the first in the table of what is left.
#pragma once
#include <span>
#include <string>

#include "kernels/flash2_call.h"
#include "kernels/rejected.h"
#include "kernels/tile_config.h"

namespace flashproof::flash2 {

/// "tile=64x64x2x4,schedule=7" (commas or spaces), each key at most once.
struct Config {
  int tile_m = 0, tile_n = 0, stages = 0, warps = 0;  ///< 0: the kernel's choice
  uint64 schedule = 0;
};
/// "128x64x2x4".
std::string tile_name(const Config&);
std::string tile_name(const TileConfig&);
/// The tiles of a table, each once and the smallest first, as values of the tunable `tile`: "16x32x2x1,64x64x2x4".
std::string tile_values(std::span<const TileConfig> table);

constexpr uint64 most_schedule = 9999;
/// Throws Rejected for another key or value. `schedule`, the seed of the simulated multiprocessor, only where it
/// `is_simulated`.
Config parse_config(const char* text, bool is_simulated);

/// Throws Rejected for what no TileConfig carries out.
void check_problem(const flashproof_problem&);

/// The least that the problem can do with.
Features needed_features(const flashproof_problem&);

/// Index in the table, or -1.
int find(std::span<const TileConfig> table, const flashproof_problem&, const Config&);

/// Throws Rejected if there is none.
int choose(std::span<const TileConfig> table, const flashproof_problem&, const Config&);

/// Whether every row of q, k, v and o begins at a multiple of 16 bytes.
bool is_aligned(const Call&);

/// For a call that `chosen` was chosen for: itself, or where the call's tensors are not aligned to 16 bytes, an entry
/// with general features and the same tile_n, on which alone bits depend (kernels/README.md: almost); the tile that the
/// config names, if there is one. Throws Rejected if there is none.
int choose_for_call(std::span<const TileConfig> table, int chosen, const Call&, const flashproof_problem&,
                    const Config&);

/// In the words of reference/arithmetic.h. `chip`: "sm_90", or "" for unknown.
std::string arithmetic_text(const flashproof_problem&, const TileConfig&, const char* chip);

/// Throws Rejected for tensors that the kernel cannot address.
Call call_of(const flashproof_call&);

/// Blocks along x, y and z; a grid with a 0 is nothing to do.
struct Grid {
  unsigned tiles, heads, entries;
};
Grid grid_of(const flashproof_problem&, const TileConfig&);

/// What a launcher's table of functions says whatever the machine: dtypes, features, dims, conventions.
flashproof_kernel describe(const char* name, flashproof_memory);

}  // namespace flashproof::flash2
