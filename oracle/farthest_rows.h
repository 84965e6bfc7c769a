// The rows of O that plain double finds most wrong: where a sample of a large problem should look first.
#pragma once
#include <cstdint>
#include <vector>

#include "reference/inputs.h"

namespace flashproof {

/// At most `most` flat rows of [total_q, H], the farthest first: by max_c |o_c - O_c| / max_c |O_c| with O in plain
/// double, infinite where o is not finite or O is 0 and o is not. All rows are compared while that takes at most
/// `budget` multiply-adds, else every n-th, from one that `seed` chooses. No error bound: it only says where to look.
std::vector<int64_t> farthest_rows(const Inputs&, const Tensor& o, double budget, size_t most, uint64_t seed);

}  // namespace flashproof
