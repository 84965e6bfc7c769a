// Kernels by name: the built-in ones and plug-ins behind kernels/flashproof_kernel.h.
#pragma once
#include <string>
#include <vector>

#include "kernels/flashproof_kernel.h"
#include "oracle/check.h"
#include "reference/errors.h"

namespace flashproof {

/// A loaded kernel; lives until the process ends.
struct LoadedKernel {
  std::string name;  ///< "cpu:flash2", "gpu:standard", or a plug-in's path
  std::string path;  ///< of the plug-in; "" = built in
  std::string hash;  ///< SHA-256 of the plug-in's file, or the program's version and commit
  const flashproof_kernel* table = nullptr;
};

/// Built-in kernels, "cpu:..." first; "gpu:..." only in builds with CUDA.
std::vector<std::string> builtin_kernels();
/// `name` is a built-in's or a path ending in .so (anything with a '/'). Throws UsageError for an unknown name with the
/// nearest one; UnavailableError for a plug-in that is missing, lacks the symbol, is of another ABI or has a wrong
/// name or convention, with the reason.
const LoadedKernel& load_kernel(const std::string& name);
/// Whether a device that the kernel needs is in this machine; the reason if not.
bool device_available(const LoadedKernel&, std::string& reason);
/// Throws UnavailableError with the reason where it is not.
void require_device(const LoadedKernel&);

/// The problem as the kernel sees it.
flashproof_problem abi_problem(const Problem&);
/// Bits of FLASHPROOF_FEATURE_* that the problem needs.
uint64_t needed_features(const Problem&);
/// The functions of a kernel that describe it.
enum class Question { supports, arithmetic };
const char* name_of(Question);  ///< "supports()", "arithmetic()"
/// Asks in this process. Status rejected with the reason, or ok; the arithmetic's text is the message.
RunResult ask_here(const LoadedKernel&, Question, const Problem&, const std::string& config);

/// A function that describes the kernel crashed, hung or answered what cannot be read: a finding of the case that
/// asked.
struct BadDescription : UnavailableError {
  std::string kind;  ///< of the finding: "crash-in-supports", "timeout-in-arithmetic", ..., "arithmetic"
  BadDescription(const std::string& the_kind, const std::string& what) : UnavailableError(what), kind(the_kind) {}
};

/// Whether the kernel says it takes this problem and config; the reason if not. A plug-in is asked in a process of its
/// own. Throws BadDescription, as subject_of does.
bool supports(const LoadedKernel&, const Problem&, const std::string& config, std::string& reason);
/// What the checks know of the kernel.
Subject subject_of(const LoadedKernel&, const Problem&, const std::string& config);

}  // namespace flashproof
