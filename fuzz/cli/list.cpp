// `list`: what there is to name on the command line.
#include <algorithm>

#include <fmt/format.h>

#include "fuzz/case_files.h"
#include "fuzz/cli/presets.h"
#include "fuzz/cli/verbs.h"
#include "fuzz/coverage.h"
#include "fuzz/json_text.h"
#include "oracle/check.h"
#include "reference/errors.h"
#include "reference/nearest_word.h"

namespace flashproof {
namespace {

struct Options {
  std::string what;
  bool json = false;
};

struct Line {
  std::string name, text;
};
struct Section {
  std::string name;
  std::vector<Line> lines;
};

Section kernels() {
  Section section{"kernels", {}};
  for (const std::string& name : builtin_kernels()) {
    const LoadedKernel& kernel = load_kernel(name);
    std::string reason, features;
    for (int f = 0; f < feature_count; ++f)
      if (admits(kernel, Feature(f))) features += (features.empty() ? "" : " ") + std::string(name_of(Feature(f)));
    if (!device_available(kernel, reason)) features = "not here: " + reason + "; " + features;
    if (kernel.table->tunables && *kernel.table->tunables)
      features += std::string("; config: ") + kernel.table->tunables;
    section.lines.push_back({name, features});
  }
  return section;
}

/// What a kernel's table declares.
Section declaration(const LoadedKernel& kernel) {
  const flashproof_kernel& table = *kernel.table;
  const bool cuda = table.memory == FLASHPROOF_CUDA;
  std::string reason, dtypes, features;
  for (int f = 0; f < feature_count; ++f) {
    std::string& names = Feature(f) < Feature::batch ? dtypes : features;
    if (admits(kernel, Feature(f))) names += (names.empty() ? "" : " ") + std::string(name_of(Feature(f)));
  }
  std::string dims = fmt::format("multiples of {}", std::max<int64_t>(1, table.head_dim_multiple));
  if (table.max_head_dim > 0) dims += fmt::format(" up to {}", table.max_head_dim);
  return {kernel.name,
          {{"name", fmt::format("{} {}", table.name, table.version)},
           {"memory", device_available(kernel, reason) ? cuda ? "CUDA" : "host" : "CUDA, not here: " + reason},
           {"dtypes", table.dtypes == 0 ? "not declared: supports() is asked" : dtypes},
           {"head dims", dims},
           {"features", features},
           {"conventions", print(table.conventions)},
           {"tunables", table.tunables && *table.tunables ? table.tunables : "none"},
           {"arithmetic", table.arithmetic ? "declared for each problem; `flashproof bound CASE --kernel` shows it"
                                           : "not declared: bounds take the worst case"}}};
}

Section checks() {
  Section section{"checks", {}};
  for (const Check& check : all_checks()) section.lines.push_back({check.id, check.guarantee});
  return section;
}

Section families() {
  Section section{"families", {}};
  for (int f = 0; f < family_count; ++f) {
    const Parameters parameters = default_parameters(Family(f));
    std::string text = parameters.count == 0 ? "no parameter" : fmt::format("a = {:g}", parameters.a);
    if (parameters.count == 2) text += fmt::format(", b = {:g}", parameters.b);
    section.lines.push_back({name_of(Family(f)), text});
  }
  return section;
}

Section features() {
  Section section{"features", {}};
  for (int f = 0; f < feature_count; ++f) {
    std::string kernels;
    for (const std::string& name : builtin_kernels())
      if (admits(load_kernel(name), Feature(f))) kernels += (kernels.empty() ? "" : " ") + name;
    section.lines.push_back({name_of(Feature(f)), kernels.empty() ? "no built-in kernel" : kernels});
  }
  return section;
}

Section preset_section() {
  Section section{"presets", {}};
  for (const Preset& p : presets()) {
    const std::string budget = p.cases > 0 ? fmt::format("{} cases", p.cases) : print_duration(p.seconds);
    section.lines.push_back({p.name, fmt::format("{}: {}, {:g} multiply-adds a case", p.purpose, budget, p.work)});
  }
  return section;
}

constexpr Section (*sections[])() = {kernels, checks, families, features, preset_section};
const std::vector<std::string> section_names = {"kernels", "checks", "families", "features", "presets"};

bool is_kernel(const std::string& name) {
  const std::vector<std::string> builtin = builtin_kernels();
  return name.find('/') != std::string::npos || name.ends_with(".so") ||
         std::find(builtin.begin(), builtin.end(), name) != builtin.end();
}

std::vector<Section> sections_of(const std::string& what) {
  if (is_kernel(what)) return {declaration(load_kernel(what))};
  std::vector<Section> wanted;
  for (size_t s = 0; s < section_names.size(); ++s)
    if (what.empty() || section_names[s] == what) wanted.push_back(sections[s]());
  if (wanted.empty())
    throw UsageError("there is no list of `" + what + "`; did you mean `" + nearest_word(what, section_names) +
                     "`?\n  example: flashproof list kernels, or list ./mine.so");
  return wanted;
}

int list(const Options& options) {
  std::vector<JsonMember> json;
  for (const Section& section : sections_of(options.what)) {
    std::vector<JsonMember> members;
    if (!options.json) fmt::print("{}\n", section.name);
    for (const Line& line : section.lines) {
      members.push_back({line.name, line.text});
      if (!options.json) fmt::print("  {:<16} {}\n", line.name, line.text);
    }
    json.push_back({section.name, json_object(members)});
  }
  if (options.json) fmt::print("{}\n", json_object(json).text());
  return 0;
}

}  // namespace

void add_list(CommandLine& line) {
  auto options = std::make_shared<Options>();
  line.verb("list", "what is there: kernels, checks, families, features, presets; or what one kernel declares",
            "list kernels", [options] { return list(*options); })
      .word("what", options->what, false,
            "kernels, checks, families, features or presets, all without; or a kernel: its declarations")
      .flag("--json", options->json, "one JSON object on stdout");
}

}  // namespace flashproof
