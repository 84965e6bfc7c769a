#include "fuzz/explain/pattern.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include <fmt/format.h>

namespace flashproof {
namespace {

/// One judged element with what the conditions ask of it.
struct Spot {
  Where at;
  int64_t length = 0;                       ///< rows or keys of the entry
  int64_t visible = 0, first = 0, end = 0;  ///< keys that the row sees, as the mask has them; of a row's outputs
  bool by_key = false, wrong = false;
};

struct Condition {
  std::string words;
  std::function<bool(const Spot&)> holds;
};

struct Extents {
  int64_t group = 1, tile_m = 0, tile_n = 0;
  const char* position = "row";
  std::set<int64_t> entries, heads, positions, channels;  ///< of wrong elements
  int64_t most_channels = 0, most_heads = 0;
};

std::vector<Spot> spots_of(const Observation& o, OutputId id) {
  std::vector<Spot> spots;
  const ObservedOutput& output = o[id];
  const bool by_key = id == OutputId::dk || id == OutputId::dv;
  for (size_t n = 0; n < output.state.size(); ++n) {
    if (output.state[n] == ElementState::unjudged) continue;
    Spot spot{
        .at = locate(o.in.problem, id, int64_t(n)), .by_key = by_key, .wrong = output.state[n] == ElementState::wrong};
    const int64_t seq_q = o.in.packing.seq_q(spot.at.b), seq_k = o.in.packing.seq_k(spot.at.b);
    spot.length = by_key ? seq_k : seq_q;
    const KeyRange keys = visible_keys(o.in.problem.mask, seq_q, seq_k, spot.at.position);
    spot.first = keys.begin, spot.end = keys.end;
    for (int64_t j = keys.begin; !by_key && j < keys.end; ++j)
      spot.visible += sees(o.in, spot.at.b, spot.at.head, spot.at.position, j);
    spots.push_back(spot);
  }
  return spots;
}

Extents extents_of(const Observation& o, OutputId id, const std::vector<Spot>& spots) {
  Extents e;
  e.group = o.in.problem.heads / o.in.problem.kv_heads;
  e.tile_m = o.arithmetic.tile_m, e.tile_n = o.arithmetic.tile_n;
  e.position = id == OutputId::dk || id == OutputId::dv ? "key" : "row";
  for (const Spot& spot : spots) {
    e.most_channels = std::max(e.most_channels, spot.at.channel + 1);
    e.most_heads = std::max(e.most_heads, spot.at.head + 1);
    if (!spot.wrong) continue;
    e.entries.insert(spot.at.b), e.heads.insert(spot.at.head), e.positions.insert(spot.at.position);
    e.channels.insert(spot.at.channel);
  }
  return e;
}

void add_ranges(std::vector<Condition>& list, const char* name, const std::set<int64_t>& wrong, int64_t Where::*field) {
  const auto add = [&](std::string words, const std::function<bool(int64_t)>& holds) {
    list.push_back({std::move(words), [holds, field](const Spot& spot) { return holds(spot.at.*field); }});
  };
  const int64_t least = *wrong.begin(), most = *wrong.rbegin();
  if (wrong.size() == 1) add(fmt::format("{} {}", name, least), [least](int64_t x) { return x == least; });
  if (least > 0) add(fmt::format("{} >= {}", name, least), [least](int64_t x) { return x >= least; });
  add(fmt::format("{} <= {}", name, most), [most](int64_t x) { return x <= most; });
  for (const int64_t x : wrong)
    if (wrong.size() > 1 && x < 4) add(fmt::format("{} {}", name, x), [x](int64_t y) { return x == y; });
}

void add_residues(std::vector<Condition>& list, const char* name, const std::set<int64_t>& moduli,
                  const std::set<int64_t>& wrong, int64_t Where::*field) {
  for (const int64_t m : moduli) {
    std::set<int64_t> residues;
    for (const int64_t x : wrong) residues.insert(x % m);
    if (m < 2 || residues.size() > 2) continue;
    for (const int64_t r : residues)
      list.push_back(
          {fmt::format("{} mod {} = {}", name, m, r), [=](const Spot& spot) { return spot.at.*field % m == r; }});
  }
}

std::vector<Condition> conditions_of(const Extents& e) {
  std::vector<Condition> list;
  const std::string position = e.position;
  list.push_back({"the last " + position, [](const Spot& p) { return p.at.position == p.length - 1; }});
  list.push_back({"rows that see no key", [](const Spot& p) { return !p.by_key && p.visible == 0; }});
  list.push_back({"rows that see a key", [](const Spot& p) { return !p.by_key && p.visible > 0; }});
  list.push_back({"rows that see more than one key", [](const Spot& p) { return !p.by_key && p.visible > 1; }});
  list.push_back(
      {"rows that do not see the first key", [](const Spot& p) { return !p.by_key && p.visible > 0 && p.first > 0; }});
  list.push_back({"entries but the first", [](const Spot& p) { return p.at.b > 0; }});
  list.push_back({"heads but the first", [](const Spot& p) { return p.at.head > 0; }});
  list.push_back({"the last channel", [n = e.most_channels](const Spot& p) { return p.at.channel == n - 1; }});
  list.push_back({"the last head", [n = e.most_heads](const Spot& p) { return p.at.head == n - 1; }});
  for (const int64_t tile : {e.tile_m, e.tile_n}) {
    if (tile < 2) continue;
    list.push_back({fmt::format("{}s after the last whole tile of {}", position, tile),
                    [tile](const Spot& p) { return p.at.position >= p.length / tile * tile; }});
    list.push_back({fmt::format("rows that see more than {} keys, a tile", tile),
                    [tile](const Spot& p) { return p.visible > tile; }});
  }
  if (e.group > 1)
    for (const int64_t h : e.heads)
      list.push_back({fmt::format("member {} of each group", h % e.group),
                      [g = e.group, h](const Spot& p) { return p.at.head % g == h % g; }});
  add_ranges(list, "entry", e.entries, &Where::b);
  add_ranges(list, "head", e.heads, &Where::head);
  add_ranges(list, e.position, e.positions, &Where::position);
  add_ranges(list, "channel", e.channels, &Where::channel);
  std::set<int64_t> moduli = {2, 3, 4, 8, 16, 32, 64, 128};
  add_residues(list, "channel", moduli, e.channels, &Where::channel);
  moduli.insert({e.tile_m, e.tile_n});
  moduli.erase(0);
  add_residues(list, e.position, moduli, e.positions, &Where::position);
  return list;
}

struct Quality {
  double precision = 0, recall = 0;
  double f() const { return precision + recall == 0 ? 0 : 2 * precision * recall / (precision + recall); }
};
Quality quality(const std::vector<Spot>& spots, const std::vector<const Condition*>& rule) {
  int64_t named = 0, both = 0, wrong = 0;
  for (const Spot& spot : spots) {
    const bool holds = std::all_of(rule.begin(), rule.end(), [&](const Condition* c) { return c->holds(spot); });
    named += holds, wrong += spot.wrong, both += holds && spot.wrong;
  }
  return {named == 0 ? 0 : double(both) / double(named), wrong == 0 ? 0 : double(both) / double(wrong)};
}

/// A rule with a lower F than this says nothing.
constexpr double least_f = 0.5;

Pattern pattern_of(const Observation& o, OutputId id, const std::vector<Spot>& spots) {
  // A condition is worth its words where it raises F by a seventh: one wrong element among thousands needs several,
  // each of which alone leaves F small.
  constexpr double least_gain = 1.15;
  const std::vector<Condition> conditions = conditions_of(extents_of(o, id, spots));
  std::vector<const Condition*> rule;
  const Quality all = quality(spots, rule);
  Quality best = all;
  while (rule.size() < 4) {
    const Condition* next = nullptr;
    Quality with = best;
    for (const Condition& condition : conditions) {
      std::vector<const Condition*> longer = rule;
      longer.push_back(&condition);
      const Quality q = quality(spots, longer);
      if (q.f() > (next ? with.f() + 1e-9 : least_gain * best.f())) with = q, next = &condition;
    }
    if (!next) break;
    rule.push_back(next), best = with;
  }
  Pattern pattern{.output = id, .rule = "", .precision = best.precision, .recall = best.recall};
  for (const Condition* condition : rule) pattern.rule += (pattern.rule.empty() ? "" : ", ") + condition->words;
  if (rule.empty()) pattern.rule = "all elements";
  if (best.f() < least_f) pattern.rule = "scattered", pattern.precision = all.precision, pattern.recall = all.recall;
  pattern.judged = int64_t(spots.size());
  pattern.wrong = std::count_if(spots.begin(), spots.end(), [](const Spot& spot) { return spot.wrong; });
  return pattern;
}

}  // namespace

std::vector<Pattern> find_patterns(const Observation& o) {
  std::vector<Pattern> patterns;
  for (int id = 0; id < output_count; ++id) {
    const std::vector<Spot> spots = spots_of(o, OutputId(id));
    if (std::any_of(spots.begin(), spots.end(), [](const Spot& p) { return p.wrong; }))
      patterns.push_back(pattern_of(o, OutputId(id), spots));
  }
  return patterns;
}

}  // namespace flashproof
