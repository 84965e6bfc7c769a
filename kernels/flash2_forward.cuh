// FlashAttention 2 forward (Dao 2023, 2307.08691, Algorithm 1) by mma.sync, one block a tile of rows of one head.
//
//   for tiles of keys in ascending order:  S = Q K^T, modified and masked;
//                                          P, m, l, alpha = softmax of S on top of the tiles before;  O = alpha O + P V
//   O = w O,  L = m unit + ln l                                                              (flash2_store.cuh)
// A warp owns 16 or 32 rows and all keys of a tile, so softmax and P stay in its registers. Tiles of keys begin at
// multiples of tile_n; those that the mask hides from the whole tile of rows are passed over. Nothing that a row gets
// depends on the tile of rows, unless V has NaN or infinity where the mask hides it: 0 times that is NaN, where the
// tile is not passed over.
//
// Shared memory: Q, then for each stage K and V (kernels/tile_config.h); tile n of the keys is in stage n mod stages.
// While a tile is worked on, stages - 1 others are on their way; one barrier a tile says both that it has arrived for
// all and that the one before is no longer read, which frees its stage. With one stage V is on its way while the scores
// are worked out, and the next K, behind a second barrier, while the weights are. Copies are started behind the product
// Q K, whose tensor instructions leave room for their addresses.
//
// Arithmetic: scores and O in the tensor core's steps, everything else in fp32 as the headers of the parts say;
// kernels/flash2_host.cpp declares it.
#pragma once
#include "kernels/flash2_store.cuh"

namespace flashproof::flash2 {

/// The block's head and rows, and the keys it may see.
struct Work {
  int b, head, kv_head, first_row;
  Sequence rows, keys;
  EntryMask mask;
};

template <TileConfig config>
FLASHPROOF_DEVICE Work work_of(const Call& call) {
  const int tile = call.last_rows_first ? block_count(0) - 1 - block_index(0) : block_index(0);
  const int head = block_index(1), b = block_index(2);
  const Sequence rows = sequence_of(call.q_side, b), keys = sequence_of(call.k_side, b);
  return {b, head, head / call.group, tile * config.tile_m, rows, keys, mask_of(call, rows.length, keys.length)};
}

/// Tiles of keys that a row of the block sees.
template <TileConfig config>
FLASHPROOF_DEVICE KeyRange key_tiles(const Work& work) {
  const int last_row = work.first_row + config.tile_m - 1, rows = work.rows.length;
  const KeyRange keys = work.mask.some(work.first_row, last_row < rows ? last_row : rows - 1);
  if (keys.begin >= keys.end) return {0, 0};
  return {keys.begin / config.tile_n, (keys.end + config.tile_n - 1) / config.tile_n};
}

/// K and V in memory, and the stages they are copied to.
template <TileConfig config>
struct KeyLoader {
  Tokens k, v;
  SharedAddress stages;
  KeyRange tiles;

  FLASHPROOF_DEVICE SharedAddress key_tile(int tile) const {
    return stages + uint32(tile) % config.stages * uint32(stage_bytes(config));
  }
  FLASHPROOF_DEVICE SharedAddress value_tile(int tile) const { return key_tile(tile) + uint32(key_tile_bytes(config)); }

