// The passes of reduction, in the order they run; see reduce.h.
#include "fuzz/reduce.h"
#include "fuzz/steady_seconds.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <sstream>

#include "reference/errors.h"

namespace flashproof {
namespace {

/// The state of one reduction; `keep` is the only place where a candidate is judged.
struct Reduction {
  const Interesting& interesting;
  const std::vector<Tunable>& tunables;
  double deadline;
  Reduced best;

  bool out_of_time() const { return now() > deadline; }

  bool keep(const Case& candidate, const std::string& config) {
    if (out_of_time() || (candidate == best.c && config == best.config)) return false;
    try {
      validate(candidate);
    } catch (const UsageError&) {
      return false;
    }
    ++best.runs;
    if (!interesting(candidate, config)) return false;
    best.c = candidate;
    best.config = config;
    return true;
  }

  /// Tries one edit of the case.
  template <class Edit>
  bool try_edit(Edit edit) {
    Case candidate = best.c;
    edit(candidate);
    return keep(candidate, best.config);
  }
};

std::vector<int64_t> identity(int64_t n) {
  std::vector<int64_t> map(n);
  std::iota(map.begin(), map.end(), int64_t(0));
  return map;
}

std::vector<int64_t> map_or_identity(const std::vector<int64_t>& map, int64_t n) {
  return map.empty() ? identity(n) : map;
}

/// Drops the map where it is the identity, so that the text stays short.
void store_map(std::vector<int64_t>& slot, std::vector<int64_t> map) {
  slot = map == identity(int64_t(map.size())) ? std::vector<int64_t>{} : std::move(map);
}

/// `config` with one tunable set: "tile_m=16,tile_n=32".
std::string with_value(const std::string& config, const std::string& name, const std::string& value) {
  std::string result;
  std::istringstream words(config);
  for (std::string word; std::getline(words, word, ',');)
    if (word.substr(0, word.find('=')) != name) result += word + ',';
  return result + name + '=' + value;
}

/// The values that are tried, simplest first: of many, as of 1:256:1, those whose number is a power of two.
std::vector<std::string> simpler_values(const Tunable& tunable) {
  if (tunable.values.size() <= 16) return tunable.values;
  std::vector<std::string> values;
  for (size_t number = 1; number <= std::min<size_t>(64, tunable.values.size()); number *= 2)
    values.push_back(tunable.values[number - 1]);
  return values;
}

/// Tunables to their first values, or each to the first with which it still fails: small tiles bring their edges, and
/// failures at them, to the first few keys and rows.
void shrink_config(Reduction& r) {
  std::string smallest;
  for (const Tunable& tunable : r.tunables) smallest = with_value(smallest, tunable.name, tunable.values.front());
  if (r.keep(r.best.c, smallest)) return;
  for (const Tunable& tunable : r.tunables)
    for (const std::string& value : simpler_values(tunable))
      if (r.keep(r.best.c, with_value(r.best.config, tunable.name, value))) break;
}

/// One batch entry, with plain dense lengths.
void keep_one_entry(Reduction& r) {
  const Problem& p = r.best.c.problem;
  if (p.batch == 1 && p.q.packed.empty() && p.q.used.empty() && p.k.packed.empty() && p.k.used.empty()) return;
  for (int64_t b = 0; b < p.batch; ++b) {
    const bool kept = r.try_edit([&](Case& c) {
      const Problem from = c.problem;
      const std::vector<int64_t> batches = map_or_identity(c.maps.batches, from.batch);
      c.problem.q = Lengths{used_length(from.q, b), {}, {}};
      c.problem.k = Lengths{used_length(from.k, b), {}, {}};
      c.problem.batch = 1;
      store_map(c.maps.batches, {batches[b]});
      const auto cut = [](std::vector<int64_t>& map, int64_t n) {
        if (!map.empty()) map.resize(n);
      };
      cut(c.maps.rows, c.problem.q.slot);
      cut(c.maps.keys, c.problem.k.slot);
      std::erase_if(c.sets, [&](const SetElement& set) { return set.b != b; });
      for (SetElement& set : c.sets) set.b = 0;
    });
    if (kept) return;
  }
}

/// Fewer entries where one alone does not show the failure.
void drop_entries(Reduction& r) {
  for (int64_t b = r.best.c.problem.batch - 1; b >= 0 && r.best.c.problem.batch > 1; --b) {
    r.try_edit([&](Case& c) {
      std::vector<int64_t> batches = map_or_identity(c.maps.batches, c.problem.batch);
      batches.erase(batches.begin() + b);
      store_map(c.maps.batches, batches);
      for (Lengths* side : {&c.problem.q, &c.problem.k})
        for (std::vector<int64_t>* list : {&side->packed, &side->used})
          if (!list->empty()) list->erase(list->begin() + b);
      c.problem.batch -= 1;
      std::erase_if(c.sets, [&](const SetElement& set) { return set.b == b; });
      for (SetElement& set : c.sets) set.b -= set.b > b;
    });
  }
}

void drop_features(Reduction& r) {
  r.try_edit([](Case& c) { c.problem.direction = Direction::forward; });
  r.try_edit([](Case& c) {
    if (has_backward(c.problem)) c.problem.direction = Direction::backward_exact;
  });
  r.try_edit([](Case& c) { c.problem.paging.reset(); });
  r.try_edit([](Case& c) { c.problem.layout = Layout{}; });
  r.try_edit([](Case& c) { c.problem.dropout.reset(); });
  r.try_edit([](Case& c) { c.problem.bias.reset(); });
  r.try_edit([](Case& c) { c.problem.alibi = Alibi::none; });
  r.try_edit([](Case& c) {
    if (c.problem.alibi != Alibi::none) c.problem.alibi = Alibi::per_head;
  });
  r.try_edit([](Case& c) { c.problem.softcap = 0; });
  r.try_edit([](Case& c) { c.problem.sink = false; });
  r.try_edit([](Case& c) { c.problem.descale = false; });
  r.try_edit([](Case& c) { c.problem.scale.reset(); });
  r.try_edit([](Case& c) { c.problem.mask.top_left = false; });
  r.try_edit([](Case& c) { c.problem.mask.window_left = open_window; });
  r.try_edit([](Case& c) { c.problem.mask.window_right = open_window; });
  r.try_edit([](Case& c) { c.problem.mask.causal = false; });
  r.try_edit([](Case& c) {
    if (c.problem.bias) c.problem.bias = Bias{};
  });
  for (const int side : {0, 1}) {
    r.try_edit([&](Case& c) { (side ? c.problem.k : c.problem.q).used.clear(); });
    r.try_edit([&](Case& c) {
      Lengths& lengths = side ? c.problem.k : c.problem.q;
      if (!lengths.packed.empty()) lengths.slot = *std::max_element(lengths.packed.begin(), lengths.packed.end());
      lengths.packed.clear();
    });
  }
}

/// Keeps some kv heads, and of each one's query heads some members.
bool keep_heads(Reduction& r, const std::vector<int64_t>& kv_heads, const std::vector<int64_t>& members) {
  return r.try_edit([&](Case& c) {
    Problem& p = c.problem;
    const int64_t group = p.heads / p.kv_heads;
    const std::vector<int64_t> of_heads = map_or_identity(c.maps.heads, p.heads);
    const std::vector<int64_t> of_kv_heads = map_or_identity(c.maps.kv_heads, p.kv_heads);
    std::vector<int64_t> heads, kept;
    for (const int64_t kv : kv_heads) {
      kept.push_back(of_kv_heads[kv]);
      for (const int64_t member : members) heads.push_back(of_heads[kv * group + member]);
    }
    p.heads = int64_t(heads.size());
    p.kv_heads = int64_t(kept.size());
    store_map(c.maps.heads, std::move(heads));
    store_map(c.maps.kv_heads, std::move(kept));
    std::erase_if(c.sets, [](const SetElement& set) { return set.head != 0; });
  });
}

/// One alone where that fails, else as few as do. `keep` tries a list of those that stay.
template <class Keep>
void keep_few(int64_t count, Keep keep) {
  for (int64_t n = 0; n < count && count > 1; ++n)
    if (keep(std::vector<int64_t>{n})) return;
  for (int64_t n = count - 1; n >= 0 && count > 1; --n) {
    std::vector<int64_t> others = identity(count);
    others.erase(others.begin() + n);
    if (keep(others)) --count;
  }
}

void shrink_heads(Reduction& r) {
  const Problem& p = r.best.c.problem;
  keep_few(p.kv_heads, [&](const auto& kept) { return keep_heads(r, kept, identity(p.heads / p.kv_heads)); });
  keep_few(p.heads / p.kv_heads, [&](const auto& kept) { return keep_heads(r, identity(p.kv_heads), kept); });
}

enum class Axis { rows, keys, channels, value_channels };

/// The axis's map and its extent in the problem.
std::vector<int64_t>& map_of(Case& c, Axis axis) {
  switch (axis) {
    case Axis::rows:
      return c.maps.rows;
    case Axis::keys:
      return c.maps.keys;
    case Axis::channels:
      return c.maps.channels;
    default:
      return c.maps.value_channels;
  }
}

int64_t extent_of(const Problem& p, Axis axis) {
  switch (axis) {
    case Axis::rows:
      return max_used_length(p.q, p.batch);
    case Axis::keys:
      return max_used_length(p.k, p.batch);
    case Axis::channels:
      return p.head_dim;
    default:
      return p.value_dim;
  }
}

/// Positions [begin, end) of the axis leave the case; sets on them go too, later ones move down.
void drop_range(Case& c, Axis axis, int64_t begin, int64_t end) {
  Problem& p = c.problem;
  const int64_t n = extent_of(p, axis), gone = end - begin;
  std::vector<int64_t> map = map_or_identity(map_of(c, axis), n);
  map.erase(map.begin() + begin, map.begin() + end);
  store_map(map_of(c, axis), map);
  if (axis == Axis::rows || axis == Axis::keys) {
    Lengths& side = axis == Axis::rows ? p.q : p.k;
    const auto shorten = [&](int64_t& length) { length -= std::max<int64_t>(0, std::min(length, end) - begin); };
    shorten(side.slot);
    for (int64_t& length : side.packed) shorten(length);
    for (int64_t& length : side.used) shorten(length);
  } else if (axis == Axis::channels) {
    const bool same = p.value_dim == p.head_dim;
    p.head_dim -= gone;
    if (same) p.value_dim = p.head_dim, store_map(c.maps.value_channels, map);
  } else {
    p.value_dim -= gone;
  }
  const auto on_axis = [&](const SetElement& set) {
    const bool query = set.operand == Operand::q || set.operand == Operand::d_o;
    const bool key = set.operand == Operand::k || set.operand == Operand::v;
    return (axis == Axis::rows && query) || (axis == Axis::keys && key);
  };
  std::erase_if(c.sets,
                [&](const SetElement& set) { return on_axis(set) && begin <= set.position && set.position < end; });
  for (SetElement& set : c.sets)
    if (on_axis(set) && set.position >= end) set.position -= gone;
}

/// Delta debugging over the axis: chunks of half the extent, then quarters, down to single positions, from the end.
void drop_positions(Reduction& r, Axis axis) {
  for (int64_t chunk = std::max<int64_t>(1, extent_of(r.best.c.problem, axis) / 2); chunk >= 1; chunk /= 2) {
    for (int64_t end = extent_of(r.best.c.problem, axis); end > 0 && !r.out_of_time();) {
      const int64_t begin = std::max<int64_t>(0, end - chunk);
      r.try_edit([&](Case& c) { drop_range(c, axis, begin, end); });
      end = std::min(begin, extent_of(r.best.c.problem, axis));
    }
  }
}

/// As many rows as keys, from the end or the beginning: where a mask is aligned with both, neither goes alone.
void drop_rows_with_keys(Reduction& r) {
  const auto extent = [&] {
    const Problem& p = r.best.c.problem;
    return std::min(extent_of(p, Axis::rows), extent_of(p, Axis::keys));
  };
  const auto drop = [&](int64_t chunk, bool last) {
    return extent() > chunk && r.try_edit([&](Case& c) {
      for (const Axis axis : {Axis::rows, Axis::keys}) {
        const int64_t begin = last ? extent_of(c.problem, axis) - chunk : 0;
        drop_range(c, axis, begin, begin + chunk);
      }
    });
  };
  for (int64_t chunk = std::max<int64_t>(1, extent() / 2); chunk >= 1; chunk /= 2)
    for (const bool last : {true, false})
      while (drop(chunk, last)) {
      }
}

/// Numbers of the problem towards their smallest legal values.
void shrink_numbers(Reduction& r) {
  const auto shrink = [&](auto field) {
    for (int64_t target : {int64_t(0), int64_t(1), int64_t(2)})
      if (r.try_edit([&](Case& c) {
            int64_t* n = field(c);
            if (n && *n > target) *n = target;
          }))
        return;
    while (r.try_edit([&](Case& c) {
      int64_t* n = field(c);
      if (n && *n > 2) *n /= 2;
    })) {
    }
    while (r.try_edit([&](Case& c) {
      int64_t* n = field(c);
      if (n && *n > 1) *n -= 1;
    })) {
    }
  };
  shrink([](Case& c) { return &c.problem.mask.window_left; });
  shrink([](Case& c) { return &c.problem.mask.window_right; });
  shrink([](Case& c) { return c.problem.paging ? &c.problem.paging->size : nullptr; });
  shrink([](Case& c) { return &c.problem.layout.row_gap; });
  r.try_edit([](Case& c) {
    if (c.problem.dropout) c.problem.dropout->seed = 0;
  });
  r.try_edit([](Case& c) {
    if (c.problem.dropout) c.problem.dropout->rate = 0.5f;
  });
  r.try_edit([](Case& c) {
    if (c.problem.scale) c.problem.scale = 1.0f;
  });
  r.try_edit([](Case& c) {
    if (c.problem.softcap > 0) c.problem.softcap = 1.0f;
  });
}

/// Data of the first positions instead of those that are left of the first case.
void drop_maps(Reduction& r) {
  if (r.try_edit([](Case& c) { c.maps = {}; })) return;
  for (auto map : {&IndexMaps::batches, &IndexMaps::rows, &IndexMaps::keys, &IndexMaps::heads, &IndexMaps::kv_heads,
                   &IndexMaps::channels, &IndexMaps::value_channels})
    r.try_edit([&](Case& c) { (c.maps.*map).clear(); });
}

void simplify_data(Reduction& r) {
  // From the simplest on, and never to a less simple one than there is: that would go round in circles.
  for (const Family family : {Family::constant_v, Family::integers, Family::equal_scores, Family::normal}) {
    const Recipe simple{family, default_parameter, default_parameter, r.best.c.recipe.seed};
    if (r.best.c.recipe == simple) break;
    if (r.try_edit([&](Case& c) {
          c.recipe = simple;
          c.file = FileData{};
        }))
      break;
  }
  for (const uint64_t seed : {0, 1, 2})
    if (r.best.c.recipe.seed > seed && r.try_edit([&](Case& c) { c.recipe.seed = seed; })) break;
  while (!r.best.c.sets.empty() && r.try_edit([](Case& c) { c.sets.pop_back(); })) {
  }
}

using Pass = void (*)(Reduction&);

void drop_keys(Reduction& r) { drop_positions(r, Axis::keys); }
void drop_rows(Reduction& r) { drop_positions(r, Axis::rows); }
void drop_channels(Reduction& r) { drop_positions(r, Axis::channels); }
void drop_value_channels(Reduction& r) {
  if (r.best.c.problem.value_dim != r.best.c.problem.head_dim) drop_positions(r, Axis::value_channels);
}

constexpr Pass passes[] = {keep_one_entry,      drop_entries,   shrink_heads,        drop_features,
                           drop_keys,           drop_rows,      drop_rows_with_keys, drop_channels,
                           drop_value_channels, shrink_numbers, simplify_data,       drop_maps};

}  // namespace

Reduced reduce(const Case& c, const std::string& config, const Interesting& interesting, double seconds,
               const std::vector<Tunable>& tunables) {
  const double start = now();
  Reduction r{interesting, tunables, start + seconds, {c, config, 0, 0, false}};
  shrink_config(r);
  for (bool changed = true; changed && !r.out_of_time();) {
    const Case before = r.best.c;
    for (const Pass pass : passes) pass(r);
    changed = !(r.best.c == before);
  }
  r.keep(r.best.c, "");  // what fails with the kernel's own choice needs no config
  r.best.complete = !r.out_of_time();
  r.best.seconds = now() - start;
  return r.best;
}

double size_of(const Case& c) {
  const Problem& p = c.problem;
  double pairs = 0;
  for (int64_t b = 0; b < p.batch; ++b) pairs += double(used_length(p.q, b) + 1) * double(used_length(p.k, b) + 1);
  return pairs * double(p.heads) * double(p.head_dim + p.value_dim) + double(print(c).size());
}

}  // namespace flashproof
