// The simulated multiprocessor with one block on it: its threads, their meetings, and what they may touch.
//
// A thread runs until its next collective operation, where the 32 lanes of its warp must meet at the same place of the
// source. The lane that comes last carries the operation out for all. Then the schedule may go on with another warp.
#pragma once
#include <exception>
#include <vector>

#include "kernels/simulator/async_copies.h"
#include "kernels/simulator/clocks.h"
#include "kernels/simulator/fibers.h"
#include "kernels/simulator/global_memory.h"
#include "kernels/simulator/random.h"
#include "kernels/simulator/shared_memory.h"
#include "kernels/simulator/simulate.h"

namespace flashproof::simulator {

class Machine {
 public:
  explicit Machine(const SimulatedLaunch&, const std::function<void()>& body);

  /// Every block; throws what a thread threw.
  void run();

  int thread() const { return thread_; }
  int threads() const { return launch_.threads; }
  int block(int axis) const { return block_[axis]; }
  int blocks(int axis) const { return launch_.grid[axis]; }
  Architecture chip() const { return launch_.chip; }
  SharedMemory& shared() { return shared_; }
  GlobalMemory& global() { return global_; }
  Draws& draws() { return draws_; }
  AsyncCopies& copies() { return copies_[thread_]; }

  /// The running thread, alone; its warp as one.
  Actor lane() const { return {thread_ / lanes_a_warp, 1u << thread_ % lanes_a_warp}; }
  Actor warp() const { return {thread_ / lanes_a_warp, all_lanes}; }

  /// A collective operation of a warp: every lane comes with an operand of its own, in which it finds its result, and
  /// `perform`, a function of the 32 operands, is called once.
  template <class Operand, class Perform>
  void meet(const char* operation, Operand& mine, const SourcePlace& where, Perform perform) {
    void* const* operands = arrive(operation, &mine, where);
    if (!operands) return;
    perform([operands](int lane) -> Operand& { return *static_cast<Operand*>(operands[lane]); });
    depart();
  }

  /// Barrier `id` of the block, at which `threads` threads must arrive. `everybody`: the barrier of the whole block,
  /// where they must also meet at the same place of the source.
  void barrier(int id, int threads, bool everybody, const SourcePlace&);

  /// The lanes of the running thread's warp alone.
  void warp_barrier(const SourcePlace&);

 private:
  struct Warp {
    const char* operation = nullptr;  // at which its lanes are meeting, and where
    SourcePlace where;
    uint32 arrived = 0;        // lanes that have come to it
    uint32 ready = all_lanes;  // lanes that can run, but for the running one
    uint32 live = all_lanes;   // lanes that have not left the kernel
    uint32 started = 0;        // lanes that have entered it
    int barrier = -1;          // at which the warp waits
    void* operands[lanes_a_warp];
  };
  struct Barrier {
    int threads = 0, arrived = 0;
    bool everybody = false;
    uint32 warps = 0;  // that have arrived
    SourcePlace where;
    Clock clock{};
  };

  void run_block();
  void abandon_block();
  int run_thread(int thread);
  void* const* arrive(const char* operation, void* operand, const SourcePlace&);
  void depart();
  void come_to_barrier(int id, int threads, bool everybody, const SourcePlace&);
  int leave_kernel();
  int take_lane(int warp);
  int choose_thread();
  void go_to(int thread);
  [[noreturn]] void diverged(const std::string& what, const SourcePlace&) const;
  [[noreturn]] void deadlocked() const;

  const SimulatedLaunch& launch_;
  const std::function<void()>& body_;
  Fibers& fibers_;
  Draws draws_;
  Clocks clocks_;
  SharedMemory shared_;
  GlobalMemory global_;
  std::vector<AsyncCopies> copies_;  // of each thread
  std::vector<Warp> warps_;
  std::array<Barrier, 16> barriers_;
  std::array<int, 3> block_{};
  int thread_ = 0;       // who runs
  uint32 patience_ = 0;  // meetings of the running warp before another one may go on
  int first_lane_ = 0;   // from which the lanes of the running warp are gone through
  std::exception_ptr failure_;
  bool abandoned_ = false;  // the block has failed and its threads are being unwound
};

/// The machine that the calling thread of the program simulates.
extern constinit thread_local Machine* running_machine;

inline Machine& machine() { return *running_machine; }

}  // namespace flashproof::simulator
