// One row of attention to any number of digits: sum_j exp(s_j) v_j / sum_j exp(s_j) for given scores and values.
#pragma once
#include <string>
#include <vector>

namespace flashproof {

/// The decimal with `digits` significant digits nearest to the exact value (with up to 8192 bits of work; the digits of
/// a value that those leave undecided, such as an exact tie, are those of the nearest number computed). scores and
/// values are exact as given, finite, of one length above 0; digits from 1 to 1000. Throws UsageError for others.
std::string exact_row(const std::vector<double>& scores, const std::vector<double>& values, int digits);

}  // namespace flashproof
