// Counting of configuration cells; the cells are defined in coverage.h.
#include "fuzz/coverage.h"

#include <algorithm>

#include "reference/arithmetic.h"

namespace flashproof {
namespace {

struct FeatureRow {
  const char* name;
  uint64_t needs;  ///< FLASHPROOF_FEATURE_* bits
};

constexpr FeatureRow feature_rows[feature_count] = {
    {"bf16", 0},
    {"fp16", 0},
    {"fp32", 0},
    {"e4m3", 0},
    {"e5m2", 0},
    {"batch", 0},
    {"gqa", FLASHPROOF_FEATURE_GQA},
    {"value_dim", FLASHPROOF_FEATURE_VALUE_DIM},
    {"packed", FLASHPROOF_FEATURE_PACKED},
    {"seqused", FLASHPROOF_FEATURE_SEQUSED},
    {"paged", FLASHPROOF_FEATURE_PAGED},
    {"strides", FLASHPROOF_FEATURE_STRIDES},
    {"causal", FLASHPROOF_FEATURE_CAUSAL},
    {"window", FLASHPROOF_FEATURE_WINDOW},
    {"top_left", FLASHPROOF_FEATURE_TOP_LEFT},
    {"short_keys", FLASHPROOF_FEATURE_NEGATIVE_OFFSET},
    {"scale", FLASHPROOF_FEATURE_SCALE},
    {"softcap", FLASHPROOF_FEATURE_SOFTCAP},
    {"alibi", FLASHPROOF_FEATURE_ALIBI},
    {"bias", FLASHPROOF_FEATURE_BIAS},
    {"sink", FLASHPROOF_FEATURE_SINK},
    {"dropout", FLASHPROOF_FEATURE_DROPOUT},
    {"descale", FLASHPROOF_FEATURE_DESCALE},
    {"backward", FLASHPROOF_FEATURE_BACKWARD},
};

bool is_dtype(Feature feature) { return int(feature) < dtype_count; }

DType dtype_of(Feature feature) {
  constexpr DType dtypes[] = {DType::bf16, DType::fp16, DType::fp32, DType::e4m3, DType::e5m2};
  return dtypes[int(feature)];
}

bool masks_by_position(const Mask& mask) {
  return mask.causal || mask.window_left != open_window || mask.window_right != open_window;
}

/// Some entry has fewer keys than queries while a mask or ALiBi depends on positions.
bool has_short_keys(const Problem& p) {
  if (!masks_by_position(p.mask) && p.alibi == Alibi::none) return false;
  for (int64_t b = 0; b < p.batch; ++b)
    if (used_length(p.k, b) < used_length(p.q, b)) return true;
  return false;
}

/// Pairs that no legal problem has: two dtypes, packed or paged keys with one another.
bool exclusive(Feature f, Feature g) {
  if (is_dtype(f) && is_dtype(g)) return f != g;
  const auto pair = [&](Feature a, Feature b) { return (f == a && g == b) || (f == b && g == a); };
  if (pair(Feature::packed, Feature::paged)) return true;
  const bool wide = f == Feature::bf16 || f == Feature::fp16 || f == Feature::fp32;
  return wide && g == Feature::descale;
}

}  // namespace

const char* name_of(Feature feature) { return feature_rows[int(feature)].name; }

const char* name_of(Edge edge) {
  constexpr const char* names[] = {"0", "1", "tile-1", "tile", "tile+1", "inside", "multiple", "ragged"};
  return names[int(edge)];
}

bool has(const Problem& p, Feature feature) {
  if (is_dtype(feature)) return p.dtype == dtype_of(feature);
  switch (feature) {
    case Feature::batch:
      return p.batch > 1;
    case Feature::gqa:
      return p.heads != p.kv_heads;
    case Feature::value_dim:
      return p.value_dim != p.head_dim;
    case Feature::packed:
      return !p.q.packed.empty() || !p.k.packed.empty();
    case Feature::seqused:
      return !p.q.used.empty() || !p.k.used.empty();
    case Feature::paged:
      return p.paging.has_value();
    case Feature::strides:
      return p.layout.heads_first || p.layout.row_gap > 0;
    case Feature::causal:
      return p.mask.causal;
    case Feature::window:
      return p.mask.window_left != open_window || p.mask.window_right != open_window;
    case Feature::top_left:
      return p.mask.top_left && (masks_by_position(p.mask) || p.alibi != Alibi::none);
    case Feature::short_keys:
      return has_short_keys(p);
    case Feature::scale:
      return p.scale.has_value();
    case Feature::softcap:
      return p.softcap > 0;
    case Feature::alibi:
      return p.alibi != Alibi::none;
    case Feature::bias:
      return p.bias.has_value();
    case Feature::sink:
      return p.sink;
    case Feature::dropout:
      return p.dropout.has_value();
    case Feature::descale:
      return p.descale;
    case Feature::backward:
      return has_backward(p);
    default:
      return false;
  }
}

Edge edge_of(int64_t length, int64_t tile) {
  if (length == 0) return Edge::zero;
  if (length == 1) return Edge::one;
  if (length == tile - 1) return Edge::below;
  if (length == tile) return Edge::exact;
  if (length == tile + 1) return Edge::above;
  if (length < tile) return Edge::inside;
  return length % tile == 0 ? Edge::multiple : Edge::ragged;
}

std::optional<TileShape> tile_of(const LoadedKernel& kernel, const Problem& like, const std::string& config) {
  constexpr int64_t long_sequence = 1 << 20;
  Problem problem;
  problem.dtype = like.dtype, problem.head_dim = like.head_dim, problem.value_dim = like.value_dim;
  problem.q.slot = problem.k.slot = long_sequence;
  try {
    const std::string text = subject_of(kernel, problem, config).arithmetic;
    if (text.empty()) return std::nullopt;
    const Arithmetic arithmetic = parse_arithmetic(text);
    const auto edge = [](int64_t tile) { return tile > 0 && tile < long_sequence ? tile : 64; };
    return TileShape{edge(arithmetic.tile_m), edge(arithmetic.tile_n)};
  } catch (const BadDescription&) {
    return TileShape{};
  }
}

bool admits(const Capabilities& kernel, Feature feature) {
  if (is_dtype(feature)) return kernel.dtypes == 0 || (kernel.dtypes >> int(dtype_of(feature)) & 1);
  const uint64_t needs = feature_rows[int(feature)].needs;
  return (kernel.features & needs) == needs;
}

bool feasible(const Capabilities& kernel, Feature f, Feature g) {
  return admits(kernel, f) && admits(kernel, g) && !exclusive(f, g);
}

int Coverage::cell(Feature f, Feature g, int side, Edge edge) {
  return ((int(f) * feature_count + int(g)) * 2 + side) * edge_count + int(edge);
}

void Coverage::visit(const Problem& p, const TileShape& tile) {
  bool edges[2][edge_count] = {};
  for (int64_t b = 0; b < p.batch; ++b) {
    edges[0][int(edge_of(used_length(p.q, b), tile.m))] = true;
    edges[1][int(edge_of(used_length(p.k, b), tile.n))] = true;
  }
  for (int f = 0; f < feature_count; ++f) {
    if (!has(p, Feature(f))) continue;
    for (int g = f + 1; g < feature_count; ++g) {
      if (!has(p, Feature(g))) continue;
      for (int side = 0; side < 2; ++side)
        for (int edge = 0; edge < edge_count; ++edge)
          if (edges[side][edge]) ++visits_[cell(Feature(f), Feature(g), side, Edge(edge))];
    }
  }
}

Coverage::Summary Coverage::summary(const std::vector<Capabilities>& kernels, int most) const {
  struct Named {
    int64_t visits;
    std::string name;
  };
  Summary summary;
  std::vector<Named> cells;
  for (int f = 0; f < feature_count; ++f) {
    for (int g = f + 1; g < feature_count; ++g) {
      const bool possible = std::any_of(kernels.begin(), kernels.end(),
                                        [&](const Capabilities& k) { return feasible(k, Feature(f), Feature(g)); });
      if (!possible) continue;
      for (int side = 0; side < 2; ++side) {
        for (int edge = 0; edge < edge_count; ++edge) {
          const int64_t visits = visits_[cell(Feature(f), Feature(g), side, Edge(edge))];
          ++summary.feasible;
          summary.visited += visits > 0;
          cells.push_back({visits, std::string(name_of(Feature(f))) + " x " + name_of(Feature(g)) + " x " +
                                       (side == 0 ? "seq_q " : "seq_k ") + name_of(Edge(edge))});
        }
      }
    }
  }
  std::stable_sort(cells.begin(), cells.end(), [](const Named& a, const Named& b) { return a.visits < b.visits; });
  for (int i = 0; i < most && i < int(cells.size()); ++i) summary.emptiest.push_back(cells[i].name);
  return summary;
}

}  // namespace flashproof
