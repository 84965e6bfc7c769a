// See presets.h.
#include "fuzz/cli/presets.h"

#include "reference/errors.h"
#include "reference/nearest_word.h"

namespace flashproof {

const std::vector<Preset>& presets() {
  static const std::vector<Preset> table = {
      {"smoke", "does it work at all: before each commit", 0, 100, 1e6, 5},
      {"ci", "the same cases in every run of a pipeline", 0, 1000, 3e6, 20},
      {"nightly", "as much as eight hours give, larger cases", 8 * 3600, 0, 2e7, 300},
  };
  return table;
}

const Preset& preset(const std::string& name) {
  std::vector<std::string> names;
  for (const Preset& preset : presets()) {
    if (preset.name == name) return preset;
    names.push_back(preset.name);
  }
  throw UsageError("no preset is called `" + name + "`; did you mean `" + nearest_word(name, names) +
                   "`? `flashproof list presets` shows all");
}

}  // namespace flashproof
