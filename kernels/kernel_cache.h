// Compiled kernels kept in a folder by content: a file an entry, named by the SHA-256 of all that the machine code
// follows from. An entry carries the hash of its own content, so a damaged one is told from a good one.
#pragma once
#include <optional>
#include <string>

#include "kernels/run_time_compiler.h"

namespace flashproof {

/// The entry of this key; nothing where there is none, or it is damaged or no regular file.
std::optional<CompiledKernel> read_cached(const std::string& folder, const std::string& key);

/// Writes symbol, log and machine code, whole or not at all: readers see the old entry or the new one. Gives "", or
/// what the system said.
std::string write_cached(const std::string& folder, const std::string& key, const CompiledKernel&);

}  // namespace flashproof
