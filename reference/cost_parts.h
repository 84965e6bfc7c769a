// What the two ways to a cost share (see cost.h): what they refuse, and the sum over entries and heads.
#pragma once
#include <map>
#include <utility>

#include "reference/cost.h"

namespace flashproof {

/// Throws UsageError as cost.h says.
void refuse_uncosted(const Problem&, std::string_view algorithm, Pass, const Schedule&);
/// Entries of the batch by (Sq, Sk): those of one pair cost the same.
std::map<std::pair<int64, int64>, int64> entries_by_length(const Problem&);
/// total += times entry; a tile on the chip is as large as the largest.
void add_times(Cost& total, const Cost& entry, int64 times);
void add_move(std::vector<Move>&, const Move&);

}  // namespace flashproof
