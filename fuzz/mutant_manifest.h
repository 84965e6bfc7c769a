// The planted bugs of a folder: DIR/manifest.json, made by tests/mutants.
#pragma once
#include <string>
#include <vector>

namespace flashproof {

struct Mutant {
  std::string name, title, category;
  std::string base;     ///< the right kernel that it was made from, e.g. "cpu:flash2"
  std::string library;  ///< path of the plug-in
  bool demo = false;    ///< `fuzz` shows its alarm on it
};

/// Throws UsageError naming the entry and the member that is wrong, UnavailableError when there is no manifest.
std::vector<Mutant> read_mutants(const std::string& directory);

}  // namespace flashproof
