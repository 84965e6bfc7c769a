// A loop over independent items on several cores.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>

namespace flashproof {

/// Threads that a call with threads == 0 on this thread may use; 0: all cores. An engine that runs one case a core sets
/// 1.
inline thread_local int default_threads = 0;

/// body(scratch, item) for item = 0 .. count-1, on `threads` cores (0: default_threads), in any order: the body writes
/// only what belongs to its item, and its thread's scratch, which is what make_scratch() gives. Neither may throw.
/// Threads that the system refuses, as where a limit of memory leaves no room for their stacks, are done without.
template <class MakeScratch, class Body>
void for_each_item_with(int64_t count, int threads, const MakeScratch& make_scratch, const Body& body) {
  if (count == 0) return;
  if (threads == 0) threads = default_threads;
  const int64_t cores = threads > 0 ? threads : std::max(1u, std::thread::hardware_concurrency());
  std::atomic<int64_t> next{0};
  const auto work = [&] {
    auto scratch = make_scratch();
    for (int64_t item = next++; item < count; item = next++) body(scratch, item);
  };
  std::vector<std::thread> others;
  try {
    for (int64_t n = 1; n < std::min(cores, count); ++n) others.emplace_back(work);
  } catch (const std::system_error&) {
  }
  work();
  for (std::thread& other : others) other.join();
}

/// The same without scratch: body(item).
template <class Body>
void for_each_item(int64_t count, int threads, const Body& body) {
  for_each_item_with(
      count, threads, [] { return 0; }, [&](int, int64_t item) { body(item); });
}

}  // namespace flashproof
