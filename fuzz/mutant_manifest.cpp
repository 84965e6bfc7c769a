// See mutant_manifest.h.
#include "fuzz/mutant_manifest.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include <nlohmann/json.hpp>

#include "reference/errors.h"

namespace flashproof {

std::vector<Mutant> read_mutants(const std::string& directory) {
  const std::string path = directory + "/manifest.json";
  std::ifstream in(path);
  if (!in) throw UnavailableError("cannot read " + path + ": " + std::strerror(errno));
  const nlohmann::json json = nlohmann::json::parse(in, nullptr, false);
  if (!json.is_object() || json.value("format", "") != "flashproof-mutants" || !json["mutants"].is_array())
    throw UsageError(path + " is no list of planted bugs; the build target `flashproof_mutants` makes one");
  std::vector<Mutant> mutants;
  for (const auto& entry : json["mutants"]) {
    for (const char* key : {"name", "title", "category", "base", "library"})
      if (!entry.is_object() || !entry.contains(key) || !entry[key].is_string())
        throw UsageError(path + ": entry " + std::to_string(mutants.size()) + " has no text `" + key + "`");
    mutants.push_back({entry["name"], entry["title"], entry["category"], entry["base"],
                       directory + "/" + entry["library"].get<std::string>(), entry.value("demo", false)});
  }
  return mutants;
}

}  // namespace flashproof
