// How `cost` and its presets work out a cost and print it.
#pragma once
#include <string>

#include "fuzz/json_text.h"
#include "reference/cost.h"

namespace flashproof {

/// By running, which is checked against the closed form, where no entry has more than 2^22 scores a head; else in
/// closed form (without moves). Throws UsageError as reference/cost.h says, std::runtime_error where the two differ.
Cost cost_of(const Problem&, const std::string& algorithm, Pass, const Schedule&);

/// "4 MiB", "64 GiB", "1.5 KiB".
std::string print_bytes(int64 bytes);
/// The heading and one line of the table of costs.
std::string cost_heading(const std::string& pass);
std::string cost_line(const Problem&, const std::string& algorithm, const Cost&);
/// As fuzz/JSON.md says.
JsonText json_of(const Problem&, const Cost&);

}  // namespace flashproof
