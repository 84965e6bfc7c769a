// The oracle against its slow twin on random small cases: every output, every pair of features.
//
// value_double must enclose what slow::forward_backward finds from the formulas at 1024 bits. For one output in `share`
// so must a ball of 128 bits and an interval of 256 bits, and its correct rounding to the output's format must be the
// twin's.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "oracle/value.h"

namespace flashproof::test {

struct PlanSettings {
  int64_t outputs = 1000000;    ///< in all, at least
  int64_t pair_outputs = 1000;  ///< of the cases that have both features of a pair, at least
  uint64_t seed = 1;
  std::string real_data;  ///< a safetensors file for the family `file`; empty: that family is left out
};

struct Plan {
  std::vector<Case> cases;
  int64_t features = 0, pairs = 0;  ///< pairs that can meet in one case
  std::string emptiest;             ///< the pair with the fewest outputs
  int64_t emptiest_outputs = 0;
};
/// Cases with Sq, Sk from 0 to 24 and head dims from 1 to 16, small ones more often. Every other one is drawn until
/// it has the pair that was emptiest before it. Throws std::logic_error for a pair that no draw has.
Plan plan_cases(const PlanSettings&);

struct Agreement {
  int64_t cases = 0;
  std::array<int64_t, output_count> outputs = {};  ///< compared with value_double, by OutputId
  int64_t conditioned = 0;                         ///< of these, with a condition above 0 (oracle/value.h)
  int64_t small_radii = 0;                         ///< of these, with a radius of at most 2^-40 of the condition
  double largest_zero_radius = 0;                  ///< where every term of the sum is 0
  double worst_ratio = 0;                          ///< |value - slow| / radius
  int64_t stronger = 0;                            ///< compared with ball and interval too
  std::array<int64_t, 3> rounded_by = {};          ///< correct roundings, by the Strength that decided
  int64_t undecided = 0;                           ///< of these, by none
  int64_t disagreements = 0;
  std::vector<std::string> examples;  ///< the first few: case, element, both values

  int64_t compared() const;
  Agreement& operator+=(const Agreement&);
};

Agreement compare_case(const Case&, int64_t share);
/// The sum over cases, on all cores.
Agreement compare_cases(const std::vector<Case>&, int64_t share);

}  // namespace flashproof::test
