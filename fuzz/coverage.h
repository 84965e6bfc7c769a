// Cells of the configuration space: pairs of features x tile-edge classes of the query and key lengths.
//
// A case visits cell (f, g, side, edge) when its problem has both features and one batch entry's length on that side
// stands to the tile as the edge class says. Device code has no line coverage; this is what a campaign reports instead,
// with the feasible cells of a kernel as the whole.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fuzz/kernel_library.h"
#include "reference/problem.h"

namespace flashproof {

enum class Feature : int {
  bf16,
  fp16,
  fp32,
  e4m3,
  e5m2,
  batch,
  gqa,
  value_dim,
  packed,
  seqused,
  paged,
  strides,
  causal,
  window,
  top_left,
  short_keys,
  scale,
  softcap,
  alibi,
  bias,
  sink,
  dropout,
  descale,
  backward,
};
constexpr int feature_count = 24;
const char* name_of(Feature);
bool has(const Problem&, Feature);

/// A length against a tile: 0, 1, tile - 1, tile, tile + 1, other lengths below tile - 1, multiples of it, the rest.
enum class Edge : int { zero, one, below, exact, above, inside, multiple, ragged };
constexpr int edge_count = 8;
const char* name_of(Edge);
/// Classes are tried in the order of the enumeration, so length 1 with tile 1 is `one`.
Edge edge_of(int64_t length, int64_t tile);

struct TileShape {
  int64_t m = 64, n = 64;
};
/// Tile of the kernel's declared arithmetic for a config and long sequences of the problem's dtype and head dims; 64
/// where it takes all rows or keys at once, or where the answer cannot be had (the case will say so). Empty where it
/// declares nothing, as kernels do for a config that they do not take with these.
std::optional<TileShape> tile_of(const LoadedKernel&, const Problem&, const std::string& config);

/// What a kernel's table says that it can do, without the kernel.
struct Capabilities {
  uint64_t features = 0, dtypes = 0;  ///< bits as in flashproof_kernel
  Capabilities(uint64_t the_features, uint64_t the_dtypes) : features(the_features), dtypes(the_dtypes) {}
  Capabilities(const LoadedKernel& kernel) : Capabilities(kernel.table->features, kernel.table->dtypes) {}
};

/// Whether both features can stand in one legal problem that the kernel's capabilities admit.
bool feasible(const Capabilities&, Feature, Feature);
/// Whether the kernel's capabilities admit the feature at all.
bool admits(const Capabilities&, Feature);

/// Visits by cell; mergeable by addition.
class Coverage {
 public:
  void visit(const Problem&, const TileShape&);
  struct Summary {
    int64_t visited = 0, feasible = 0;
    std::vector<std::string> emptiest;  ///< names of the feasible cells with the fewest visits, at most `most`
  };
  /// Over the union of the kernels' feasible cells.
  Summary summary(const std::vector<Capabilities>&, int most = 3) const;

 private:
  static int cell(Feature, Feature, int side, Edge);
  std::vector<int64_t> visits_ = std::vector<int64_t>(feature_count * feature_count * 2 * edge_count, 0);
};

}  // namespace flashproof
