// Runs a kernel on a case in a worker process, with every buffer laid out as the problem says, poisoned and watched.
//
// A worker loads one kernel and serves runs over a socket; a crash, a hang or a sticky device error costs one
// run and the worker, never the campaign. Around every buffer lie red zones; outputs and workspace hold poison; inputs
// are compared after the call.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "fuzz/kernel_library.h"
#include "oracle/check.h"

namespace flashproof {

struct Limits {
  double seconds = 20;              ///< wall time of one run, then the worker is killed: a finding of kind "timeout"
  int64_t memory_bytes = 8l << 30;  ///< address space of a CPU worker (RLIMIT_AS); 0 = none
};

/// One worker process; not thread-safe, use one a thread.
class Worker {
 public:
  Worker(const std::string& kernel, const Limits& limits);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Runs the kernel; starts or restarts the process as needed. Never throws for what the kernel does.
  RunResult run(const Run& run, const std::string& config);
  /// Asks the kernel in the process; besides what ask_here answers, status crash or timeout. No outputs.
  RunResult ask(Question, const Problem&, const std::string& config);
  int process() const;  ///< pid, or -1

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The same in this process (worker side, and `--in-process` for debuggers).
RunResult run_in_process(const LoadedKernel&, const Run&, const std::string& config);

/// Serves runs on the file descriptors until the other side closes: what `flashproof worker` does. Returns an exit
/// code.
int serve_runs(const std::string& kernel, int input, int output);

}  // namespace flashproof
