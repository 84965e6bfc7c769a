// Seconds of clocks that never go back, for measuring how long something took.
#pragma once
#include <chrono>
#include <ctime>

namespace flashproof {

inline double now() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

/// Seconds that this thread has run: others on the same core do not count.
inline double thread_seconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
}

}  // namespace flashproof
