// How large the cases of a campaign are: quartiles of their lengths, tiles and multiply-adds.
//
// A fuzzer's bugs are found on small cases and missed on them: what a kernel carries from one tile of keys to the next
// shows from two tiles on, a buffer that is used again from as many as it has stages. So a campaign says how many it
// had.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reference/problem.h"

namespace flashproof {

/// Multiply-adds of one forward where nothing is masked: sum over entries of Sq Sk, times heads (head dim + value dim).
double forward_multiply_adds(const Problem&);

/// What is measured of a case: the longest entry's rows and keys, the tiles that these fill, multiply-adds.
enum class Measure { rows, keys, row_tiles, key_tiles, multiply_adds };
constexpr int measure_count = 5;
const char* name_of(Measure);   ///< "rows", "keys", "row_tiles", "key_tiles", "multiply_adds"
const char* title_of(Measure);  ///< for a person: "query rows", "keys", "tiles of rows", ...

/// Of cases that ran; mergeable.
class CaseSizes {
 public:
  /// `arithmetic`: that the kernel declared for the case, whose tile counts; a case without a tile counts to the
  /// lengths only.
  void add(const Problem&, const std::string& arithmetic);
  void add(const CaseSizes&);

  struct Quartiles {
    double least = 0, lower = 0, median = 0, upper = 0, largest = 0;
  };
  struct Summary {
    int64_t cases = 0, tiled = 0;  ///< those with a declared tile, to which the tiles and `several_tiles` refer
    int64_t several_tiles = 0;     ///< with an entry of at least 3 tiles of keys and 2 of rows
    int64_t long_keys = 0;         ///< with at least 4096 keys
    std::array<std::optional<Quartiles>, measure_count> quartiles;  ///< by Measure; empty where no case has it
  };
  /// A quartile is the value at place floor(q (n - 1)) of n in ascending order.
  Summary summary() const;

 private:
  std::array<std::vector<double>, measure_count> values_;
  int64_t several_tiles_ = 0, long_keys_ = 0;
};

/// "3 or more tiles of keys and 2 of rows: 130 of 250 cases (52.0 %); 4096 or more keys: 3 of 300 cases (1.0 %)";
/// without the first half where no case has a declared tile.
std::string shares_of(const CaseSizes::Summary&);

}  // namespace flashproof
