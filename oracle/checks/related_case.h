// Cases made from a case whose results are tied to its own (checks `repeat` and `relations`): pure edits of text.
#pragma once
#include "reference/case.h"

namespace flashproof {

/// A number that the case's data seed chooses, below `count`; `purpose` tells independent choices apart.
uint64_t choose(const Case&, uint64_t purpose, uint64_t count);

/// Entry b without the others, with its own data.
Case entry_alone(const Case&, int64_t b);
/// One more entry behind the others, as long as the last and with data of its own.
Case with_neighbour(const Case&);

/// The keys in another order. Entries of different length share one list of keys, so only keys that the same entries
/// have change places.
Case keys_permuted(const Case&);
/// Keys [begin, end) of every entry, as far as it has them.
Case keys_between(const Case&, int64_t begin, int64_t end);
/// The last query row of a case with one entry and at least one row.
Case last_row(const Case&);
/// A bias of `shift` on every score of a case without a bias.
Case scores_shifted(const Case&, float shift);

}  // namespace flashproof
