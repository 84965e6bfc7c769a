// `cost`: multiply-adds, other operations, bytes moved and memory of each algorithm on a problem.
#include <charconv>

#include <fmt/format.h>

#include "fuzz/cli/cost_presets.h"
#include "fuzz/cli/cost_text.h"
#include "fuzz/cli/options.h"
#include "fuzz/cli/verbs.h"
#include "reference/errors.h"
#include "reference/nearest_word.h"

namespace flashproof {
namespace {

struct Options {
  std::vector<std::string> words;
  std::string preset, algorithm = "all", tile = "128x128";
  int64_t parts = 8;
  bool json = false;
};

TileSize tile_of(const std::string& text) {
  TileSize tile;
  const char *begin = text.data(), *end = begin + text.size();
  const auto rows = std::from_chars(begin, end, tile.rows);
  if (rows.ec == std::errc() && rows.ptr != end && *rows.ptr == 'x') {
    const auto keys = std::from_chars(rows.ptr + 1, end, tile.keys);
    if (keys.ec == std::errc() && keys.ptr == end) return tile;
  }
  throw UsageError("--tile: `" + text +
                   "` is no ROWSxKEYS\n  example: flashproof cost 'bf16 q1024 k1024' --tile 64x128");
}

int run_preset(const Options& o) {
  if (!o.words.empty()) throw UsageError("give a problem or --preset, not both");
  if (o.preset == "lesson") return cost_lesson(o.json);
  if (o.preset == "gpt2-medium") return cost_gpt2_medium(o.json);
  throw UsageError("no preset of cost is called `" + o.preset + "`; did you mean `" +
                   nearest_word(o.preset, {"lesson", "gpt2-medium"}) + "`?");
}

const char* name_of(Pass pass) { return pass == Pass::forward ? "forward" : "backward"; }

/// The passes of the problem.
std::vector<Pass> passes_of(const Problem& p) {
  if (p.direction == Direction::backward_exact) return {Pass::backward};
  if (p.direction == Direction::backward) return {Pass::forward, Pass::backward};
  return {Pass::forward};
}

/// The algorithms asked for, `all` without those that have no such pass.
std::vector<std::string> algorithms_of(const Options& o, Pass pass) {
  if (o.algorithm != "all") return {o.algorithm};
  std::vector<std::string> names;
  for (const std::string& name : costed_algorithms())
    if (pass == Pass::forward || has_costed_backward(name)) names.push_back(name);
  return names;
}

/// The costs of one pass, by algorithm.
struct PassCosts {
  Pass pass;
  std::vector<std::pair<std::string, Cost>> costs;
};
std::vector<PassCosts> costs_of(const Options& o, const Problem& p, const Schedule& schedule) {
  std::vector<PassCosts> all;
  for (const Pass pass : passes_of(p)) {
    all.push_back({pass, {}});
    for (const std::string& name : algorithms_of(o, pass))
      all.back().costs.push_back({name, cost_of(p, name, pass, schedule)});
  }
  return all;
}

void print_json(const Options& o, const Problem& p, const std::vector<PassCosts>& all) {
  std::vector<JsonMember> members = {{"problem", print(p)},
                                     {"tile", o.tile},
                                     {"parts", o.parts},
                                     {"counted", is_small_enough_to_run(p) ? "by running" : "closed form"}};
  for (const PassCosts& pass : all) {
    std::vector<JsonMember> costs;
    for (const auto& [name, cost] : pass.costs) costs.push_back({name, json_of(p, cost)});
    members.push_back({name_of(pass.pass), json_object(costs)});
  }
  fmt::print("{}\n", json_object(members).text());
}

void print_moves(const Problem& p, const Cost& cost) {
  for (const Move& move : cost.moves)
    fmt::print("    {:<42} {:<6} {:<7} {:>14} elements {:>12}\n", move.source, move.is_store ? "write" : "read",
               name_of(move.array), move.elements, print_bytes(move.elements * element_bytes(p, move.array)));
}

int cost_verb(const Options& o) {
  if (!o.preset.empty()) return run_preset(o);
  if (o.words.empty())
    throw UsageError(
        "cost needs a problem or --preset\n  example: flashproof cost 'bf16 b4 h16 q1024 k1024 d64 causal'");
  const Problem p = parse_problem(joined(o.words));
  const Schedule schedule{tile_of(o.tile), o.parts};
  const std::vector<PassCosts> all = costs_of(o, p, schedule);
  if (o.json) return print_json(o, p, all), 0;
  fmt::print("{}\ntiles of {} rows by {} keys, {} parts of flash_decoding; {}\n", print(p), schedule.tile.rows,
             schedule.tile.keys, o.parts,
             is_small_enough_to_run(p) ? "counted by running each algorithm, and equal to the closed form"
                                       : "in closed form, as more than 2^22 scores a head take long to run");
  for (const PassCosts& pass : all) {
    fmt::print("\n{}", cost_heading(name_of(pass.pass)));
    for (const auto& [name, cost] : pass.costs) {
      fmt::print("{}", cost_line(p, name, cost));
      if (o.algorithm != "all") print_moves(p, cost);
    }
  }
  return 0;
}

}  // namespace

void add_cost(CommandLine& line) {
  auto o = std::make_shared<Options>();
  line.verb("cost", "operations, bytes and memory of each algorithm", "cost 'bf16 b4 h16 q1024 k1024 d64 causal bwd'",
            [o] { return cost_verb(*o); })
      .option("--algorithm", o->algorithm,
              fmt::format("{}, or all (all); one alone is shown line by line", fmt::join(costed_algorithms(), ", "))
                  .c_str())
      .option("--tile", o->tile, "rows and keys a tile, as ROWSxKEYS (128x128)")
      .option("--parts", o->parts, "parts of the keys in flash_decoding (8)")
      .option("--preset", o->preset,
              "lesson (scores against row statistics) or gpt2-medium (FlashAttention's Figure 2)")
      .flag("--json", o->json, "one JSON object on stdout")
      .words("PROBLEM", o->words, false, "the problem's text (reference/README.md)");
}

}  // namespace flashproof
