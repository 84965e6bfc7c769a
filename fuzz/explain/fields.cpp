#include "fuzz/explain/fields.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "fuzz/steady_seconds.h"
#include "reference/errors.h"

namespace flashproof {
namespace {

struct Field {
  const char* name;
  bool (*present)(const Case&);
  void (*remove)(Case&);
};

const Field fields[] = {
    {"causal", [](const Case& c) { return c.problem.mask.causal; }, [](Case& c) { c.problem.mask.causal = false; }},
    {"window left", [](const Case& c) { return c.problem.mask.window_left != open_window; },
     [](Case& c) { c.problem.mask.window_left = open_window; }},
    {"window right", [](const Case& c) { return c.problem.mask.window_right != open_window; },
     [](Case& c) { c.problem.mask.window_right = open_window; }},
    {"top-left alignment", [](const Case& c) { return c.problem.mask.top_left; },
     [](Case& c) { c.problem.mask.top_left = false; }},
    {"softcap", [](const Case& c) { return c.problem.softcap != 0; }, [](Case& c) { c.problem.softcap = 0; }},
    {"alibi", [](const Case& c) { return c.problem.alibi != Alibi::none; },
     [](Case& c) { c.problem.alibi = Alibi::none; }},
    {"bias", [](const Case& c) { return c.problem.bias.has_value(); }, [](Case& c) { c.problem.bias.reset(); }},
    {"bias by head", [](const Case& c) { return c.problem.bias && c.problem.bias->head; },
     [](Case& c) { c.problem.bias->head = false; }},
    {"bias by row", [](const Case& c) { return c.problem.bias && c.problem.bias->query; },
     [](Case& c) { c.problem.bias->query = false; }},
    {"bias by entry", [](const Case& c) { return c.problem.bias && c.problem.bias->batch; },
     [](Case& c) { c.problem.bias->batch = false; }},
    {"sink", [](const Case& c) { return c.problem.sink; }, [](Case& c) { c.problem.sink = false; }},
    {"dropout", [](const Case& c) { return c.problem.dropout.has_value(); },
     [](Case& c) { c.problem.dropout.reset(); }},
    {"descales", [](const Case& c) { return c.problem.descale; }, [](Case& c) { c.problem.descale = false; }},
    {"scale", [](const Case& c) { return c.problem.scale.has_value(); }, [](Case& c) { c.problem.scale.reset(); }},
    {"paged keys", [](const Case& c) { return c.problem.paging.has_value(); },
     [](Case& c) { c.problem.paging.reset(); }},
    {"heads before rows in memory", [](const Case& c) { return c.problem.layout.heads_first; },
     [](Case& c) { c.problem.layout.heads_first = false; }},
    {"gap between rows", [](const Case& c) { return c.problem.layout.row_gap != 0; },
     [](Case& c) { c.problem.layout.row_gap = 0; }},
    {"packed rows", [](const Case& c) { return !c.problem.q.packed.empty(); },
     [](Case& c) {
       c.problem.q.slot = *std::max_element(c.problem.q.packed.begin(), c.problem.q.packed.end()),
       c.problem.q.packed.clear();
     }},
    {"packed keys", [](const Case& c) { return !c.problem.k.packed.empty(); },
     [](Case& c) {
       c.problem.k.slot = *std::max_element(c.problem.k.packed.begin(), c.problem.k.packed.end()),
       c.problem.k.packed.clear();
     }},
    {"used lengths of rows", [](const Case& c) { return !c.problem.q.used.empty(); },
     [](Case& c) { c.problem.q.used.clear(); }},
    {"used lengths of keys", [](const Case& c) { return !c.problem.k.used.empty(); },
     [](Case& c) { c.problem.k.used.clear(); }},
    {"query heads in groups", [](const Case& c) { return c.problem.heads > c.problem.kv_heads; },
     [](Case& c) { c.problem.kv_heads = c.problem.heads, c.maps.kv_heads.clear(); }},
    {"several heads", [](const Case& c) { return c.problem.heads > 1; },
     [](Case& c) { c.problem.heads = c.problem.kv_heads = 1, c.maps.heads.clear(), c.maps.kv_heads.clear(); }},
    {"several entries",
     [](const Case& c) { return c.problem.batch > 1 && c.problem.q.packed.empty() && c.problem.k.packed.empty(); },
     [](Case& c) { c.problem.batch = 1, c.maps.batches.clear(), c.problem.q.used.clear(), c.problem.k.used.clear(); }},
    {"value dim unlike head dim", [](const Case& c) { return c.problem.value_dim != c.problem.head_dim; },
     [](Case& c) { c.problem.value_dim = c.problem.head_dim, c.maps.value_channels.clear(); }},
    {"backward", [](const Case& c) { return has_backward(c.problem); },
     [](Case& c) { c.problem.direction = Direction::forward; }},
    {"backward on the kernel's own O and L", [](const Case& c) { return c.problem.direction == Direction::backward; },
     [](Case& c) { c.problem.direction = Direction::backward_exact; }},
    {"dtype bf16", [](const Case& c) { return c.problem.dtype == DType::bf16; },
     [](Case& c) { c.problem.dtype = DType::fp32; }},
    {"dtype fp16", [](const Case& c) { return c.problem.dtype == DType::fp16; },
     [](Case& c) { c.problem.dtype = DType::fp32; }},
    {"dtype fp32", [](const Case& c) { return c.problem.dtype == DType::fp32; },
     [](Case& c) { c.problem.dtype = DType::bf16; }},
    {"fp8", [](const Case& c) { return output_dtype(c.problem) != c.problem.dtype; },
     [](Case& c) { c.problem.dtype = DType::bf16, c.problem.descale = false; }},
    {"the data family", [](const Case& c) { return c.recipe.family != Family::normal; },
     [](Case& c) {
       c.recipe = {Family::normal, default_parameter, default_parameter, c.recipe.seed}, c.file = {};
     }},
    {"chosen positions and set elements", [](const Case& c) { return !(c.maps == IndexMaps{}) || !c.sets.empty(); },
     [](Case& c) { c.maps = {}, c.sets.clear(); }},
};

/// A number of the case that may be set to others.
struct Number {
  const char* name;
  std::optional<int64_t> (*get)(const Case&);
  void (*set)(Case&, int64_t);
};

bool dense(const Lengths& lengths) { return lengths.packed.empty() && lengths.used.empty(); }

const Number numbers[] = {
    {"Sk", [](const Case& c) { return dense(c.problem.k) ? std::optional(c.problem.k.slot) : std::nullopt; },
     [](Case& c, int64_t n) { c.problem.k.slot = n, c.maps.keys.clear(); }},
    {"Sq", [](const Case& c) { return dense(c.problem.q) ? std::optional(c.problem.q.slot) : std::nullopt; },
     [](Case& c, int64_t n) { c.problem.q.slot = n, c.maps.rows.clear(); }},
    {"page", [](const Case& c) { return c.problem.paging ? std::optional(c.problem.paging->size) : std::nullopt; },
     [](Case& c, int64_t n) { c.problem.paging->size = n; }},
    {"head dim", [](const Case& c) { return std::optional(c.problem.head_dim); },
     [](Case& c, int64_t n) {
       if (c.problem.value_dim == c.problem.head_dim) c.problem.value_dim = n;
       c.problem.head_dim = n, c.maps.channels.clear(), c.maps.value_channels.clear();
     }},
    {"window left",
     [](const Case& c) {
       return c.problem.mask.window_left == open_window ? std::nullopt : std::optional(c.problem.mask.window_left);
     },
     [](Case& c, int64_t n) { c.problem.mask.window_left = n; }},
};

/// The search's state: `fails` is the only place that asks the kernel.
struct Probing {
  const Interesting &interesting, &takes;
  const std::string& config;
  double deadline;
  Fields found;

