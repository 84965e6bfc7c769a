// Calls a kernel on a case in this process: data, memory, forward, backward, what became of memory, logical outputs.
#pragma once
#include <functional>
#include <string>

#include "fuzz/kernel_library.h"
#include "oracle/check.h"

namespace flashproof {

struct CallOutcome {
  RunResult result;
  bool device_lost = false;  ///< the CUDA context is gone: this process can run nothing more
};

/// `inside(true)` is called before the kernel's code runs, `inside(false)` after it (and its stream) is done.
/// Throws for what is wrong with the case or the machine, never for what the kernel does short of a crash.
CallOutcome call_kernel(const LoadedKernel&, const Run&, const std::string& config,
                        const std::function<void(bool)>& inside);

}  // namespace flashproof
