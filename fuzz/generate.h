// Random cases for a kernel, as a pure function of (campaign seed, index): geometry and data seeded apart, boundaries
// first.
//
// Two features, a tile-edge class of each side, and a tile are drawn first, so that every cell of fuzz/coverage.h is
// reached soon; what else the kernel can do is switched on with a small probability. Half of the cases are then given
// at least 3 tiles of keys and 2 of rows; one in 1000, or of a GPU's kernel one in 70, at least 4096 keys. Drawing is
// by RapidCheck generators under our own seeds; reduction is ours too (fuzz/reduce.h), since RapidCheck does not shrink
// dependent draws to a minimum.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "fuzz/coverage.h"
#include "fuzz/kernel_library.h"
#include "reference/case.h"

namespace flashproof {

/// UsageError unless cases can be cut from the file: Q, K and V, each [heads, tokens, head dim].
void validate(const FileData&);

/// One tunable and its legal values, the simplest first, from flashproof_kernel.tunables.
struct Tunable {
  std::string name;
  std::vector<std::string> values;
};
/// Parses "tile_m=16:128:16 order=up,down"; throws UnavailableError naming the kernel's wrong text.
std::vector<Tunable> parse_tunables(const LoadedKernel&);

/// What a campaign may draw from, beside the kernel's own range.
struct Range {
  double work =
      3e6;  ///< multiply-adds of one forward, about; one case in 50, on a GPU in 10, may have ten times as much
  std::vector<FileData> files;  ///< not empty: data come from these safetensors files
};

struct Drawn {
  Case c;
  std::string config;
  TileShape tile;
};
Drawn generate(const LoadedKernel&, const Range&, uint64_t campaign_seed, uint64_t index);

}  // namespace flashproof
