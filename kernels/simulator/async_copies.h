// cp.async: copies of 16 bytes from global to shared memory that run beside the thread that issued them.
//
// An asynchronous operation here is bytes that nobody else may touch from its issue to its completion, and an event
// that completes it. For cp.async the event is the issuing thread's wait for the operation's group: copies are put into
// a group by commit, and wait<n> completes all groups but the last n. The data arrive, as the schedule draws, at the
// issue, at the commit or at the completion. What other threads see is ordered by the barrier that must follow.
#pragma once
#include <vector>

#include "kernels/simulator/global_memory.h"
#include "kernels/simulator/random.h"
#include "kernels/simulator/shared_memory.h"

namespace flashproof::simulator {

/// The copies of one thread.
class AsyncCopies {
 public:
  /// `from` null: zeros.
  void issue(SharedMemory&, GlobalMemory&, Draws&, uint32 to, const void* from, Actor, const SourcePlace&);
  void commit();
  void wait(SharedMemory&, int pending, Actor);

  /// The thread ends: throws SimulatedFault if a copy has not been waited for.
  void finish(Actor);

 private:
  enum class Arrival { issue, commit, completion };
  struct Copy {
    void* to;
    const void* from;
    uint32 address;
    uint32 group;
    Arrival arrival;
    SourcePlace where;
  };
  static void deliver(const Copy&);

  std::vector<Copy> in_flight_;  // in the order of issue
  uint32 group_ = 0;             // of the next copy
};

}  // namespace flashproof::simulator
