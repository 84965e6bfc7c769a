// The presets of `cost`; see cost_presets.h.
#include "fuzz/cli/cost_presets.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "fuzz/cli/cost_text.h"

namespace flashproof {
namespace {

Problem square_problem(const char* words, int64 n) { return parse_problem(fmt::format("{} q{} k{}", words, n, n)); }

constexpr const char* lesson_words = "bf16 h32 d128";

/// The published choice of tiles; of `rabe_staats` a constant chunk of queries and sqrt(N) keys (2112.05682, section
/// 4).
Schedule lesson_schedule(const std::string& algorithm, int64 n) {
  if (algorithm == "rabe_staats") return {{1024, int64(std::ceil(std::sqrt(double(n))))}, 8};
  return {{128, 128}, 8};
}

constexpr int64 lesson_lengths[] = {1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144};

int64 lesson_memory(const std::string& algorithm, int64 n) {
  const Problem p = square_problem(lesson_words, n);
  return extra_bytes(p, cost_closed_form(p, algorithm, Pass::forward, lesson_schedule(algorithm, n)));
}

int print_lesson_json(const Problem& p, int64 scores, int64 rows) {
  std::vector<JsonMember> costs;
  for (const std::string& algorithm : costed_algorithms())
    costs.push_back(
        {algorithm, json_of(p, cost_of(p, algorithm, Pass::forward, lesson_schedule(algorithm, p.q.slot)))});
  std::vector<JsonText> memory;
  for (const int64 n : lesson_lengths) {
    std::vector<JsonMember> line = {{"tokens", n}};
    for (const std::string& algorithm : costed_algorithms()) line.push_back({algorithm, lesson_memory(algorithm, n)});
    memory.push_back(json_object(line));
  }
  fmt::print("{}\n", json_object({{"preset", "lesson"},
                                  {"problem", print(p)},
                                  {"counted", "closed form"},
                                  {"score_bytes", scores},
                                  {"row_statistics_bytes", rows},
                                  {"forward", json_object(costs)},
                                  {"extra_bytes_by_length", json_array(memory)}})
                         .text());
  return 0;
}

// ---- FlashAttention's Figure 2

constexpr const char* gpt2_words = "fp16 b64 h16 d64 bwd";
constexpr double published_standard_gb = 40.3, published_flash_gb = 4.4;
constexpr double published_standard_gflop = 66.6, published_flash_gflop = 75.2;

/// Algorithm 1, line 1: ceil(M / 4d) keys and min(ceil(M / 4d), d) rows for the M = 192 KiB of an A100's multiprocessor
/// (section 2.1), which are 98304 numbers in fp16.
Schedule gpt2_schedule() {
  const int64 d = 64, keys = (192 * 1024 / 2 + 4 * d - 1) / (4 * d);
  return {{std::min(keys, d), keys}, 1};
}

/// Forward and backward.
struct BothPasses {
  Cost forward, backward;
};
BothPasses both_passes(const Problem& p, const std::string& algorithm, const Schedule& schedule) {
  return {cost_of(p, algorithm, Pass::forward, schedule), cost_of(p, algorithm, Pass::backward, schedule)};
}
int64 traffic(const Problem& p, const Cost& cost) { return loaded_bytes(p, cost) + stored_bytes(p, cost); }
int64 traffic(const Problem& p, const BothPasses& both) { return traffic(p, both.forward) + traffic(p, both.backward); }
double giga(double x) { return x / 1e9; }

/// What a move is measured in: an [N, d] array, an [N, N] array, or a number a row in fp32, over all heads.
enum class Unit { nd, n2, rows };
constexpr const char* unit_names[] = {"Nd", "N^2", "rows"};
Unit unit_of(Array a) {
  if (!is_extra(a)) return Unit::nd;
  return a == Array::s || a == Array::p || a == Array::dp || a == Array::ds ? Unit::n2 : Unit::rows;
}
int64 unit_elements(const Problem& p, Unit unit) {
  const int64 rows = p.batch * p.heads * p.q.slot;
  return unit == Unit::rows ? rows : rows * (unit == Unit::nd ? p.head_dim : p.k.slot);
}
int64 unit_bytes(const Problem& p, Unit unit) { return unit_elements(p, unit) * (unit == Unit::rows ? 4 : 2); }

/// Passes of each unit.
using Passes = std::array<double, 3>;
Passes passes_of(const Problem& p, const BothPasses& both) {
  Passes sum{};
  for (const Cost* cost : {&both.forward, &both.backward})
    for (const Move& move : cost->moves) {
      const Unit unit = unit_of(move.array);
      sum[size_t(unit)] += double(move.elements) / double(unit_elements(p, unit));
    }
  return sum;
}

std::string print_passes(const Passes& passes) {
  std::string text;
  for (int unit = 0; unit < 3; ++unit)
    if (passes[size_t(unit)] != 0)
      text += fmt::format("{}{:g} {}", text.empty() ? "" : " + ", passes[size_t(unit)], unit_names[unit]);
  return text;
}

void print_moves(const Problem& p, const char* title, const BothPasses& both, double published_gb, Unit differing) {
  fmt::print("\n{}\n", title);
  for (const Cost* cost : {&both.forward, &both.backward})
    for (const Move& move : cost->moves) {
      const Unit unit = unit_of(move.array);
      fmt::print("  {:<32} {:<6} {:<3} {:>6g} {:<5} {:>8.4f} GB\n", move.source, move.is_store ? "write" : "read",
                 name_of(move.array), double(move.elements) / double(unit_elements(p, unit)), unit_names[int(unit)],
                 giga(double(move.elements * element_bytes(p, move.array))));
    }
  const double gb = giga(double(traffic(p, both)));
  fmt::print("  in all {} = {:.2f} GB; published {} GB, which is {:+.2f} GB = {:+.1f} passes of {}\n",
             print_passes(passes_of(p, both)), gb, published_gb, published_gb - gb,
             (published_gb - gb) / giga(double(unit_bytes(p, differing))), unit_names[int(differing)]);
}

/// GFLOP over `heads` heads: two a multiply-add, and one any other operation.
struct Flops {
  double products, others;
};
Flops flops_of(const Problem& p, const BothPasses& both, double heads) {
  const double share = heads / double(p.batch * p.heads);
  const Operations &f = both.forward.operations, &b = both.backward.operations;
  return {giga(2 * double(f.multiply_adds + b.multiply_adds) * share),
          giga(double(other_operations(f) + other_operations(b)) * share)};
}

void print_flops(const Problem& p, const BothPasses& standard, const BothPasses& flash) {
  fmt::print("\nGFLOP (two a multiply-add, one any other operation)\n  {:<34} {:>9} {:>9} {:>9} {:>10}\n", "",
             "products", "others", "all", "published");
  const auto line = [&](const char* name, const BothPasses& both, double heads, double published) {
    const Flops f = flops_of(p, both, heads);
    fmt::print("  {:<34} {:>9.1f} {:>9.1f} {:>9.1f} {:>10}\n", fmt::format("{}, {} heads", name, heads), f.products,
               f.others, f.products + f.others, published);
  };
  const double all = double(p.batch * p.heads), one = double(p.batch);
  for (const double heads : {all, one}) {
    line("standard", standard, heads, published_standard_gflop);
    line("flash1", flash, heads, published_flash_gflop);
  }
  fmt::print(
      "  The published two differ by {:.1f}; our products by {:.2f} over {} heads, one an entry: the S computed "
      "again.\n"
      "  Over all {} heads that is {:.1f}: the published row does not fit the 16 heads of the caption.\n",
      published_flash_gflop - published_standard_gflop,
      flops_of(p, flash, one).products - flops_of(p, standard, one).products, one, all,
      flops_of(p, flash, all).products - flops_of(p, standard, all).products);
}

struct RatioLine {
  int64 tokens;
  double forward, both;
};
/// Bytes of `standard` over bytes of `flash1`, in closed form: no ratio depends on the count of heads.
std::vector<RatioLine> traffic_ratios() {
  std::vector<RatioLine> lines;
  for (int64 n = 128; n <= 65536; n *= 2) {
    const Problem p = square_problem("fp16 d64 bwd", n);
    const auto form = [&](const char* algorithm, Pass pass) {
      return double(traffic(p, cost_closed_form(p, algorithm, pass, gpt2_schedule())));
    };
    const double sf = form("standard", Pass::forward), sb = form("standard", Pass::backward);
    const double ff = form("flash1", Pass::forward), fb = form("flash1", Pass::backward);
    lines.push_back({n, sf / ff, (sf + sb) / (ff + fb)});
  }
  return lines;
}

double largest_ratio(const std::vector<RatioLine>& lines) {
  double largest = 0;
  for (const RatioLine& line : lines) largest = std::max({largest, line.forward, line.both});
  return largest;
}

/// `lean`: less the zeros written (O, dQ, dK, dV) and read (O, dQ at the first tile of keys), and O for D after the
/// first.
struct TileLine {
  int64 keys;
  double gb, lean_gb;
};
std::vector<TileLine> traffic_by_tile(const Problem& p) {
  std::vector<TileLine> lines;
  for (const int64 keys : {64, 128, 256, 384, 512, 1024}) {
    const Schedule schedule{{64, keys}, 1};
    const int64 bytes = traffic(p, cost_closed_form(p, "flash1", Pass::forward, schedule)) +
                        traffic(p, cost_closed_form(p, "flash1", Pass::backward, schedule));
    const int64 key_tiles = (p.k.slot + keys - 1) / keys, left_out = 4 + 2 + (key_tiles - 1);
    lines.push_back({keys, giga(double(bytes)), giga(double(bytes - left_out * unit_bytes(p, Unit::nd)))});
  }
  return lines;
}

void print_tile_sizes(const Problem& p) {
  fmt::print(
      "\nflash1 by keys a tile (64 rows); lean: a kernel that neither writes nor reads the zeros before the first tile "
      "and "
      "makes D once\n  {:>8} {:>9} {:>9}\n",
      "keys", "GB", "lean GB");
  for (const TileLine& line : traffic_by_tile(p))
    fmt::print("  {:>8} {:>9.2f} {:>9.2f}\n", line.keys, line.gb, line.lean_gb);
}

JsonText json_of_both(const Problem& p, const BothPasses& both, double published_gb, Unit differing,
                      double published_gflop) {
  const Passes passes = passes_of(p, both);
  const double gb = giga(double(traffic(p, both)));
  std::vector<JsonMember> members = {
      {"forward", json_of(p, both.forward)},
      {"backward", json_of(p, both.backward)},
      {"passes_nd", passes[0]},
      {"passes_n2", passes[1]},
      {"passes_rows", passes[2]},
      {"gb", gb},
      {"published_gb", published_gb},
      {"passes_published_has_more", (published_gb - gb) / giga(double(unit_bytes(p, differing)))},
      {"published_gflop", published_gflop}};
  for (const int64 heads : {p.batch * p.heads, p.batch}) {
    const Flops f = flops_of(p, both, double(heads));
    members.push_back(
        {fmt::format("gflop_{}_heads", heads), json_object({{"products", f.products}, {"others", f.others}})});
  }
  return json_object(members);
}

}  // namespace

int cost_lesson(bool json) {
  const Problem p = square_problem(lesson_words, 32768);
  const Cost standard = cost_of(p, "standard", Pass::forward, lesson_schedule("standard", p.q.slot));
  const Cost flash2 = cost_of(p, "flash2", Pass::forward, lesson_schedule("flash2", p.q.slot));
  const int64 scores = standard[Array::s].extent * element_bytes(p, Array::s);
  const int64 rows = flash2[Array::lse].extent * element_bytes(p, Array::lse);
  if (json) return print_lesson_json(p, scores, rows);
  fmt::print(
      "{}\nin closed form; tiles of 128 rows by 128 keys, 8 parts of flash_decoding; rabe_staats in chunks of 1024 "
      "queries by sqrt(N) keys\n\n{}",
      print(p), cost_heading("forward"));
  for (const std::string& algorithm : costed_algorithms())
    fmt::print("{}",
               cost_line(p, algorithm, cost_of(p, algorithm, Pass::forward, lesson_schedule(algorithm, p.q.slot))));
  fmt::print(
      "\nstandard keeps the scores S: {}, and P: {}\nflash2 keeps one number a row, L: {} ({} times less than S)\n",
      print_bytes(scores), print_bytes(standard[Array::p].extent * element_bytes(p, Array::p)), print_bytes(rows),
      scores / rows);
  fmt::print("\nextra memory by length\n  {:>8}", "tokens");
  for (const std::string& algorithm : costed_algorithms()) fmt::print(" {:>14}", algorithm);
  for (const int64 n : lesson_lengths) {
    fmt::print("\n  {:>8}", n);
    for (const std::string& algorithm : costed_algorithms())
      fmt::print(" {:>14}", print_bytes(lesson_memory(algorithm, n)));
  }
  fmt::print("\n  {:>8}", "x2 gives");
  for (const std::string& algorithm : costed_algorithms())
    fmt::print(" {:>14}", fmt::format("x{:.3g}", double(lesson_memory(algorithm, lesson_lengths[8])) /
                                                     double(lesson_memory(algorithm, lesson_lengths[7]))));
  fmt::print("\n");
  return 0;
}

int cost_gpt2_medium(bool json) {
  const Problem p = square_problem(gpt2_words, 1024);
  const Schedule schedule = gpt2_schedule();
  const BothPasses standard = both_passes(p, "standard", schedule), flash = both_passes(p, "flash1", schedule);
  const std::vector<RatioLine> ratios = traffic_ratios();
  if (json) {
    std::vector<JsonText> lines, tiles;
    for (const TileLine& t : traffic_by_tile(p))
      tiles.push_back(json_object({{"keys", t.keys}, {"gb", t.gb}, {"lean_gb", t.lean_gb}}));
    for (const RatioLine& r : ratios)
      lines.push_back(json_object({{"tokens", r.tokens}, {"forward", r.forward}, {"forward_and_backward", r.both}}));
    fmt::print(
        "{}\n",
        json_object({{"preset", "gpt2-medium"},
                     {"problem", print(p)},
                     {"tile", fmt::format("{}x{}", schedule.tile.rows, schedule.tile.keys)},
                     {"standard", json_of_both(p, standard, published_standard_gb, Unit::n2, published_standard_gflop)},
                     {"flash1", json_of_both(p, flash, published_flash_gb, Unit::nd, published_flash_gflop)},
                     {"flash1_by_tile", json_array(tiles)},
                     {"traffic_ratio_by_length", json_array(lines)}})
            .text());
    return 0;
  }
  fmt::print(
      "{}\nThe setting of FlashAttention's Figure 2 (2205.14135): GPT-2 medium on an A100, forward and backward; "
      "counted by running.\nOne pass over all heads: Nd {:.4f} GB, N^2 {:.3f} GB, a number a row (fp32) {:.4f} GB.\n",
      print(p), giga(double(unit_bytes(p, Unit::nd))), giga(double(unit_bytes(p, Unit::n2))),
      giga(double(unit_bytes(p, Unit::rows))));
  print_moves(p, "standard, Algorithms 0 and 3", standard, published_standard_gb, Unit::n2);
  fmt::print(
      "  The paper does not list the passes of its figure. Algorithms 0 and 3 have no pass of their own for scale, "
      "mask and dropout;\n  the program that was measured may.\n");
  print_moves(p,
              fmt::format("flash1, Algorithms 1 and 4, tiles of {} rows by {} keys (Algorithm 1, line 1, for 192 KiB)",
                          schedule.tile.rows, schedule.tile.keys)
                  .c_str(),
              flash, published_flash_gb, Unit::nd);
  print_tile_sizes(p);
  print_flops(p, standard, flash);
  fmt::print("\ntraffic of standard / flash1 (in closed form, d 64, tiles as above)\n  {:>8} {:>9} {:>22}\n", "tokens",
             "forward", "forward and backward");
  for (const RatioLine& r : ratios) fmt::print("  {:>8} {:>9.2f} {:>22.2f}\n", r.tokens, r.forward, r.both);
  fmt::print("  largest {:.2f}; published: up to 9, and {:.1f} at 1024 tokens from the figure\n", largest_ratio(ratios),
             published_standard_gb / published_flash_gb);
  return 0;
}

}  // namespace flashproof
