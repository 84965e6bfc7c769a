// The median of repeated measurements, and what lies between their quartiles.
#pragma once
#include <algorithm>
#include <vector>

namespace flashproof {

struct Quartiles {
  double low = 0, median = 0, high = 0;
};

/// Of at least one number; between two neighbours, linear (Hyndman and Fan, 1996, definition 7).
inline Quartiles quartiles(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  const auto at = [&](double share) {
    const double place = share * double(x.size() - 1);
    const auto below = size_t(place);
    const size_t above = std::min(below + 1, x.size() - 1);
    return x[below] + (place - double(below)) * (x[above] - x[below]);
  };
  return {at(0.25), at(0.5), at(0.75)};
}

}  // namespace flashproof
