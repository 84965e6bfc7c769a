// The simulated threads' stacks: fibers that hand the processor to each other by name.
//
// Fiber i runs work(i) each time it is entered from rest; work returns the fiber to go on with, and fiber i rests until
// it is entered again. A fiber that calls resume(j) in the middle of its work stays there until somebody resumes it.
// The program that started them is fiber `host`. Stacks are kept: entering a fiber costs a jump, not an allocation.
#pragma once
#include <functional>
#include <memory>

namespace flashproof::simulator {

class Fibers {
 public:
  static constexpr int host = -1;

  Fibers();
  ~Fibers();

  /// From now on there are at least `count` fibers and each runs `work`, which must not throw. Every fiber is at rest.
  void prepare(int count, std::function<int(int)> work);

  /// Leaves the running fiber and goes on with fiber `next`; returns when somebody resumes the one that called.
  void resume(int next);

  int running() const { return running_; }

 private:
  struct Slot;
  Slot& slot(int fiber);
  void enter(int fiber);

  std::unique_ptr<Slot[]> slots_;  // of the host, then of each fiber
  int count_ = 0;
  int running_ = host, left_ = host;  // who runs, and who ran before
  bool ending_ = false;
  std::function<int(int)> work_;
};

}  // namespace flashproof::simulator
