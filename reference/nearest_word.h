// The word a user probably meant: the candidate of least Levenshtein distance.
#pragma once
#include <string>
#include <vector>

namespace flashproof {

/// First of the nearest candidates; "" when there is none.
std::string nearest_word(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace flashproof
