// Which fields of a failing case matter: each is removed alone, with the kernel as judge; and at which sizes the
// failure begins.
//
// A field matters if the failure goes away without it. Of a number, a few other values are tried, and the simplest rule
// that says of all of them whether they fail is given: "Sk >= 17", "page mod 32 != 0", "Sk != Sq".
#pragma once
#include <string>
#include <vector>

#include "fuzz/reduce.h"

namespace flashproof {

struct Fields {
  std::vector<std::string> needed;      ///< fields without which the kernel takes the case and does not fail
  std::vector<std::string> idle;        ///< fields that it has and fails without
  std::vector<std::string> boundaries;  ///< rules of numbers; none where every value tried fails, or no rule holds
  int64_t runs = 0;
  bool complete = false;  ///< all was tried within the time
};

/// `c` must be interesting; `takes`: whether the kernel takes a case, others are not tried; tile_m and tile_n (0
/// unknown) are sizes worth trying.
Fields find_fields(const Case& c, const std::string& config, const Interesting&, const Interesting& takes,
                   int64_t tile_m, int64_t tile_n, double seconds);

}  // namespace flashproof
