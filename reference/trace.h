// An algorithm step by step on one row: the running maximum, sum and output after each tile of keys, in double.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/formats.h"

namespace flashproof {

struct TraceStep {
  /// "row" (standard), "tile", "normaliser" and "output" (two passes), "chunk", "combine" (parts, chunks).
  std::string phase;
  int64 first_key = 0, end_key = 0;
  double maximum = 0;  ///< m, the largest score so far
  double sum = 0;      ///< l, the sum of exp(s_j - m)
  double rescale = 1;  ///< exp(m_before - m), by which the earlier sum and output were multiplied
  /// accumulator / l: O if the row ended here. In phase "output" of the two passes: what the keys so far add to O. None
  /// in a pass that makes no output.
  std::optional<double> output;
};

/// "standard", "online_softmax", "rabe_staats" (a chunk of keys for each tile), "flash1", "flash2", "flash3",
/// "flash_decoding" (a part of the keys for each tile).
std::vector<std::string> traced_algorithms();
/// The algorithm of reference/ on one row with these scores, and values of one channel. Throws UsageError for an
/// unknown algorithm, unequal lengths, an empty list, or a tile below 1.
std::vector<TraceStep> trace(std::string_view algorithm, const std::vector<double>& scores,
                             const std::vector<double>& values, int64 tile);

}  // namespace flashproof
