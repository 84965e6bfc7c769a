// The list of findings that `gate` accepts for a while.
//
//   # BUCKET                          LAST DAY    REASON
//   mine.bound.value.dQ               2027-01-31  issue 12: dQ of rows with one key
//
// A reason is mandatory. A line's finding fails the gate again from the day after.
#pragma once
#include <string>
#include <vector>

namespace flashproof {

struct KnownFinding {
  std::string bucket, expires, reason;  ///< expires: YYYY-MM-DD, the last day on which it is accepted
};

/// Throws UsageError naming file and line, UnavailableError when it cannot be read.
std::vector<KnownFinding> read_known_findings(const std::string& path);
/// YYYY-MM-DD.
std::string today_utc();

}  // namespace flashproof
