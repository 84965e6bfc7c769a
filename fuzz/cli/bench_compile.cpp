// `bench compile`: the TileConfigs of production and random ones: what `feasible` refuses, what compiles, in what time,
// what spills.
#include "fuzz/cli/bench_compile.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "fuzz/bench/compile_speed.h"
#include "fuzz/bench/quartiles.h"
#include "fuzz/json_text.h"
#include "kernels/flash2_run_time.h"
#include "reference/errors.h"

namespace flashproof {
namespace {

struct Summary {
  std::map<std::string, int64_t> refused;  ///< by reason
  int64_t refused_count = 0, compiled = 0, failed = 0, spilled = 0;
  double median_seconds = 0, largest_seconds = 0;
};

Summary summarise(const std::vector<ConfigCompilation>& all) {
  Summary s;
  std::vector<double> seconds;
  for (const ConfigCompilation& one : all) {
    if (!one.refused.empty()) ++s.refused[one.refused], ++s.refused_count;
    if (!one.error.empty()) ++s.failed;
    if (!one.compiled()) continue;
    ++s.compiled, s.spilled += one.spills();
    seconds.push_back(one.seconds);
  }
  if (seconds.empty()) return s;
  s.median_seconds = quartiles(seconds).median;
  s.largest_seconds = *std::max_element(seconds.begin(), seconds.end());
  return s;
}

JsonText json_of(const std::vector<ConfigCompilation>& all) {
  const Summary s = summarise(all);
  std::vector<JsonMember> reasons;
  for (const auto& [reason, count] : s.refused) reasons.push_back({reason, count});
  std::vector<JsonText> list;
  for (const ConfigCompilation& one : all) {
    std::vector<JsonMember> members = {{"config", flash2::print(one.config)}};
    if (!one.refused.empty()) members.push_back({"refused", one.refused});
    if (!one.error.empty()) members.push_back({"error", one.error});
    if (one.compiled()) members.push_back({"seconds", one.seconds});
    if (one.resources)
      members.insert(members.end(), {{"registers", one.resources->registers},
                                     {"spill_store_bytes", one.resources->spill_store_bytes},
                                     {"spill_load_bytes", one.resources->spill_load_bytes}});
    list.push_back(json_object(members));
  }
  return json_object({{"count", all.size()},
                      {"refused", s.refused_count},
                      {"refused_by_reason", json_object(reasons)},
                      {"compiled", s.compiled},
                      {"failed", s.failed},
                      {"spilled", s.spilled},
                      {"median_seconds", s.median_seconds},
                      {"largest_seconds", s.largest_seconds},
                      {"configs", json_array(list)}});
}

void print_line(const ConfigCompilation& one) {
  fmt::print("    {:<38} {:>5.2f} s", flash2::print(one.config), one.seconds);
  if (one.resources)
    fmt::print("  {:>3} registers, spills {} bytes stored, {} loaded", one.resources->registers,
               one.resources->spill_store_bytes, one.resources->spill_load_bytes);
  fmt::print("\n");
}

void print_summary(const std::vector<ConfigCompilation>& all) {
  const Summary s = summarise(all);
  const double share = 100 / double(std::max<size_t>(all.size(), 1));
  fmt::print("  refused by feasible()   {:>4}  {:>5.1f} %\n", s.refused_count, share * double(s.refused_count));
  for (const auto& [reason, count] : s.refused) fmt::print("    {:>4}  {}\n", count, reason);
  fmt::print("  compiled                {:>4}  {:>5.1f} %, {:.2f} s in the median, at most {:.2f} s\n", s.compiled,
             share * double(s.compiled), s.median_seconds, s.largest_seconds);
  fmt::print("  not compiled            {:>4}\n", s.failed);
  for (const ConfigCompilation& one : all)
    if (!one.error.empty()) fmt::print("    {}\n{}\n", flash2::print(one.config), one.error);
  fmt::print("  spill                   {:>4}\n", s.spilled);
  for (const ConfigCompilation& one : all)
    if (one.spills()) print_line(one);
}

/// A chip that the compiler has no machine code for would fail every TileConfig alike.
void require_chip(const std::string& architecture) {
  std::string why;
  try {
    if (compile_kernel({"__global__ void trial() {}", "trial", architecture}).cubin.empty()) why = "no machine code";
  } catch (const UnavailableError&) {
    throw;
  } catch (const std::runtime_error& error) {
    why = error.what();
  }
  if (!why.empty())
    throw UsageError("--architecture must be a chip that the compiler knows, as sm_90a is, not `" + architecture +
                     "`: " + why);
}

}  // namespace

int bench_compile(const CompileBench& o) {
  std::string reason;
  const std::string compiler = run_time_compiler(compiler_places(), reason);
  require_chip(o.architecture);
  const auto compile = [&](const std::vector<TileConfig>& configs, const char* of) {
    return compile_each(configs, o.architecture, [&](int64_t done) {
      if (done % 10 == 0 || done == int64_t(configs.size()))
        fmt::print(stderr, "bench: {} of {} {} TileConfigs\n", done, configs.size(), of);
    });
  };
  const auto production = compile(production_configs(), "production");
  const auto random = compile(random_configs(o.count, o.seed), "random");
  if (o.json) {
    fmt::print("{}\n", json_object({{"compiler", compiler},
                                    {"architecture", o.architecture},
                                    {"production", json_of(production)},
                                    {"seed", o.seed},
                                    {"random", json_of(random)}})
                           .text());
  } else {
    fmt::print("gpu:flash2 by {}, for {}; seconds of one core\n\n{} production TileConfigs\n", compiler, o.architecture,
               production.size());
    for (const ConfigCompilation& one : production) print_line(one);
    print_summary(production);
    fmt::print("\n{} random TileConfigs, seed {}\n", o.count, o.seed);
    print_summary(random);
  }
  return summarise(production).failed + summarise(random).failed == 0 ? 0 : 1;
}

}  // namespace flashproof