  bool out_of_time() const { return now() > deadline; }
  std::optional<bool> fails(const Case& c) {
    if (out_of_time()) return std::nullopt;
    try {
      validate(c);
    } catch (const UsageError&) {
      return std::nullopt;
    }
    if (!takes(c, config)) return std::nullopt;
    ++found.runs;
    return interesting(c, config);
  }
};

void remove_fields(Probing& p, const Case& c) {
  for (const Field& field : fields) {
    if (!field.present(c)) continue;
    Case without = c;
    field.remove(without);
    const std::optional<bool> fails = p.fails(without);
    if (fails) (*fails ? p.found.idle : p.found.needed).push_back(field.name);
  }
  if (!p.config.empty() && !p.out_of_time() && p.takes(c, "")) {
    ++p.found.runs;
    (p.interesting(c, "") ? p.found.idle : p.found.needed).push_back("config " + p.config);
  }
}

/// One value tried. `other` is the length of the other side, to compare Sk with Sq.
struct Tried {
  int64_t value, other;
  bool fails;
};

struct Rule {
  std::string words;
  std::function<bool(const Tried&)> fails;
};

std::vector<Rule> rules_of(const std::string& name, const std::vector<Tried>& tried, const std::set<int64_t>& moduli) {
  std::vector<Rule> rules;
  int64_t least = INT64_MAX, most = 0;
  for (const Tried& t : tried)
    if (t.fails) least = std::min(least, t.value), most = std::max(most, t.value);
  const auto at_least = [least](const Tried& t) { return t.value >= least; };
  if (least == most)
    rules.push_back({fmt::format("{} = {}", name, least), [least](const Tried& t) { return t.value == least; }});
  rules.push_back({fmt::format("{} >= {}", name, least), at_least});
  rules.push_back({fmt::format("{} <= {}", name, most), [most](const Tried& t) { return t.value <= most; }});
  if (name[0] == 'S') {
    const char* other = name == "Sk" ? "Sq" : "Sk";
    rules.push_back({"Sk != Sq", [](const Tried& t) { return t.value != t.other; }});
    rules.push_back({fmt::format("{} > {}", name, other), [](const Tried& t) { return t.value > t.other; }});
    rules.push_back({fmt::format("{} < {}", name, other), [](const Tried& t) { return t.value < t.other; }});
  }
  for (const int64_t m : moduli) {
    rules.push_back({fmt::format("{} mod {} != 0", name, m), [m](const Tried& t) { return t.value % m != 0; }});
    rules.push_back({fmt::format("{} mod {} = 0", name, m), [m](const Tried& t) { return t.value % m == 0; }});
    rules.push_back({fmt::format("{} >= {} and {} mod {} != 0", name, least, name, m),
                     [=](const Tried& t) { return at_least(t) && t.value % m != 0; }});
  }
  rules.push_back({fmt::format("{} <= {} <= {}", least, name, most),
                   [=](const Tried& t) { return at_least(t) && t.value <= most; }});
  for (const Tried& one : tried)
    if (one.fails)
      rules.push_back(
          {fmt::format("{} = {}", name, one.value), [one](const Tried& t) { return t.value == one.value; }});
  return rules;
}

void add_boundary(Fields& found, const std::string& name, const std::vector<Tried>& tried,
                  const std::set<int64_t>& moduli) {
  if (std::all_of(tried.begin(), tried.end(), [](const Tried& t) { return t.fails; })) return;
  for (const Rule& rule : rules_of(name, tried, moduli))
    if (std::all_of(tried.begin(), tried.end(), [&](const Tried& t) { return rule.fails(t) == t.fails; })) {
      found.boundaries.push_back(rule.words);
      return;
    }
}

void try_numbers(Probing& p, const Case& c, int64_t tile_m, int64_t tile_n) {
  for (const Number& number : numbers) {
    const std::optional<int64_t> here = number.get(c);
    if (!here) continue;
    std::set<int64_t> values = {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 32, 33, 64, *here, *here + 1, *here - 1, 2 * *here};
    for (const int64_t tile : {tile_m, tile_n})
      if (tile > 0 && tile <= 128) values.insert({tile - 1, tile, tile + 1, 2 * tile, 2 * tile + 1});
    const std::set<int64_t> moduli = {2, 4, 8, 16, 32, 64, std::max<int64_t>(2, tile_m), std::max<int64_t>(2, tile_n)};
    std::vector<Tried> tried;
    for (const int64_t value : values) {
      if (value < (std::string(number.name) == "window left" ? 0 : 1) || value > 4 * *here + 300) continue;
      Case other = c;
      number.set(other, value);
      const std::optional<bool> fails = p.fails(other);
      const Problem& q = other.problem;
      if (fails) tried.push_back({value, std::string(number.name) == "Sk" ? q.q.slot : q.k.slot, *fails});
    }
    const bool shown =
        std::any_of(tried.begin(), tried.end(), [&](const Tried& t) { return t.value == *here && t.fails; });
    if (shown) add_boundary(p.found, number.name, tried, moduli);
  }
}

}  // namespace

Fields find_fields(const Case& c, const std::string& config, const Interesting& interesting, const Interesting& takes,
                   int64_t tile_m, int64_t tile_n, double seconds) {
  Probing p{interesting, takes, config, now() + seconds, {}};
  remove_fields(p, c);
  try_numbers(p, c, tile_m, tile_n);
  p.found.complete = !p.out_of_time();
  return p.found;
}

}  // namespace flashproof
