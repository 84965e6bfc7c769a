// A loop over independent items on several cores.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace flashproof {

/// Threads that a call with threads == 0 on this thread may use; 0: all cores. An engine that runs one case a core sets
/// 1.
inline thread_local int default_threads = 0;

/// body(item) for item = 0 .. count-1, on `threads` cores (0: default_threads), in any order: the body writes only what
/// belongs to its item. The body must not throw.
template <class Body>
void for_each_item(int64_t count, int threads, const Body& body) {
  if (threads == 0) threads = default_threads;
  const int64_t cores = threads > 0 ? threads : std::max(1u, std::thread::hardware_concurrency());
  std::atomic<int64_t> next{0};
  const auto work = [&] {
    for (int64_t item = next++; item < count; item = next++) body(item);
  };
  std::vector<std::thread> others;
  for (int64_t n = 1; n < std::min(cores, count); ++n) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
}

}  // namespace flashproof
