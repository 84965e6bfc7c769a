// Seconds of a clock that never goes back, for measuring how long something took.
#pragma once
#include <chrono>

namespace flashproof {

inline double now() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

}  // namespace flashproof
