// TAIL: keys left out, counted twice, or read past the end; tiles and parts of the keys that are skipped.
#include <cmath>
#include <limits>

#include "fuzz/explain/hypothesis.h"

namespace flashproof {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

/// Whether key j of an entry with Sk keys is left out.
using Dropped = std::function<bool(int64_t j, int64_t seq_k)>;

void add_dropped(Hypotheses& list, const std::string& id, const std::string& sentence,
                 const std::function<Dropped(const Observation&)>& dropped_for) {
  add_mistake(list, id, "TAIL", sentence, [dropped_for](const Observation& o) -> std::optional<Mistake> {
    Mistake mistake;
    mistake.scores = [dropped = dropped_for(o)](const Inputs&, RowSketch& row) {
      for (Pair& pair : row.pairs) pair.visible = pair.visible && !dropped(pair.j, row.at.seq_k);
    };
    return mistake;
  });
}

void add_dropped_keys(Hypotheses& list) {
  const auto fixed = [](const Dropped& dropped) { return [dropped](const Observation&) { return dropped; }; };
  add_dropped(list, "last-key-dropped", "the last key is left out",
              fixed([](int64_t j, int64_t seq_k) { return j == seq_k - 1; }));
  add_dropped(list, "first-key-dropped", "the first key is left out", fixed([](int64_t j, int64_t) { return j == 0; }));
  for (const int64_t m : {2, 4, 8, 16, 32, 64, 128})
    add_dropped(list, "keys-rounded-down-" + std::to_string(m),
                "keys after the last multiple of " + std::to_string(m) + " are left out",
                fixed([m](int64_t j, int64_t seq_k) { return j >= seq_k / m * m; }));
  for (const bool first : {true, false})
    add_mistake(list, first ? "first-visible-key-dropped" : "last-visible-key-dropped", "TAIL",
                first ? "the first key that a row sees is left out" : "the last key that a row sees is left out",
                [first](const Observation&) -> std::optional<Mistake> {
                  Mistake mistake;
                  mistake.scores = [first](const Inputs&, RowSketch& row) {
                    Pair* edge = nullptr;
                    for (Pair& pair : row.pairs)
                      if (pair.visible && (!first || !edge)) edge = &pair;
                    if (edge) edge->visible = false;
                  };
                  return mistake;
                });
}

void add_dropped_tiles(Hypotheses& list) {
  struct Tile {
    const char *id, *sentence;
    int64_t (*number)(int64_t tiles);  ///< of all tiles, the one that is left out
  };
  const Tile tiles[] = {
      {"first-tile-skipped", "the first tile of keys is skipped", [](int64_t) { return int64_t(0); }},
      {"second-tile-skipped", "the second tile of keys is skipped", [](int64_t) { return int64_t(1); }},
      {"last-tile-skipped", "the last tile of keys is skipped", [](int64_t n) { return n - 1; }},
      {"tile-before-last-skipped", "the last tile of keys but one is skipped", [](int64_t n) { return n - 2; }}};
  for (const Tile& which : tiles)
    add_dropped(list, which.id, which.sentence, [which](const Observation& o) -> Dropped {
      return [which, tile = key_tiles(o).front()](int64_t j, int64_t seq_k) {
        return j / tile == which.number((seq_k + tile - 1) / tile);
      };
    });
  add_dropped(list, "tail-tile-skipped", "the tail of keys that does not fill a tile is left out",
              [](const Observation& o) -> Dropped {
                return [tile = key_tiles(o).front()](int64_t j, int64_t seq_k) { return j >= seq_k / tile * tile; };
              });
  add_dropped(list, "last-key-of-each-tile-dropped", "the last key of each tile is left out",
              [](const Observation& o) -> Dropped {
                return [tile = key_tiles(o).front()](int64_t j, int64_t) { return j % tile == tile - 1; };
              });
}

/// Keys of a part, as FlashDecoding cuts them: whole tiles, as even as they go.
int64_t part_length(int64_t tiles, int64_t parts, int64_t tile) { return (tiles + parts - 1) / parts * tile; }

void add_dropped_parts(Hypotheses& list) {
  const auto of_parts = [&](const std::string& id, const std::string& sentence,
                            const std::function<bool(int64_t j, int64_t seq_k, int64_t parts, int64_t tile)>& dropped) {
    add_mistake(list, id, "TAIL", sentence, [dropped](const Observation& o) -> std::optional<Mistake> {
      const int64_t parts = key_parts(o), tile = key_tiles(o).front();
      if (parts < 2) return std::nullopt;
      Mistake mistake;
      mistake.scores = [=](const Inputs&, RowSketch& row) {
        for (Pair& pair : row.pairs) pair.visible = pair.visible && !dropped(pair.j, row.at.seq_k, parts, tile);
      };
      return mistake;
    });
  };
  const auto length = [](int64_t seq_k, int64_t parts, int64_t tile) {
    return part_length((seq_k + tile - 1) / tile, parts, tile);
  };
  of_parts("part-tiles-rounded-down", "the tiles of a part are counted rounding down: the last keys are in no part",
           [](int64_t j, int64_t seq_k, int64_t parts, int64_t tile) {
             return j >= parts * part_length(seq_k / tile, parts, tile);
           });
  of_parts("last-key-of-each-part-dropped", "each part of the keys ends one key early",
           [=](int64_t j, int64_t seq_k, int64_t parts, int64_t tile) {
             return j == seq_k - 1 || j % length(seq_k, parts, tile) == length(seq_k, parts, tile) - 1;
           });
  of_parts("last-key-of-inner-parts-dropped", "each part of the keys but the last ends one key early",
           [=](int64_t j, int64_t seq_k, int64_t parts, int64_t tile) {
             return j != seq_k - 1 && j % length(seq_k, parts, tile) == length(seq_k, parts, tile) - 1;
           });
  of_parts("last-part-dropped", "the last part of the keys is left out of the combination",
           [=](int64_t j, int64_t seq_k, int64_t parts, int64_t tile) {
             return j / length(seq_k, parts, tile) == (seq_k - 1) / length(seq_k, parts, tile);
           });
  of_parts("first-part-dropped", "the first part of the keys is left out of the combination",
           [=](int64_t j, int64_t seq_k, int64_t parts, int64_t tile) { return j < length(seq_k, parts, tile); });
}

/// `count` more keys of score 0 and value 0.
void add_pad_keys(RowSketch& row, int64_t count) {
  for (int64_t n = 0; n < count; ++n)
    row.pairs.push_back({.j = row.at.seq_k, .key_row = row.pairs[0].key_row, .value_row = -1});
}

void add_padding(Hypotheses& list) {
  const auto padded = [&](const std::string& id, const std::string& sentence,
                          const std::function<int64_t(const Observation&, int64_t seq_k)>& count) {
    add_mistake(list, id, "TAIL", sentence, [count](const Observation& o) -> std::optional<Mistake> {
      Mistake mistake;
      mistake.scores = [&o, count](const Inputs&, RowSketch& row) {
        if (row.sees_keys()) add_pad_keys(row, count(o, row.at.seq_k));
      };
      return mistake;
    });
  };
  const auto up_to = [](int64_t m) { return [m](const Observation&, int64_t seq_k) { return (m - seq_k % m) % m; }; };
  padded("pad-key", "one padding key of score 0 enters the row sum", [](const Observation&, int64_t) { return 1; });
  for (const int64_t m : {2, 4, 8, 16, 32, 64})
    padded("padded-to-" + std::to_string(m),
           "keys are padded to a multiple of " + std::to_string(m) + " with keys of score 0 that enter the row sum",
           up_to(m));
  padded("padded-to-tile", "the last tile is filled with keys of score 0 that enter the row sum",
         [up_to](const Observation& o, int64_t seq_k) { return up_to(key_tiles(o).front())(o, seq_k); });
}

void add_beyond_the_end(Hypotheses& list) {
  const auto past_end = [](bool score) {
    return [score](const Observation&) -> std::optional<Mistake> {
      Mistake mistake;
      mistake.scores = [score](const Inputs& in, RowSketch& row) {
        const KeyRange keys = visible_keys(in.problem.mask, row.at.seq_q, row.at.seq_k, row.i);
        if (row.pairs.empty() || keys.end != row.at.seq_k) return;
        Pair beyond = row.pairs.back();
        beyond.j = row.at.seq_k, beyond.numerator = nan, beyond.visible = true;
        beyond.denominator = score ? nan : 0;
        row.pairs.push_back(beyond);
      };
      return mistake;
    };
  };
  add_mistake(list, "key-past-the-end", "TAIL", "a key past the end is read and counts (NaN stands there)",
              past_end(true));
  add_mistake(list, "value-past-the-end", "TAIL",
              "a value past the end is read and multiplied with p = 0 (NaN stands there)", past_end(false));
  add_mistake(list, "key-of-next-entry", "TAIL", "the first key of the next packed entry counts as this entry's",
              [](const Observation& o) -> std::optional<Mistake> {
                if (o.in.problem.k.packed.empty() || o.in.problem.batch < 2) return std::nullopt;
                Mistake mistake;
                mistake.scores = [](const Inputs& in, RowSketch& row) {
                  if (row.at.k_begin + row.at.seq_k >= in.packing.total_k() || row.pairs.empty()) return;
                  Pair next{.j = row.at.seq_k,
                            .key_row = row.at.key_row(row.at.seq_k),
                            .value_row = row.at.key_row(row.at.seq_k)};
                  next.product = dot<double>(in.q, row.at.query_row(row.i), in.k, next.key_row, in.problem.head_dim);
                  next.s = score_scale<double>(in, row.at) * next.product;
                  row.pairs.push_back(next);
                };
                return mistake;
              });
}

}  // namespace

void add_key_hypotheses(Hypotheses& list) {
  add_dropped_keys(list);
  add_dropped_tiles(list);
  add_dropped_parts(list);
  add_padding(list);
  add_beyond_the_end(list);
}

}  // namespace flashproof
