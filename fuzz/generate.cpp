// Drawing of random cases; see generate.h for the plan.
#include "fuzz/generate.h"

#include <algorithm>
#include <mutex>
#include <sstream>

#include <rapidcheck.h>

#include "fuzz/case_sizes.h"
#include "reference/errors.h"
#include "reference/safetensors.h"

namespace flashproof {
namespace {

using rc::gen::inRange;

bool chance(int percent) { return *inRange(0, 100) < percent; }

template <class T>
T one_of(const std::vector<T>& values) {
  return values[*inRange<size_t>(0, values.size())];
}

/// Geometry and data have streams of their own, so the data of an index stay when the drawing of shapes changes
/// (SplitMix64).
uint64_t stream_seed(uint64_t campaign_seed, uint64_t index, uint64_t stream) {
  uint64_t x = campaign_seed + 0x9e3779b97f4a7c15u * (4 * index + stream + 1);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

constexpr int64_t most_values = 100'000;  // of one tunable

/// Empty for what is no range or list, or too long a one.
std::vector<std::string> parse_values(const std::string& text) {
  std::vector<std::string> values;
  if (text.find(':') != std::string::npos) {
    int64_t from = 0, to = 0, step = 0;
    char colon;
    std::istringstream in(text);
    in >> from >> colon >> to >> colon >> step;
    if (!in || step <= 0 || from > to || (__int128(to) - from) / step >= most_values) return {};
    for (int64_t n = 0; n <= (to - from) / step; ++n) values.push_back(std::to_string(from + n * step));
  } else {
    std::istringstream in(text);
    for (std::string word; std::getline(in, word, ',');) values.push_back(word);
  }
  return values;
}

/// The first values twice as often as the last: small tiles reach every mask and tail edge at a fraction of the work.
std::string draw_value(const Tunable& tunable) {
  const auto index = [&] { return *inRange<size_t>(0, tunable.values.size()); };
  return tunable.values[std::min({index(), index(), index()})];
}

/// A third of the cases take the kernel's own choice; the others draw every tunable.
std::string draw_config(const std::vector<Tunable>& tunables) {
  if (tunables.empty() || chance(33)) return "";
  std::string config;
  for (const Tunable& tunable : tunables) {
    if (!config.empty()) config += ',';
    config += tunable.name + "=" + draw_value(tunable);
  }
  return config;
}

using FeatureSet = std::vector<bool>;

std::vector<Feature> admitted(const LoadedKernel& kernel) {
  std::vector<Feature> features;
  for (int f = 0; f < feature_count; ++f)
    if (admits(kernel, Feature(f))) features.push_back(Feature(f));
  return features;
}

/// Two features that can stand together, then others with a probability of 15 %.
FeatureSet draw_features(const LoadedKernel& kernel) {
  const std::vector<Feature> all = admitted(kernel);
  FeatureSet on(feature_count, false);
  const Feature first = one_of(all);
  on[int(first)] = true;
  const auto fits = [&](Feature f) {
    for (int g = 0; g < feature_count; ++g)
      if (on[g] && !feasible(kernel, std::min(f, Feature(g)), std::max(f, Feature(g)))) return false;
    return true;
  };
  for (int attempt = 0; attempt < 20; ++attempt) {
    const Feature second = one_of(all);
    if (second == first || !fits(second)) continue;
    on[int(second)] = true;
    break;
  }
  for (const Feature f : all)
    if (!on[int(f)] && int(f) >= dtype_count && chance(15) && fits(f)) on[int(f)] = true;
  return on;
}

DType draw_dtype(const LoadedKernel& kernel, const FeatureSet& on) {
  constexpr DType by_feature[] = {DType::bf16, DType::fp16, DType::fp32, DType::e4m3, DType::e5m2};
  std::vector<DType> possible;
  for (int f = 0; f < dtype_count; ++f) {
    if (on[f]) return by_feature[f];
    const bool narrow = by_feature[f] == DType::e4m3 || by_feature[f] == DType::e5m2;
    if (admits(kernel, Feature(f)) && (narrow || !on[int(Feature::descale)])) possible.push_back(by_feature[f]);
  }
  return one_of(possible);
}

int64_t length_of(Edge edge, int64_t tile) {
  switch (edge) {
    case Edge::zero:
      return 0;
    case Edge::one:
      return 1;
    case Edge::below:
      return std::max<int64_t>(tile - 1, 1);
    case Edge::exact:
      return tile;
    case Edge::above:
      return tile + 1;
    case Edge::inside:
      return tile > 3 ? *inRange<int64_t>(2, tile - 1) : tile;
    case Edge::multiple:
      return tile * *inRange<int64_t>(2, 5);
    case Edge::ragged:
      return tile * *inRange<int64_t>(1, 4) + (tile > 2 ? *inRange<int64_t>(2, tile) : 2);
  }
  return 1;
}

int64_t draw_length(int64_t tile) { return length_of(Edge(*inRange(0, edge_count)), tile); }

bool is_on_gpu(const LoadedKernel& kernel) { return kernel.table->memory == FLASHPROOF_CUDA; }

/// Head dims are multiples of it. A kernel that asks for multiples of 8 wants rows of whole 16 bytes, which are 16
/// elements in fp8; now and then one draws what it may then refuse.
int64_t draw_dim_multiple(const LoadedKernel& kernel, DType dtype) {
  const int64_t declared = std::max<int64_t>(1, kernel.table->head_dim_multiple);
  return declared == 8 && format_of(dtype).bits == 8 && !chance(3) ? 16 : declared;
}

void draw_dims(Problem& p, const LoadedKernel& kernel, int64_t multiple, const FeatureSet& on) {
  const int64_t largest = kernel.table->max_head_dim > 0 ? kernel.table->max_head_dim : 256;
  std::vector<int64_t> dims;
  for (const int64_t d : {1, 8, 16, 24, 32, 40, 64, 80, 96, 128, 160, 192, 256})
    if (d % multiple == 0 && d <= largest) dims.push_back(d);
  // Small head dims are drawn more often: they cost less and masks, tiles and heads do not depend on them.
  const auto draw = [&] { return std::min(one_of(dims), one_of(dims)); };
  p.head_dim = draw();
  p.value_dim = p.head_dim;
  for (int attempt = 0; on[int(Feature::value_dim)] && p.value_dim == p.head_dim && attempt < 20; ++attempt)
    p.value_dim = draw();
  p.kv_heads = on[int(Feature::strides)] ? one_of<int64_t>({1, 2, 2, 3}) : one_of<int64_t>({1, 1, 2, 3});
  p.heads = p.kv_heads * (on[int(Feature::gqa)] ? one_of<int64_t>({2, 3, 4, 5, 7, 8}) : 1);
}

void draw_side(Lengths& side, int64_t batch, int64_t tile, bool packed, bool used) {
  if (packed) {
    for (int64_t b = 0; b < batch; ++b) side.packed.push_back(draw_length(tile));
  } else {
    side.slot = draw_length(tile);
  }
  if (!used) return;
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t slot = packed ? side.packed[b] : side.slot;
    side.used.push_back(chance(30) ? slot : std::min(slot, draw_length(tile)));
  }
}

/// How long a case is against the tile: any edge of it; at least 3 tiles of keys and 2 of rows, so that what a kernel
/// carries from tile to tile, and its buffers' turns, matter; at least 4096 keys.
enum class Extent { any, several_tiles, long_keys };
constexpr int64_t long_keys = 4096;

/// Several tiles in half of the cases, where `work` affords the fewest in the least head dim; long keys in one of 1000,
/// on a GPU in one of 70, so that one of 100 has them when some are rejected.
Extent draw_extent(const LoadedKernel& kernel, const TileShape& tile, int64_t least_dim, double work) {
  const int thousandth = *inRange(0, 1000);
  if (thousandth < (is_on_gpu(kernel) ? 14 : 1)) return Extent::long_keys;
  const bool affordable = double(tile.m + 1) * double(2 * tile.n + 1) * 2 * double(least_dim) <= work;
  return affordable && thousandth < 550 ? Extent::several_tiles : Extent::any;
}

/// Gives entry b the length, and its slot at least that.
void set_length(Lengths& side, int64_t b, int64_t length) {
  const int64_t room = length + (side.used.empty() || chance(30) ? 0 : *inRange<int64_t>(1, 9));
  if (!side.packed.empty())
    side.packed[b] = room;
  else
    side.slot = side.used.empty() ? room : std::max(room, *std::max_element(side.used.begin(), side.used.end()));
  if (!side.used.empty()) side.used[b] = length;
}

/// More than `least` tiles, at most three tiles more; rather few, which leaves work for head dims.
int64_t draw_beyond(int64_t least, int64_t tile) {
  const auto draw = [] { return *inRange<int64_t>(0, 3); };
  const int64_t whole = least + std::min(draw(), draw());
  return whole * tile + one_of<int64_t>({1, tile, *inRange<int64_t>(1, tile + 1)});
}

/// Makes one of the first two entries (fit() may take the others away) as long as the extent says.
void lengthen(Problem& p, const TileShape& tile, Extent extent, const FeatureSet& on) {
  if (extent == Extent::any) return;
  const int64_t b = *inRange<int64_t>(0, std::min<int64_t>(p.batch, 2));
  if (extent == Extent::long_keys)
    return set_length(p.k, b, one_of<int64_t>({long_keys, long_keys + 1, *inRange(long_keys, 2 * long_keys)}));
  const int64_t keys = draw_beyond(2, tile.n);
  set_length(p.k, b, keys);
  set_length(p.q, b, std::max(draw_beyond(1, tile.m), on[int(Feature::short_keys)] ? keys + 1 : 0));
}

void draw_lengths(Problem& p, const TileShape& tile, const FeatureSet& on) {
  // A stride shows only where its index takes two values.
  const bool several = on[int(Feature::batch)] || (on[int(Feature::strides)] && chance(50));
  p.batch = several ? *inRange<int64_t>(2, 5) : 1;
  const bool packed = on[int(Feature::packed)], used = on[int(Feature::seqused)];
  const bool packed_k = packed && chance(80);
  draw_side(p.q, p.batch, tile.m, packed && (!packed_k || chance(90)), used && chance(50));
  draw_side(p.k, p.batch, tile.n, packed_k, used);
}

/// Makes some entry's keys fewer than its queries.
void shorten_keys(Problem& p, const TileShape& tile) {
  for (int64_t b = 0; b < p.batch; ++b) {
    const int64_t queries = used_length(p.q, b);
    if (used_length(p.k, b) < queries) return;
    if (queries == 0) continue;
    const int64_t keys = std::min(draw_length(tile.n), queries - 1);
    if (!p.k.used.empty())
      p.k.used[b] = std::min(keys, p.k.used[b]);
    else if (!p.k.packed.empty())
      p.k.packed[b] = keys;
    else
      p.k.slot = keys;
    return;
  }
}

int64_t draw_window_side(const TileShape& tile, int64_t length) {
  const int64_t edges[] = {0, 1, tile.n - 1, tile.n, tile.n + 1, tile.m, length, *inRange<int64_t>(0, length + 2)};
  return std::max<int64_t>(0, edges[*inRange(0, 8)]);
}

void draw_mask(Problem& p, const TileShape& tile, const FeatureSet& on) {
  const auto is_on = [&](Feature f) { return on[int(f)]; };
  p.mask.causal = is_on(Feature::causal);
  if (is_on(Feature::window)) {
    const int64_t length = max_used_length(p.k, p.batch);
    const int sides = *inRange(1, 4);
    if (sides & 1) p.mask.window_left = draw_window_side(tile, length);
    if (sides & 2) p.mask.window_right = draw_window_side(tile, length);
  }
  if (is_on(Feature::top_left) || is_on(Feature::short_keys)) {
    const bool positional = p.mask.causal || is_on(Feature::window) || is_on(Feature::alibi);
    if (!positional) p.mask.causal = true;
    p.mask.top_left = is_on(Feature::top_left);
  }
}

void draw_modifiers(Problem& p, const FeatureSet& on) {
  const auto is_on = [&](Feature f) { return on[int(f)]; };
  if (is_on(Feature::scale)) p.scale = one_of<float>({1.0f, 0.5f, 0.125f, 0.3f, 0.05f, -0.25f, 0.0f});
  if (is_on(Feature::softcap)) p.softcap = one_of<float>({1.0f, 5.0f, 15.0f, 30.0f, 50.0f});
  if (is_on(Feature::alibi)) p.alibi = chance(50) ? Alibi::per_head : Alibi::per_batch_and_head;
  if (is_on(Feature::bias)) p.bias = Bias{chance(50), chance(50), chance(50), chance(70), chance(50)};
  p.sink = is_on(Feature::sink);
  if (is_on(Feature::dropout))
    p.dropout = Dropout{one_of<float>({0.0f, 0.1f, 0.25f, 0.5f, 0.9f}), *inRange<uint64_t>(0, uint64_t(1) << 62)};
  p.descale = is_on(Feature::descale);
  if (is_on(Feature::backward)) p.direction = chance(70) ? Direction::backward : Direction::backward_exact;
}

void draw_memory(Problem& p, const TileShape& tile, const FeatureSet& on) {
  const auto is_on = [&](Feature f) { return on[int(f)]; };
  if (is_on(Feature::paged))
    p.paging = Paging{*inRange<uint64_t>(0, 1000), one_of<int64_t>({1, 3, 16, tile.n, 2 * tile.n})};
  if (is_on(Feature::strides)) {
    const bool dense = p.q.packed.empty() && p.k.packed.empty() && !p.paging;
    p.layout.heads_first = dense && chance(70);
    // With 1 the rows of no format are all aligned for wide loads.
    if (!p.layout.heads_first || chance(50)) p.layout.row_gap = one_of<int64_t>({1, 8, 16, 64});
  }
}

/// A forward has two products of matrices, its backward five more.
double work_of(const Problem& p) { return forward_multiply_adds(p) * (has_backward(p) ? 3.5 : 1); }

void shorten(Lengths& side, int64_t most) {
  side.slot = std::min(side.slot, most);
  for (int64_t& n : side.packed) n = std::min(n, most);
  for (int64_t& n : side.used) n = std::min(n, most);
}

/// Cuts heads and entries, then head dims, until the case costs what it may; lengths stay, since they are what tile
/// edges are about, but for the rows that see thousands of keys.
void fit(Problem& p, int64_t multiple, Extent extent, double budget) {
  constexpr int64_t least_rows = 16;
  const int64_t group = p.heads / p.kv_heads;
  while (work_of(p) > budget && p.kv_heads > 1) p.kv_heads -= 1, p.heads = group * p.kv_heads;
  while (work_of(p) > budget && p.heads > 2) p.heads -= 1;
  for (; work_of(p) > budget && p.batch > 2; --p.batch)
    for (std::vector<int64_t>* list : {&p.q.packed, &p.q.used, &p.k.packed, &p.k.used})
      if (!list->empty()) list->pop_back();
  if (extent == Extent::long_keys && work_of(p) > budget)
    shorten(p.q, std::max(least_rows, int64_t(double(max_used_length(p.q, p.batch)) * budget / work_of(p))));
  const auto halve = [&](int64_t& d) { d = std::max(multiple, d / 2 / multiple * multiple); };
  for (int step = 0; step < 8 && work_of(p) > budget; ++step) {
    const bool same = p.head_dim == p.value_dim;
    halve(p.head_dim);
    if (same)
      p.value_dim = p.head_dim;
    else if (p.value_dim / 2 != p.head_dim)
      halve(p.value_dim);
  }
}

/// A config, and a tile that the kernel has for it. A few draws: kernels have not every tile for every head dim.
void draw_tile(const LoadedKernel& kernel, Drawn& drawn) {
  const std::vector<Tunable> tunables = parse_tunables(kernel);
  std::optional<TileShape> tile;
  for (int attempt = 0; attempt < 3 && !tile; ++attempt) {
    drawn.config = draw_config(tunables);
    tile = tile_of(kernel, drawn.c.problem, drawn.config);
  }
  drawn.tile = tile.value_or(TileShape{});
}

void draw_problem(const LoadedKernel& kernel, double work, Drawn& drawn) {
  Problem& p = drawn.c.problem;
  const TileShape& tile = drawn.tile;
  const FeatureSet on = draw_features(kernel);
  p.dtype = draw_dtype(kernel, on);
  const int64_t multiple = draw_dim_multiple(kernel, p.dtype);
  draw_dims(p, kernel, multiple, on);
  draw_tile(kernel, drawn);
  const Extent extent = draw_extent(kernel, tile, multiple, work);
  draw_lengths(p, tile, on);
  lengthen(p, tile, extent, on);
  if (on[int(Feature::short_keys)] && extent != Extent::long_keys) shorten_keys(p, tile);
  draw_mask(p, tile, on);
  draw_modifiers(p, on);
  draw_memory(p, tile, on);
  const bool large = extent == Extent::long_keys || chance(is_on_gpu(kernel) ? 10 : 2);
  fit(p, multiple, extent, large ? 10 * work : work);
}

Recipe draw_recipe(uint64_t seed) {
  // Ordinary data are a quarter; the rest aim at one mechanism each (reference/recipe.h).
  static const std::vector<Family> families = {
      Family::normal,       Family::normal,     Family::normal,    Family::normal,       Family::outliers,
      Family::uniform,      Family::integers,   Family::one_hot_v, Family::equal_scores, Family::negative,
      Family::creeping_max, Family::late_max,   Family::sinks,     Family::near_ties,    Family::cancelling,
      Family::subnormal,    Family::saturating, Family::constant_v};
  Recipe recipe;
  recipe.family = one_of(families);
  recipe.seed = seed;
  return recipe;
}

/// [heads, tokens, head dim] of Q, K or V in the file.
std::vector<int64_t> shape_in(const SafeTensors& content, const FileData& file, const char* name) {
  const auto found = content.tensors.find(file.layer + name);
  const bool usable = found != content.tensors.end() && found->second.shape.size() == 3;
  if (!usable || std::count(found->second.shape.begin(), found->second.shape.end(), 0) > 0)
    throw UsageError(file.path + ": needs a tensor `" + file.layer + name +
                     "` of shape [heads, tokens, head dim], none of them 0");
  return found->second.shape;
}

/// The problem takes the file's heads and head dims; lengths drawn stay, at most the file's.
void fit_to_file(Case& c, const FileData& file) {
  const SafeTensors content = read_safetensors(file.path);
  const auto shape = [&](const char* name) { return shape_in(content, file, name); };
  const std::vector<int64_t> q = shape("Q"), k = shape("K"), v = shape("V");
  Problem& p = c.problem;
  p.head_dim = q[2];
  p.value_dim = v[2];
  p.heads = q[0];
  p.kv_heads = k[0];
  shorten(p.q, q[1]);
  shorten(p.k, k[1]);
  c.file = file;
  c.file.first_row = *inRange<int64_t>(0, q[1]);
  c.file.first_key = *inRange<int64_t>(0, k[1]);
}

}  // namespace

void validate(const FileData& file) {
  const SafeTensors content = read_safetensors(file.path);
  for (const char* name : {"Q", "K", "V"}) shape_in(content, file, name);
}

std::vector<Tunable> parse_tunables(const LoadedKernel& kernel) {
  std::vector<Tunable> tunables;
  std::istringstream words(kernel.table->tunables ? kernel.table->tunables : "");
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    Tunable tunable{word.substr(0, equals), {}};
    if (equals != std::string::npos) tunable.values = parse_values(word.substr(equals + 1));
    if (tunable.values.empty())
      throw UnavailableError(
          "kernel " + kernel.name + ": tunable `" + word +
          "` is neither name=from:to:step, of at most 100000 values, nor name=a,b,c (flashproof_kernel.tunables)");
    tunables.push_back(tunable);
  }
  return tunables;
}

Drawn generate(const LoadedKernel& kernel, const Range& range, uint64_t campaign_seed, uint64_t index) {
  // RapidCheck keeps the context of `*gen` in a global, so one thread draws at a time; drawing takes microseconds.
  static std::mutex drawing;
  const std::lock_guard lock(drawing);
  const rc::Random geometry(stream_seed(campaign_seed, index, 0));
  const rc::Random data(stream_seed(campaign_seed, index, 1));
  const auto draw_geometry = rc::gen::exec([&] {
    Drawn shape;
    draw_problem(kernel, range.work, shape);
    return shape;
  });
  Drawn drawn = draw_geometry(geometry, 100).value();
  const auto draw_data = rc::gen::exec([&] {
    Recipe recipe = draw_recipe(stream_seed(campaign_seed, index, 2));
    if (range.files.empty()) return recipe;
    recipe.family = Family::file;
    fit_to_file(drawn.c, one_of(range.files));
    return recipe;
  });
  drawn.c.recipe = draw_data(data, 100).value();
  return drawn;
}

}  // namespace flashproof