  /// Start the copies of a tile; where there is none, of zeros.
  FLASHPROOF_DEVICE void start_keys(int tile) const {
    load_tile<config, config.tile_n, head_chunks<config>>(key_tile(tile), k, first_token(tile));
  }
  FLASHPROOF_DEVICE void start_values(int tile) const {
    load_tile<config, config.tile_n, value_chunks<config>>(value_tile(tile), v, first_token(tile));
  }
  FLASHPROOF_DEVICE int first_token(int tile) const { return tile < tiles.end ? tile * config.tile_n : k.length; }
};

template <TileConfig config>
FLASHPROOF_DEVICE KeyLoader<config> key_loader(const Call& call, const Work& work, SharedAddress stages) {
  constexpr int bytes = element_bytes(config);
  const int chunks = call.head_dim * bytes / chunk_bytes, value_chunks = call.value_dim * bytes / chunk_bytes;
  const KeyRange tiles = key_tiles<config>(work);
  if constexpr (config.features == Features::general)
    return {paged_tokens_of(call.k, call, work.keys, work.b, work.kv_head, chunks),
            paged_tokens_of(call.v, call, work.keys, work.b, work.kv_head, value_chunks), stages, tiles};
  return {tokens_of(call.k, work.keys, work.kv_head, chunks), tokens_of(call.v, work.keys, work.kv_head, value_chunks),
          stages, tiles};
}

/// Modifiers and mask of a tile's scores; the warp's rows begin at `first_row` and see all keys of the `whole` tiles.
template <TileConfig config>
FLASHPROOF_DEVICE void finish_scores(Scores<config>& s, const Call& call, const Work& work, const ScoreRule& rule,
                                     const KeyRange& whole, int first_row, int tile) {
  if (config.features == Features::general && call.scaled)
    return modify_scores<config>(s, rule, work.mask, first_row, tile * config.tile_n);
  if (whole.begin <= tile && tile < whole.end) return;
  hide_keys<config, Cut::past>(s, work.mask, first_row, tile * config.tile_n);
  if (tile < whole.begin) hide_keys<config, Cut::before>(s, work.mask, first_row, tile * config.tile_n);
}

/// O in accumulators, not yet divided, of the warp's rows over all their keys.
template <TileConfig config>
FLASHPROOF_DEVICE void attend(Outputs<config>& o, RowState<config>& state, Queries<config>& queries, const Call& call,
                              const Work& work, int warp_row, const KeyLoader<config>& loader) {
  constexpr int stages = config.stages, pending = stages > 2 ? stages - 2 : 0;
  const bool scaled = config.features == Features::general && call.scaled;
  const int first_row = work.first_row + warp_row;
  if (loader.tiles.begin >= loader.tiles.end) return;
  copy_async_wait<pending>();
  block_barrier();
  queries.load();
  ScoreRule rule = {};
  if constexpr (config.features == Features::general)
    rule = score_rule_of(call, work.b, work.head, work.kv_head, work.mask.offset);
  const KeyRange whole = work.mask.whole_tiles(first_row, first_row + warp_rows(config) - 1, config.tile_n);
  for (int tile = loader.tiles.begin; tile < loader.tiles.end; ++tile) {
    copy_async_wait<pending>();
    block_barrier();
    if constexpr (stages == 1) loader.start_values(tile), copy_async_commit();
    Scores<config> s;
    multiply_keys<config>(s, queries, loader.key_tile(tile));
    if constexpr (stages == 1) {
      copy_async_wait<0>();
      block_barrier();
      loader.start_keys(tile + 1);
    } else {
      loader.start_keys(tile + stages - 1), loader.start_values(tile + stages - 1);
    }
    copy_async_commit();

    finish_scores<config>(s, call, work, rule, whole, first_row, tile);
    const Exponents<config> exponents = raise<config>(state, s, call.exponent_factor, scaled);
    rescale<config>(o, exponents.alpha);
    weigh<config>(s, state, exponents, call.exponent_factor);
    if (config.features == Features::general && call.dropped_words != 0)
      drop_weights<config>(s, call, work.b, work.head, first_row, tile * config.tile_n);
    multiply_values<config>(o, s, loader.value_tile(tile));
  }
}

/// O and L of the warp's rows. The tile of O takes the place of all others, so every warp must be done with those. The
/// block's work is worked out again: kept, it would take registers over all tiles.
template <TileConfig config>
FLASHPROOF_DEVICE void finish(const Outputs<config>& o, const RowState<config>& state, const Call& call, int warp_row) {
  const Work work = work_of<config>(call);
  const SharedAddress tile = dynamic_shared() + uint32(warp_row * 2 * config.value_dim);
  float weights[thread_rows<config>], lse[thread_rows<config>];
  finish_rows<config>(state, value_factor<config>(call, work.b, work.kv_head), call.unit, weights, lse);
  copy_async_wait<0>();
  block_barrier();
  stage_outputs<config>(tile, o, weights);
  warp_barrier();
  const int first_row = work.first_row + warp_row;
  store_outputs<config>(tile, tokens_of(call.o, work.rows, work.head, call.value_dim * 2 / chunk_bytes), first_row);
  float* first = call.lse + work.rows.batch * call.lse_batch_stride + work.head * call.lse_head_stride +
                 work.rows.first * call.lse_token_stride;
  store_lse<config>(first, call.lse_token_stride, work.rows.length, first_row, lse);
}

/// The whole kernel: grid (tiles of rows, heads, entries), thread_count(config) threads, shared_bytes(config) of shared
/// memory.
template <TileConfig config>
FLASHPROOF_DEVICE void forward(const Call& call) {
  static_assert(feasible(config) == nullptr, "feasible() says why this TileConfig cannot run");
  const Work work = work_of<config>(call);
  if (work.first_row >= work.rows.length) return;

  const SharedAddress query_tile = dynamic_shared();
  const KeyLoader<config> loader = key_loader<config>(call, work, query_tile + uint32(query_tile_bytes(config)));
  const int chunks = call.head_dim * element_bytes(config) / chunk_bytes;
  load_tile<config, config.tile_m, head_chunks<config>>(query_tile, tokens_of(call.q, work.rows, work.head, chunks),
                                                        work.first_row);
  if constexpr (config.stages == 1) loader.start_keys(loader.tiles.begin), copy_async_commit();
  for (int tile = loader.tiles.begin; tile < loader.tiles.begin + config.stages - 1; ++tile) {
    loader.start_keys(tile), loader.start_values(tile);
    copy_async_commit();
  }

  const int warp_row = thread_index() / 32 * warp_rows(config);
  const bool has_sink = config.features == Features::general && call.sink.data != nullptr;
  RowState<config> state = start_rows<config>(has_sink ? number_of(call.sink, 0, work.head) : -infinity);
  Queries<config> queries;
  queries.rows = query_tile + uint32(warp_row * config.head_dim * element_bytes(config));
  Outputs<config> o = {};
  attend<config>(o, state, queries, call, work, warp_row, loader);
  finish<config>(o, state, call, warp_row);
}

}  // namespace flashproof::flash2
