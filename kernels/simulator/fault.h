// What the simulated multiprocessor finds wrong with a kernel.
#pragma once
#include <array>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "reference/formats.h"

namespace flashproof {

enum class FaultKind {
  race,           ///< two accesses, at least one a write, that no barrier orders
  in_flight,      ///< an access to bytes that an asynchronous copy owns until it has been waited for
  unwritten,      ///< a read of shared memory that the block has not written
  out_of_bounds,  ///< an address outside the dynamic shared memory or outside every registered region
  misaligned,     ///< an address that is not a multiple of the access's size
  divergence,     ///< lanes of a warp, or warps of a block, that do not meet at the same collective operation
  deadlock,       ///< no thread can run
  unwaited_copy,  ///< a thread that ends before its copies have been waited for
  read_only,      ///< a write to a region that the kernel only reads
};

/// A line of the kernel. As the default of a function's last parameter, `here()` is the line that calls the function.
struct SourcePlace {
  const char* file = "";
  int line = 0;

  static constexpr SourcePlace here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

/// "race", "in-flight", "unwritten", ...
const char* fault_name(FaultKind);

/// Thrown out of `simulate`: the violation, where in the kernel, which threads (of the block), and the seed that
/// replays it.
struct SimulatedFault : std::exception {
  SimulatedFault(FaultKind kind, std::string what, const SourcePlace& where, std::vector<int> threads);
  const char* what() const noexcept override { return message.c_str(); }

  FaultKind kind;
  std::string message;
  std::string file;  ///< without its folder
  int line;
  std::array<int, 3> block{};
  std::vector<int> threads;
  uint64 seed = 0;
};

/// "flash2.cuh:120", without the folder.
std::string place(const SourcePlace&);

}  // namespace flashproof
