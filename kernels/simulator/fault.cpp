#include "kernels/simulator/fault.h"

#include <string_view>

namespace flashproof {

const char* fault_name(FaultKind kind) {
  constexpr const char* names[] = {"race",       "in-flight", "unwritten",     "out-of-bounds", "misaligned",
                                   "divergence", "deadlock",  "unwaited-copy", "read-only"};
  return names[int(kind)];
}

static std::string file_of(const SourcePlace& where) {
  const std::string_view path = where.file;
  return std::string(path.substr(path.rfind('/') + 1));
}

std::string place(const SourcePlace& where) { return file_of(where) + ":" + std::to_string(where.line); }

SimulatedFault::SimulatedFault(FaultKind kind, std::string what, const SourcePlace& where, std::vector<int> threads)
    : kind(kind),
      message(std::string(fault_name(kind)) + ": " + std::move(what)),
      file(file_of(where)),
      line(where.line),
      threads(std::move(threads)) {}

}  // namespace flashproof
