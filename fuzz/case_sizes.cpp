// Counting of sizes; see case_sizes.h.
#include "fuzz/case_sizes.h"

#include <algorithm>

#include <fmt/format.h>

#include "reference/arithmetic.h"

namespace flashproof {
namespace {

constexpr int64_t many_keys = 4096;

int64_t tiles(int64_t length, int64_t tile) { return (length + tile - 1) / tile; }

std::optional<CaseSizes::Quartiles> quartiles_of(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  std::sort(values.begin(), values.end());
  const auto at = [&](size_t quarters) { return values[quarters * (values.size() - 1) / 4]; };
  return CaseSizes::Quartiles{at(0), at(1), at(2), at(3), at(4)};
}

}  // namespace

double forward_multiply_adds(const Problem& p) {
  double pairs = 0;
  for (int64_t b = 0; b < p.batch; ++b) pairs += double(used_length(p.q, b)) * double(used_length(p.k, b));
  return pairs * double(p.heads) * double(p.head_dim + p.value_dim);
}

const char* name_of(Measure measure) {
  constexpr const char* names[] = {"rows", "keys", "row_tiles", "key_tiles", "multiply_adds"};
  return names[int(measure)];
}

const char* title_of(Measure measure) {
  constexpr const char* titles[] = {"query rows", "keys", "tiles of rows", "tiles of keys", "multiply-adds"};
  return titles[int(measure)];
}

void CaseSizes::add(const Problem& p, const std::string& arithmetic) {
  const auto append = [&](Measure measure, double value) { values_[size_t(measure)].push_back(value); };
  const int64_t rows = max_used_length(p.q, p.batch), keys = max_used_length(p.k, p.batch);
  append(Measure::rows, double(rows));
  append(Measure::keys, double(keys));
  append(Measure::multiply_adds, forward_multiply_adds(p));
  long_keys_ += keys >= many_keys;
  const Arithmetic declared = parse_arithmetic(arithmetic);
  if (declared.tile_m == 0 || declared.tile_n == 0) return;
  append(Measure::row_tiles, double(tiles(rows, declared.tile_m)));
  append(Measure::key_tiles, double(tiles(keys, declared.tile_n)));
  bool several = false;
  for (int64_t b = 0; b < p.batch; ++b)
    several |= tiles(used_length(p.q, b), declared.tile_m) >= 2 && tiles(used_length(p.k, b), declared.tile_n) >= 3;
  several_tiles_ += several;
}

void CaseSizes::add(const CaseSizes& other) {
  for (size_t m = 0; m < measure_count; ++m)
    values_[m].insert(values_[m].end(), other.values_[m].begin(), other.values_[m].end());
  several_tiles_ += other.several_tiles_, long_keys_ += other.long_keys_;
}

CaseSizes::Summary CaseSizes::summary() const {
  Summary summary;
  summary.cases = int64_t(values_[size_t(Measure::rows)].size());
  summary.tiled = int64_t(values_[size_t(Measure::row_tiles)].size());
  summary.several_tiles = several_tiles_, summary.long_keys = long_keys_;
  for (size_t m = 0; m < measure_count; ++m) summary.quartiles[m] = quartiles_of(values_[m]);
  return summary;
}

std::string shares_of(const CaseSizes::Summary& s) {
  const auto share = [](int64_t part, int64_t whole) {
    const std::string count = fmt::format("{} of {} cases", part, whole);
    return whole == 0 ? count : count + fmt::format(" ({:.1f} %)", 100.0 * double(part) / double(whole));
  };
  const std::string tiles =
      s.tiled == 0 ? "" : "3 or more tiles of keys and 2 of rows: " + share(s.several_tiles, s.tiled) + "; ";
  return tiles + "4096 or more keys: " + share(s.long_keys, s.cases);
}

}  // namespace flashproof
