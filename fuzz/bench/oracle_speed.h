// How fast the oracle is: its three strengths beside plain double on one head, and whole cases a second.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "fuzz/bench/quartiles.h"

namespace flashproof {

struct SpeedSettings {
  int64_t keys = 4096, head_dim = 128, rows = 4096;  ///< rows in multiples of 16, keys of 64
  int repetitions = 7;
  double seconds_a_size = 2;  ///< of each repetition of the throughput
};

/// ms of one core's time. `plain` and `certified` are by row of O and L; `mpfr` (128 bits) and `interval` (256) are by
/// element of O, for which they evaluate its whole row of scores, as an escalation does.
struct StrengthTimes {
  Quartiles plain, certified, mpfr, interval;
  Quartiles ratio;  ///< certified / plain, of repetitions run one after the other
};
StrengthTimes time_strengths(const SpeedSettings&, const std::function<void(const std::string&)>& progress);

/// ms of wall time by row of value_double on `threads` cores.
struct CoreTimes {
  int threads = 1;
  Quartiles milliseconds;
};
std::vector<CoreTimes> time_cores(const SpeedSettings&);

/// Cases a second, run and judged, one after the other, over all CPU kernels.
struct Throughput {
  double work = 0;  ///< multiply-adds of a case's forward, about
  int64_t cases = 0;
  Quartiles cases_a_second;
  double kernel_share = 0;  ///< of the time, in the kernels
};
Throughput time_cases(double work, const SpeedSettings&);

}  // namespace flashproof
