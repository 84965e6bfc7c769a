// MASK and EMPTY: which keys a row sees, shifted, forgotten, aligned otherwise, or taken by whole tiles; rows without
// keys.
#include <cmath>
#include <limits>

#include "fuzz/explain/hypothesis.h"

namespace flashproof {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

using Visible = std::function<bool(const Inputs&, const RowSketch&, const Pair&)>;

/// A mistake in which a key counts iff `visible` and its bias is not -infinity.
Mistake seen_by(const Visible& visible) {
  Mistake mistake;
  mistake.scores = [visible](const Inputs& in, RowSketch& row) {
    for (Pair& pair : row.pairs)
      pair.visible = bias_at(in, row.at.b, row.at.h, row.i, pair.j) != -infinity && visible(in, row, pair);
  };
  return mistake;
}

/// How far each edge of the mask is moved outward, and which edges are forgotten.
struct MaskEdit {
  int64_t causal = 0, left = 0, right = 0;
  bool no_causal = false, no_left = false, no_right = false, other_alignment = false;
};

bool shown(const Mask& mask, const MaskEdit& edit, const HeadIndex& at, int64_t i, int64_t j) {
  Mask aligned = mask;
  aligned.top_left ^= edit.other_alignment;
  const int64_t position = i + alignment_offset(aligned, at.seq_q, at.seq_k);
  if (mask.causal && !edit.no_causal && j > position + edit.causal) return false;
  if (mask.window_left != open_window && !edit.no_left && j < position - mask.window_left - edit.left) return false;
  return mask.window_right == open_window || edit.no_right || j <= position + mask.window_right + edit.right;
}

Mistake edited_mask(const MaskEdit& edit) {
  return seen_by([edit](const Inputs& in, const RowSketch& row, const Pair& pair) {
    return shown(in.problem.mask, edit, row.at, row.i, pair.j);
  });
}

bool lengths_differ(const Observation& o) {
  for (int64_t b = 0; b < o.in.problem.batch; ++b)
    if (o.in.packing.seq_q(b) != o.in.packing.seq_k(b)) return true;
  return false;
}

void add_edge_hypotheses(Hypotheses& list) {
  struct Edge {
    const char *id, *sentence;
    MaskEdit edit;
    bool (*applies)(const Mask&);
  };
  const auto causal = [](const Mask& m) { return m.causal; };
  const auto left = [](const Mask& m) { return m.window_left != open_window; };
  const auto right = [](const Mask& m) { return m.window_right != open_window; };
  const Edge edges[] = {
      {"causal-one-less", "the causal mask hides the diagonal key", {.causal = -1}, causal},
      {"causal-one-more", "the causal mask shows one key past the diagonal", {.causal = 1}, causal},
      {"causal-ignored", "the causal mask is ignored", {.no_causal = true}, causal},
      {"window-left-one-less", "the window shows one key fewer on the left", {.left = -1}, left},
      {"window-left-one-more", "the window shows one key more on the left", {.left = 1}, left},
      {"window-right-one-less", "the window shows one key fewer on the right", {.right = -1}, right},
      {"window-right-one-more", "the window shows one key more on the right", {.right = 1}, right},
      {"window-left-ignored", "the window's left side is ignored", {.no_left = true}, left},
      {"window-right-ignored", "the window's right side is ignored", {.no_right = true}, right},
      {"mask-ignored", "no mask is applied", {.no_causal = true, .no_left = true, .no_right = true}, [](const Mask& m) {
         return m.causal + (m.window_left != open_window) + (m.window_right != open_window) > 1;
       }}};
  for (const Edge& edge : edges)
    add_mistake(list, edge.id, "MASK", edge.sentence, [edge](const Observation& o) -> std::optional<Mistake> {
      if (!edge.applies(o.in.problem.mask)) return std::nullopt;
      return edited_mask(edge.edit);
    });
  for (const bool top_left : {false, true})
    add_mistake(list, top_left ? "aligned-bottom-right" : "aligned-top-left", "MASK",
                top_left ? "the mask is aligned bottom-right instead of top-left"
                         : "the mask is aligned top-left instead of bottom-right",
                [top_left](const Observation& o) -> std::optional<Mistake> {
                  const Mask& m = o.in.problem.mask;
                  if (m == Mask{.top_left = top_left} || m.top_left != top_left || !lengths_differ(o))
                    return std::nullopt;
                  return edited_mask({.other_alignment = true});
                });
  add_mistake(list, "hidden-bias-shown", "MASK", "a bias of -infinity does not hide its key: it counts with its score",
              [](const Observation& o) -> std::optional<Mistake> {
                if (!o.in.problem.bias) return std::nullopt;
                Mistake mistake;
                mistake.scores = [](const Inputs& in, RowSketch& row) {
                  for (Pair& pair : row.pairs) {
                    if (bias_at(in, row.at.b, row.at.h, row.i, pair.j) != -infinity) continue;
                    pair.visible = visible(in.problem.mask, row.at.seq_q, row.at.seq_k, row.i, pair.j);
                    pair.s = score_scale<double>(in, row.at) * pair.product;
                  }
                };
                return mistake;
              });
}

/// Keys by whole tiles: the tiles at a mask's edge are taken or left as a whole.
void add_tile_hypotheses(Hypotheses& list) {
  const auto masked = [](const Observation& o) {
    return o.in.problem.mask != Mask{.top_left = o.in.problem.mask.top_left};
  };
  for (const bool shows : {true, false})
    add_mistake(list, shows ? "edge-tile-unmasked" : "edge-tile-dropped", "MASK",
                shows ? "tiles of keys that the mask cuts are not masked inside"
                      : "tiles of keys that the mask cuts are left out",
                [=](const Observation& o) -> std::optional<Mistake> {
                  if (!masked(o)) return std::nullopt;
                  const int64_t tile = key_tiles(o).front();
                  return seen_by([=](const Inputs& in, const RowSketch& row, const Pair& pair) {
                    const int64_t first = pair.j / tile * tile;
                    bool any = false, all = true;
                    for (int64_t j = first; j < std::min(first + tile, row.at.seq_k); ++j) {
                      const bool one = visible(in.problem.mask, row.at.seq_q, row.at.seq_k, row.i, j);
                      any |= one, all &= one;
                    }
                    return shows ? any : all;
                  });
                });
  for (const bool last : {true, false})
    add_mistake(list, last ? "loop-ends-by-first-row" : "loop-begins-by-last-row", "MASK",
                last ? "the loop over tiles of keys ends where the first row of the tile of rows ends"
                     : "the loop over tiles of keys begins where the last row of the tile of rows begins",
                [=](const Observation& o) -> std::optional<Mistake> {
                  if (!masked(o)) return std::nullopt;
                  const int64_t tile_m = row_tiles(o).front(), tile_n = key_tiles(o).front();
                  return seen_by([=](const Inputs& in, const RowSketch& row, const Pair& pair) {
                    const HeadIndex& at = row.at;
                    if (!visible(in.problem.mask, at.seq_q, at.seq_k, row.i, pair.j)) return false;
                    const int64_t first = row.i / tile_m * tile_m, end = std::min(first + tile_m, at.seq_q);
                    const KeyRange keys = visible_keys(in.problem.mask, at.seq_q, at.seq_k, last ? first : end - 1);
                    return last ? pair.j < (keys.end + tile_n - 1) / tile_n * tile_n
                                : pair.j >= keys.begin / tile_n * tile_n;
                  });
                });
}

/// The first tile of keys that the tile of rows of row i visits, by the mask alone; begin == end where it visits none.
KeyRange first_tile(const Inputs& in, const HeadIndex& at, int64_t i, int64_t tile_m, int64_t tile_n) {
  int64_t begin = at.seq_k;
  const int64_t first = i / tile_m * tile_m;
  for (int64_t row = first; row < std::min(first + tile_m, at.seq_q); ++row) {
    const KeyRange keys = visible_keys(in.problem.mask, at.seq_q, at.seq_k, row);
    if (keys.begin < keys.end) begin = std::min(begin, keys.begin);
  }
  begin = begin / tile_n * tile_n;
  return {begin, std::min(begin + tile_n, at.seq_k)};
}

bool sees_any_of(const RowSketch& row, KeyRange keys) {
  for (const Pair& pair : row.pairs)
    if (pair.visible && keys.begin <= pair.j && pair.j < keys.end) return true;
  return false;
}

void make_nan(RowSketch& row) {
  row.o.assign(row.o.size(), nan);
  row.l = row.stored = nan;
}

void add_dead_tile_hypotheses(Hypotheses& list) {
  for (const bool rows_too : {false, true})
    add_mistake_in(in_forward, list, rows_too ? "dead-tile-nan-with-dead-rows" : "dead-tile-nan", "EMPTY",
                   std::string("a row that sees no key of the first tile that its tile of rows visits becomes NaN") +
                       (rows_too ? ", and so does a row without keys" : ", if it sees others"),
                   [=](const Observation& o) -> std::optional<Mistake> {
                     const int64_t tile_m = row_tiles(o).front(), tile_n = key_tiles(o).front();
                     Mistake mistake;
                     mistake.result = [=](const Inputs& in, RowSketch& row) {
                       const KeyRange tile = first_tile(in, row.at, row.i, tile_m, tile_n);
                       if (tile.begin < tile.end && !sees_any_of(row, tile) && (rows_too || row.sees_keys()))
                         make_nan(row);
                     };
                     return mistake;
                   });
}

void add_dead_row_hypotheses(Hypotheses& list) {
  const auto dead = [&](const char* id, const char* sentence,
                        const std::function<void(const Inputs&, RowSketch&)>& result) {
    add_mistake_in(in_forward, list, id, "EMPTY", sentence, [result](const Observation& o) -> std::optional<Mistake> {
      if (holds_poison(o, OutputId::o) || holds_poison(o, OutputId::lse)) return std::nullopt;
      Mistake mistake;
      mistake.result = [result](const Inputs& in, RowSketch& row) {
        if (!row.sees_keys()) result(in, row);
      };
      return mistake;
    });
  };
  dead("dead-row-nan", "a row that sees no key becomes NaN", [](const Inputs&, RowSketch& row) { make_nan(row); });
  dead("dead-row-nan-o", "O of a row that sees no key is NaN",
       [](const Inputs&, RowSketch& row) { row.o.assign(row.o.size(), nan); });
  dead("dead-row-l-plus-infinity", "L of a row that sees no key is +infinity",
       [](const Inputs&, RowSketch& row) { row.l = row.stored = infinity; });
  dead("dead-row-l-zero", "L of a row that sees no key is 0",
       [](const Inputs&, RowSketch& row) { row.l = row.stored = 0; });
  for (const bool scores : {false, true})
    add_mistake(list, scores ? "dead-row-unmasked" : "dead-row-uniform", "EMPTY",
                scores ? "a row that sees no key attends to all keys by their scores"
                       : "a row that sees no key attends to all keys equally",
                [scores](const Observation&) -> std::optional<Mistake> {
                  Mistake mistake;
                  mistake.scores = [scores](const Inputs&, RowSketch& row) {
                    if (row.sees_keys()) return;
                    for (Pair& pair : row.pairs) {
                      pair.visible = true;
                      if (!scores || pair.s == -infinity) pair.s = 0;
                    }
                  };
                  return mistake;
                });
}

}  // namespace

void add_mask_hypotheses(Hypotheses& list) {
  add_edge_hypotheses(list);
  add_tile_hypotheses(list);
  add_dead_tile_hypotheses(list);
  add_dead_row_hypotheses(list);
}

}  // namespace flashproof
