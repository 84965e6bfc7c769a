// Costs as a table and as JSON; see cost_text.h.
#include "fuzz/cli/cost_text.h"

#include <stdexcept>

#include <fmt/format.h>

namespace flashproof {
namespace {

constexpr const char* row_format = "  {:<15} {:>14} {:>14} {:>11} {:>11} {:>13} {:>11}\n";

JsonText json_of_array(const ArrayCost& a) {
  return json_object({{"loaded", a.loaded}, {"stored", a.stored}, {"extent", a.extent}, {"tile_bytes", a.tile_bytes}});
}

JsonText json_of_move(const Problem& p, const Move& m) {
  return json_object({{"source", std::string(m.source)},
                      {"array", name_of(m.array)},
                      {"stored", m.is_store},
                      {"elements", m.elements},
                      {"bytes", m.elements * element_bytes(p, m.array)}});
}

}  // namespace

Cost cost_of(const Problem& p, const std::string& algorithm, Pass pass, const Schedule& schedule) {
  Cost form = cost_closed_form(p, algorithm, pass, schedule);
  if (!is_small_enough_to_run(p)) return form;
  Cost counted = cost_by_running(p, algorithm, pass, schedule);
  if (counted.operations != form.operations || counted.arrays != form.arrays)
    throw std::runtime_error("the count of " + algorithm + " is not its closed form for `" + print(p) + "`");
  return counted;
}

std::string print_bytes(int64 bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  int unit = 0;
  double amount = double(bytes);
  for (; amount >= 1024 && unit < 5; ++unit) amount /= 1024;
  return fmt::format("{:.4g} {}", amount, units[unit]);
}

std::string cost_heading(const std::string& pass) {
  return fmt::format(fmt::runtime(row_format), pass, "multiply-adds", "other op.s", "read", "written", "extra memory",
                     "on chip");
}

std::string cost_line(const Problem& p, const std::string& algorithm, const Cost& cost) {
  const int64 on_chip = on_chip_bytes(cost);
  return fmt::format(fmt::runtime(row_format), algorithm, fmt::format("{:.5g}", double(cost.operations.multiply_adds)),
                     fmt::format("{:.5g}", double(other_operations(cost.operations))),
                     print_bytes(loaded_bytes(p, cost)), print_bytes(stored_bytes(p, cost)),
                     print_bytes(extra_bytes(p, cost)), on_chip > 0 ? print_bytes(on_chip) : "-");
}

JsonText json_of(const Problem& p, const Cost& cost) {
  const Operations& o = cost.operations;
  const int64 on_chip = on_chip_bytes(cost);
  std::vector<JsonMember> arrays;
  for (int a = 0; a < array_count; ++a)
    if (cost[Array(a)] != ArrayCost()) arrays.push_back({name_of(Array(a)), json_of_array(cost[Array(a)])});
  std::vector<JsonText> moves;
  for (const Move& move : cost.moves) moves.push_back(json_of_move(p, move));
  return json_object({{"multiply_adds", o.multiply_adds},
                      {"exponentials", o.exponentials},
                      {"logarithms", o.logarithms},
                      {"additions", o.additions},
                      {"multiplications", o.multiplications},
                      {"divisions", o.divisions},
                      {"comparisons", o.comparisons},
                      {"bytes_read", loaded_bytes(p, cost)},
                      {"bytes_written", stored_bytes(p, cost)},
                      {"extra_bytes", extra_bytes(p, cost)},
                      {"on_chip_bytes", on_chip > 0 ? JsonText(on_chip) : JsonText::raw("null")},
                      {"arrays", json_object(arrays)},
                      {"moves", json_array(moves)}});
}

}  // namespace flashproof
