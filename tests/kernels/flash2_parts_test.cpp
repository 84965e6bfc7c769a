// The parts of the FlashAttention 2 kernel, each alone on the simulated multiprocessor: swizzle, shapes, loaders,
// masks, modifiers, softmax, products, epilogue.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <random>
#include <set>
#include <vector>

#include "kernels/flash2_forward.cuh"
#include "kernels/simulator/simulate.h"
#include "reference/visible.h"
#include "tests/reference/small_inputs.h"

namespace flashproof::flash2 {
namespace {

using test::coin;
using test::draw;

constexpr uint32 shared = 1 << 16;

/// Of the tests that are no properties, and of the schedules: the same numbers in every run.
int64 any(int64 least, int64 most) {
  static std::mt19937_64 engine(1);
  return std::uniform_int_distribution<int64>(least, most)(engine);
}

template <class Body>
void run(int threads, const std::vector<GlobalRegion>& regions, Body body) {
  simulate({{1, 1, 1}, threads, shared, uint64(any(0, 1000)), regions}, body);
}

// ---- swizzle and shapes

/// Whether eight rows of one chunk column, from any multiple of 8 on, lie in eight different groups of four banks.
template <class Offset>
bool meets_all_banks(int chunks, Offset offset) {
  for (int row = 0; row < 32; row += 8)
    for (int chunk = 0; chunk < chunks; ++chunk) {
      std::set<uint32> groups;
      for (int n = 0; n < 8; ++n) groups.insert(offset(row + n, chunk) / chunk_bytes % 8);
      if (groups.size() != 8) return false;
    }
  return true;
}

TEST(Flash2Parts, SwizzleMovesNoChunkOntoAnotherAndMeetsAllBanks) {
  for (int dim : {32, 64, 96, 128, 160, 192, 256})
    for (int bytes : {1, 2}) {
      const int chunks = dim * bytes / chunk_bytes;
      std::set<uint32> places;
      for (int row = 0; row < 32; ++row)
        for (int chunk = 0; chunk < chunks; ++chunk) {
          const uint32 offset = swizzled_offset(chunks, row, chunk);
          EXPECT_EQ(offset / uint32(chunks * chunk_bytes), uint32(row));
          places.insert(offset);
        }
      EXPECT_EQ(places.size(), size_t(32 * chunks));
      EXPECT_TRUE(meets_all_banks(chunks, [&](int row, int chunk) { return swizzled_offset(chunks, row, chunk); }));
    }
  EXPECT_FALSE(meets_all_banks(8, [](int row, int chunk) { return uint32((row * 8 + chunk) * chunk_bytes); }));
}

constexpr TileConfig small = {DType::bf16, 32, 32, 2, 2, 64, 64, Features::plain};

TEST(Flash2Parts, SaysWhichShapesCannotRun) {
  const auto with = [](auto change) {
    TileConfig c = small;
    change(c);
    return feasible(c);
  };
  EXPECT_EQ(feasible(small), nullptr);
  EXPECT_NE(with([](TileConfig& c) { c.dtype = DType::fp32; }), nullptr);
  EXPECT_NE(with([](TileConfig& c) { c.tile_m = 48; }), nullptr);
  EXPECT_NE(with([](TileConfig& c) { c.tile_m = 128; }), nullptr);
  EXPECT_NE(with([](TileConfig& c) { c.tile_n = 24; }), nullptr);
  EXPECT_EQ(with([](TileConfig& c) { c.tile_n = 16; }), nullptr);
  EXPECT_NE(with([](TileConfig& c) { c.tile_n = 16, c.dtype = DType::e4m3; }), nullptr);
  EXPECT_NE(with([](TileConfig& c) { c.stages = 0; }), nullptr);
  EXPECT_EQ(with([](TileConfig& c) { c.stages = 1; }), nullptr);
  EXPECT_NE(with([](TileConfig& c) { c.value_dim = 48; }), nullptr);
  EXPECT_NE(with([](TileConfig& c) { c.tile_n = 256, c.stages = 4; }), nullptr) << "shared memory";
  EXPECT_NE(with([](TileConfig& c) { c.tile_m = 64, c.value_dim = 256; }), nullptr) << "registers";
  EXPECT_EQ(padded_dim(8), 32);
  EXPECT_EQ(padded_dim(136), 160);
  EXPECT_EQ(padded_dim(257), 0);
}

RC_GTEST_PROP(Flash2Parts, dividesByAProduct, ()) {
  const int largest = (1u << 31) - 1;
  const uint32 d = uint32(coin() ? draw(1, 300) : draw(1, longest_sequence));
  const Divisor divisor = divisor_of(d);
  for (int n : {0, int(d) - 1, int(d), largest, int(largest / d * d), int(largest / d * d - 1), int(draw(0, largest))})
    RC_ASSERT(divisor.divide(n) == int(uint32(n) / d));
}

// ---- loaders

/// Tokens of an entry, 16-bit elements that tell where they come from, in a tensor of just the logical size.
struct Source {
  int64 slots, heads, channels, pages;
  std::vector<unsigned short> data;
  std::vector<int32> table;
  bool unaligned;

  unsigned short element(int64 page, int64 slot, int64 head, int64 c) const {
    return static_cast<unsigned short>(((page * slots + slot) * heads + head) * channels + c + 1);
  }
  Source(int64 pages, int64 slots, int64 heads, int64 channels, bool unaligned)
      : slots(slots), heads(heads), channels(channels), pages(pages), data(1), unaligned(unaligned) {
    data.resize(size_t(pages * slots * heads * channels + unaligned));
    for (int64 n = 0; n < pages * slots * heads * channels; ++n)
      data[size_t(n + unaligned)] = static_cast<unsigned short>(n + 1);
    for (int64 n = 0; n < pages; ++n) table.push_back(int32(pages - 1 - n));
  }
  Rows rows() const {
    return {data.data() + unaligned, slots * heads * channels * 2, channels * 2, int(heads * channels * 2), !unaligned};
  }
};

/// Loads 32 tokens of head 1 from `begin` on and compares each element of the tile.
void expect_tile(const Source& source, bool paged, int length, int begin) {
  constexpr TileConfig config = {DType::bf16, 32, 32, 2, 2, 64, 64, Features::general};
  constexpr int chunks = head_chunks<config>;
  Call call = {};
  if (paged) call.page_table = source.table.data(), call.pages_an_entry = source.pages;
  call.page_size = divisor_of(uint32(source.slots));
  const int present = int(source.channels) * 2 / chunk_bytes;
  std::vector<Words4> tile(32 * chunks);
  const std::vector<GlobalRegion> regions = {
      {source.data.data() + source.unaligned, int64(source.data.size() - source.unaligned) * 2, "K", false},
      {source.table.data(), int64(source.table.size()) * 4, "table", false}};
  run(64, regions, [&] {
    const Tokens tokens = paged_tokens_of(source.rows(), call, {0, 0, length}, 0, 1, present);
    load_tile<config, 32, chunks>(dynamic_shared(), tokens, begin);
    copy_async_commit();
    copy_async_wait<0>();
    block_barrier();
    for (int n = thread_index(); n < 32 * chunks; n += 64)
      tile[size_t(n)] = load_shared<Words4>(dynamic_shared() + swizzled_offset(chunks, n / chunks, n % chunks));
  });
  const auto* elements = reinterpret_cast<const unsigned short*>(tile.data());
  for (int row = 0; row < 32; ++row)
    for (int c = 0; c < 64; ++c) {
      const int token = begin + row;
      const bool inside = token < length && c < source.channels;
      const int64 page = paged ? source.table[size_t(inside ? token / source.slots : 0)] : 0;
      const int64 slot = paged ? token % source.slots : token;
      ASSERT_EQ(elements[row * 64 + c], inside ? source.element(page, slot, 1, c) : 0)
          << "row " << row << " channel " << c;
    }
}

TEST(Flash2Parts, LoadsWhatIsThereAndZerosPastIt) {
  for (bool unaligned : {false, true}) {
    expect_tile(Source(1, 80, 2, 64, unaligned), false, 80, 32);
    expect_tile(Source(1, 50, 2, 40, unaligned), false, 50, 32);
    expect_tile(Source(1, 50, 2, 8, unaligned), false, 3, 0);
    expect_tile(Source(6, 7, 2, 40, unaligned), true, 41, 32);
    expect_tile(Source(6, 7, 2, 64, unaligned), true, 42, 0);
  }
}

// ---- masks and modifiers

/// A mask as the kernel gets it and as the reference has it.
struct Masks {
  flashproof::Mask mask;
  EntryMask entry;
};
Masks draw_masks(int rows, int keys) {
  flashproof::Mask mask;
  mask.causal = coin(), mask.top_left = coin();
  if (coin()) mask.window_left = draw(0, 40);
  if (coin()) mask.window_right = draw(0, 40);
  const int right = mask.causal ? 0 : mask.window_right < 0 ? open_side : int(mask.window_right);
  const int left = mask.window_left < 0 ? open_side : int(mask.window_left);
  return {mask, {rows, keys, mask.top_left ? 0 : keys - rows, left, right}};
}

RC_GTEST_PROP(Flash2Parts, rangesOfKeysAreTheReferences, ()) {
  const int rows = int(draw(1, 60)), keys = int(draw(0, 60));
  const Masks m = draw_masks(rows, keys);
  const int first = int(draw(0, rows - 1)), last = int(draw(first, rows - 1));
  const int size = int(draw(1, 16)), tile = int(draw(0, 60 / size));
  bool all = true;
  for (int i = first; i <= last; ++i)
    for (int j = 0; j < 80; ++j) {
      const bool sees = visible(m.mask, rows, keys, i, j);
      const KeyRange range = m.entry.range(i), some = m.entry.some(first, last);
      RC_ASSERT(sees == (range.begin <= j && j < range.end));
      if (sees) RC_ASSERT(some.begin <= j && j < some.end);
      if (j / size == tile) all = all && sees;
    }
  const KeyRange whole = m.entry.whole_tiles(first, last, size);
  RC_ASSERT((whole.begin <= tile && tile < whole.end) == all);
}

/// Scores of one warp with 32 rows as a matrix [row][key], and back.
constexpr TileConfig wide = {DType::bf16, 32, 32, 2, 1, 32, 32, Features::general};
using Matrix32 = std::vector<float>;  ///< 32 x 32
template <class Function>
void each_score(Scores<wide>& s, Function&& function) {
  for (int block = 0; block < 2; ++block)
    for (int n = 0; n < 4; ++n)
      for (int e = 0; e < 4; ++e)
        function(s[block][n][e], 16 * block + e / 2 * 8 + lane_index() / 4, 8 * n + lane_index() % 4 * 2 + e % 2);
}
void take(Scores<wide>& s, const Matrix32& from) {
  each_score(s, [&](float& x, int row, int key) { x = from[size_t(row * 32 + key)]; });
}
void give(Scores<wide>& s, Matrix32& to) {
  each_score(s, [&](float& x, int row, int key) { to[size_t(row * 32 + key)] = x; });
}

RC_GTEST_PROP(Flash2Parts, hidesExactlyTheKeysThatTheMaskHides, ()) {
  const int rows = int(draw(33, 90)), keys = int(draw(1, 90));
  const Masks m = draw_masks(rows, keys);
  const int first_row = int(draw(0, rows / 16 - 2)) * 16, tile = int(draw(0, 2)) * 32;
  const Matrix32 before(32 * 32, 1);
  Matrix32 after(32 * 32);
  run(32, {}, [&] {
    Scores<wide> s;
    take(s, before);
    hide_keys<wide, Cut::past>(s, m.entry, first_row, tile);
    hide_keys<wide, Cut::before>(s, m.entry, first_row, tile);
    give(s, after);
  });
  for (int i = 0; i < 32; ++i)
    for (int j = 0; j < 32; ++j)
      RC_ASSERT(after[size_t(i * 32 + j)] == (visible(m.mask, rows, keys, first_row + i, tile + j) ? 1 : -infinity));
}

RC_GTEST_PROP(Flash2Parts, modifiesScoresAsTheFormulaSays, ()) {
  const int rows = int(draw(1, 32)), keys = int(draw(1, 32));
  const Masks m = draw_masks(rows, keys);
  std::vector<float> bias(size_t(rows * keys));
  for (float& b : bias) b = draw(0, 5) == 0 ? -infinity : float(draw(-30, 30)) / 8;
  const float cap = coin() ? float(draw(1, 20)) / 4 : 0, slope = coin() ? float(draw(-8, 8)) / 8 : 0;
  const bool biased = coin();
  const ScoreRule rule = {0.37f,
                          cap,
                          cap == 0 ? 0 : float(2 * 1.4426950408889634 / double(cap)),
                          slope,
                          {biased ? bias.data() : nullptr, 1, {0, 0, keys, 1}},
                          0,
                          m.entry.offset};
  Matrix32 before(32 * 32), after(32 * 32);
  for (float& s : before) s = float(draw(-100, 100)) / 16;
  run(32, {{bias.data(), int64(bias.size()) * 4, "bias", false}}, [&] {
    Scores<wide> s;
    take(s, before);
    modify_scores<wide>(s, rule, m.entry, 0, 0);
    give(s, after);
  });
  for (int i = 0; i < 32; ++i)
    for (int j = 0; j < 32; ++j) {
      double s = double(rule.factor) * double(before[size_t(i * 32 + j)]);
      if (cap != 0) s = double(cap) * std::tanh(s / double(cap));
      s -= double(slope) * std::abs(i + m.entry.offset - j);
      if (i >= rows || j >= keys || !visible(m.mask, rows, keys, i, j))
        s = -HUGE_VAL;
      else if (biased)
        s += double(bias[size_t(i * keys + j)]);
      const double got = double(after[size_t(i * 32 + j)]);
      RC_ASSERT(got == s || std::fabs(got - s) < 1e-5);
    }
}

RC_GTEST_PROP(Flash2Parts, dropsWhatPhiloxDrops, ()) {
  Call call = {};
  call.dropout_seed = uint64(draw(0, 1'000'000));
  call.dropped_words = dropout_threshold(0.25f);
  const int first_row = int(draw(0, 3)) * 16, tile = int(draw(0, 3)) * 32;
  const Matrix32 before(32 * 32, 3);
  Matrix32 after(32 * 32);
  run(32, {}, [&] {
    Scores<wide> p;
    take(p, before);
    drop_weights<wide>(p, call, 5, 7, first_row, tile);
    give(p, after);
  });
  for (int i = 0; i < 32; ++i)
    for (int j = 0; j < 32; ++j)
      RC_ASSERT(after[size_t(i * 32 + j)] ==
                (dropout_keeps(call.dropout_seed, call.dropped_words, 5, 7, first_row + i, tile + j) ? 3 : 0));
}

// ---- softmax

/// Weights of two tiles [row][64 keys], with m, l and the factors between them.
struct TwoTiles {
  Matrix32 first = Matrix32(32 * 32), second = Matrix32(32 * 32);
  std::vector<float> largest = std::vector<float>(32), sum = largest, alpha = largest;
};
TwoTiles weigh_two(const Matrix32& first, const Matrix32& second, float c, bool scaled, float sink) {
  TwoTiles result;
  run(32, {}, [&] {
    RowState<wide> rows = start_rows<wide>(sink);
    Exponents<wide> exponents;
    Scores<wide> s;
    for (const auto& [scores, weights] : {std::pair(&first, &result.first), {&second, &result.second}}) {
      take(s, *scores);
      exponents = raise<wide>(rows, s, c, scaled);
      weigh<wide>(s, rows, exponents, c);
      give(s, *weights);
    }
    for (int row = 0; row < thread_rows<wide>; ++row) {
      const float l = whole_sum(rows.sum[row]);
      const size_t i = size_t(row * 8 + lane_index() / 4);
      result.largest[i] = rows.largest[row], result.sum[i] = l, result.alpha[i] = exponents.alpha[row];
    }
  });
  return result;
}

RC_GTEST_PROP(Flash2Parts, softmaxOfTwoTilesIsThatOfTheRow, ()) {
  Matrix32 first(32 * 32), second(32 * 32);
  for (Matrix32* each : {&first, &second})
    for (float& s : *each) s = draw(0, 3) == 0 ? -infinity : float(draw(-400, 400)) / 32;
  for (int j = 0; j < 32; ++j) first[size_t(j)] = second[size_t(j)] = -infinity, first[size_t(32 + j)] = -infinity;
  const float c = 0.7f, sink = coin() ? 2.5f : -infinity;
  const TwoTiles got = weigh_two(first, second, c, coin(), sink);
  for (int i = 0; i < 32; ++i) {
    double largest = double(sink), sum = 0;
    for (int j = 0; j < 32; ++j)
      largest = std::max({largest, double(first[size_t(i * 32 + j)]), double(second[size_t(i * 32 + j)])});
    const double reference = std::isinf(largest) ? 0 : largest;
    const auto weight = [&](float s) { return std::exp2((double(s) - reference) * double(c)); };
    if (sink != -infinity) sum += weight(sink);
    for (int j = 0; j < 32; ++j) sum += weight(first[size_t(i * 32 + j)]) + weight(second[size_t(i * 32 + j)]);
    RC_ASSERT(double(got.largest[size_t(i)]) == largest);
    RC_ASSERT(std::fabs(double(got.sum[size_t(i)]) - sum) <= 1e-5 * sum);
    for (int j = 0; j < 32; ++j) {
      const double p = double(got.first[size_t(i * 32 + j)]) * double(got.alpha[size_t(i)]);
      RC_ASSERT(std::fabs(p - weight(first[size_t(i * 32 + j)])) < 1e-5);
      RC_ASSERT(std::fabs(double(got.second[size_t(i * 32 + j)]) - weight(second[size_t(i * 32 + j)])) < 1e-5);
    }
  }
}

TEST(Flash2Parts, SumCatchesNaNThatTheMaximumPassesOver) {
  Matrix32 s(32 * 32, 1);
  s[5 * 32 + 9] = NAN;
  const TwoTiles got = weigh_two(s, s, 1, false, -infinity);
  for (size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(got.largest[i], 1);
    EXPECT_EQ(std::isnan(got.sum[i]), i == 5);
  }
}

/// A bias that stands for a mask may be -FLT_MAX for all keys of a tile: they are equal then, and nothing beside
/// others.
TEST(Flash2Parts, LowestFiniteScoresAreNoInfinities) {
  constexpr float lowest = std::numeric_limits<float>::lowest();
  Matrix32 first(32 * 32, lowest), second(32 * 32, lowest);
  for (size_t j = 0; j < 32; ++j) second[32 + j] = 1;
  const TwoTiles got = weigh_two(first, second, 1.44269502f, true, -infinity);
  EXPECT_EQ(got.sum[0], 64);
  EXPECT_EQ(got.sum[1], 32);
}

/// Four partial sums, a key in that of its fragment's lane, ascending; then (l0 + l2) + (l1 + l3). Big and small
/// weights tell orders apart.
TEST(Flash2Parts, RowSumsBelongToFragmentLanes) {
  Matrix32 s(32 * 32);
  for (float& each : s) each = -float(any(0, 30));
  for (int i = 0; i < 32; ++i) s[size_t(i * 32 + 17)] = 0;
  const TwoTiles got = weigh_two(s, s, 1, false, -infinity);
  for (size_t i = 0; i < 32; ++i) {
    float l[4] = {};
    for (int tile = 0; tile < 2; ++tile)
      for (size_t j = 0; j < 32; ++j) l[j % 8 / 2] += got.second[i * 32 + j];
    EXPECT_EQ(got.sum[i], (l[0] + l[2]) + (l[1] + l[3]));
  }
}

TEST(Flash2Parts, RescalesEachRowByItsOwnFactor) {
  Matrix32 o(32 * 32, 8);
  run(32, {}, [&] {
    Outputs<wide> x;
    take(x, o);
    float alpha[thread_rows<wide>];
    for (int row = 0; row < thread_rows<wide>; ++row) alpha[row] = row == 2 && lane_index() / 4 == 3 ? 0.25f : 1;
    rescale<wide>(x, alpha);
    give(x, o);
  });
  for (size_t n = 0; n < o.size(); ++n) EXPECT_EQ(o[n], n / 32 == 19 ? 2 : 8);
}

// ---- products: integers small enough for every sum to be exact

template <DType dtype>
void write_tile(SharedAddress tile, int rows, int channels, const std::vector<int>& values) {
  const int bytes = format_of(dtype).bits / 8, chunks = channels * bytes / chunk_bytes, in_chunk = chunk_bytes / bytes;
  for (int n = lane_index(); n < rows * chunks; n += 32) {
    uint32 words[4] = {};
    for (int e = 0; e < in_chunk; ++e)
      words[e * bytes / 4] |= encode(dtype, values[size_t(n / chunks * channels + n % chunks * in_chunk + e)])
                              << e * bytes % 4 * 8;
    store_shared(tile + swizzled_offset(chunks, n / chunks, n % chunks),
                 Words4{words[0], words[1], words[2], words[3]});
  }
}

template <DType dtype, int rows, int head_dim, int value_dim>
void expect_products() {
  constexpr TileConfig config = {dtype, rows, 64, 2, 1, head_dim, value_dim, Features::plain};
  constexpr int blocks = row_blocks<config>, column_bytes = element_bytes(config);
  std::vector<int> q(rows * head_dim), k(64 * head_dim), v(64 * value_dim), p(rows * 64);
  for (std::vector<int>* each : {&q, &k, &v})
    for (int& x : *each) x = int(any(-3, 3));
  for (int& x : p) x = int(any(0, 1));
  std::vector<float> s(rows * 64), o(rows * value_dim);
  run(32, {}, [&] {
    const SharedAddress q_tile = dynamic_shared(), k_tile = q_tile + rows * head_dim * column_bytes;
    const SharedAddress v_tile = k_tile + 64 * head_dim * column_bytes;
    write_tile<dtype>(q_tile, rows, head_dim, q), write_tile<dtype>(k_tile, 64, head_dim, k);
    write_tile<dtype>(v_tile, 64, value_dim, v);
    warp_barrier();
    Queries<config> queries;
    queries.rows = q_tile;
    queries.load();
    Scores<config> scores;
    multiply_keys<config>(scores, queries, k_tile);
    Scores<config> weights;
    for (int block = 0; block < blocks; ++block)
      for (int n = 0; n < 8; ++n)
        for (int e = 0; e < 4; ++e) {
          const size_t at =
              size_t((16 * block + e / 2 * 8 + lane_index() / 4) * 64 + 8 * n + lane_index() % 4 * 2 + e % 2);
          s[at] = scores[block][n][e], weights[block][n][e] = float(p[at]);
        }
    Outputs<config> outputs = {};
    multiply_values<config>(outputs, weights, v_tile);
    for (int block = 0; block < blocks; ++block)
      for (int n = 0; n < value_dim / 8; ++n)
        for (int e = 0; e < 4; ++e) {
          const int pair = lane_index() % 4 * 2 + e % 2;
          const int c = is_fp8(dtype) ? n / 2 * 16 + 2 * pair + n % 2 : 8 * n + pair;
          o[size_t((16 * block + e / 2 * 8 + lane_index() / 4) * value_dim + c)] = outputs[block][n][e];
        }
  });
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < 64; ++j) {
      int sum = 0;
      for (int c = 0; c < head_dim; ++c) sum += q[size_t(i * head_dim + c)] * k[size_t(j * head_dim + c)];
      ASSERT_EQ(s[size_t(i * 64 + j)], float(sum)) << "S " << i << " " << j;
    }
    for (int c = 0; c < value_dim; ++c) {
      int sum = 0;
      for (int j = 0; j < 64; ++j) sum += p[size_t(i * 64 + j)] * v[size_t(j * value_dim + c)];
      ASSERT_EQ(o[size_t(i * value_dim + c)], float(is_fp8(dtype) ? 256 * sum : sum)) << "O " << i << " " << c;
    }
  }
}

TEST(Flash2Parts, MultipliesTilesOfEveryFormat) {
  expect_products<DType::bf16, 16, 32, 96>();
  expect_products<DType::bf16, 32, 128, 64>();
  expect_products<DType::fp16, 32, 64, 160>();
  expect_products<DType::e4m3, 16, 32, 64>();
  expect_products<DType::e4m3, 32, 96, 128>();
  expect_products<DType::e5m2, 32, 160, 96>();
}

// ---- epilogue

template <DType dtype>
void expect_stored(bool aligned, int length) {
  constexpr TileConfig config = {dtype, 32, 32, 2, 1, 64, 64, Features::general};
  constexpr int channels = 40, stride = 44;  // a row is not a multiple of 16 bytes apart unless the stride is
  const int apart = aligned ? 48 : stride;
  std::vector<unsigned short> o(size_t(apart * 32), 0xffff);
  std::vector<float> lse(64, -1);
  const std::vector<GlobalRegion> regions = {{o.data(), int64(o.size()) * 2, "O", true}, {lse.data(), 256, "L", true}};
  run(32, regions, [&] {
    Outputs<config> x;
    float weights[thread_rows<config>], l[thread_rows<config>];
    for (int row = 0; row < thread_rows<config>; ++row) {
      const int i = row * 8 + lane_index() / 4;
      weights[row] = 0.5f, l[row] = float(i);
      for (int n = 0; n < 8; ++n)
        for (int e = 0; e < 2; ++e) {
          const int pair = lane_index() % 4 * 2 + e, c = is_fp8(dtype) ? n / 2 * 16 + 2 * pair + n % 2 : 8 * n + pair;
          x[row / 2][n][row % 2 * 2 + e] = i + c == 0 ? -0.0f : float(2 * (i + c));  // stored as +0
        }
    }
    stage_outputs<config>(dynamic_shared(), x, weights);
    warp_barrier();
    const Rows rows = {o.data(), 0, 0, apart * 2, aligned};
    store_outputs<config>(dynamic_shared(), tokens_of(rows, {0, 0, length}, 0, channels * 2 / chunk_bytes), 0);
    store_lse<config>(lse.data(), 2, length, 0, l);
  });
  constexpr DType format = OutputNumber<config>::dtype;
  for (int i = 0; i < 32; ++i) {
    for (int c = 0; c < apart; ++c)
      ASSERT_EQ(o[size_t(i * apart + c)], i < length && c < channels ? encode(format, i + c) : 0xffff) << i << " " << c;
    EXPECT_EQ(lse[size_t(2 * i)], i < length ? float(i) : -1);
    EXPECT_EQ(lse[size_t(2 * i + 1)], -1);
  }
}

TEST(Flash2Parts, StoresRowsOfTheSequenceAlone) {
  for (bool aligned : {true, false})
    for (int length : {32, 31, 3, 0}) {
      expect_stored<DType::bf16>(aligned, length);
      expect_stored<DType::fp16>(aligned, length);
      expect_stored<DType::e4m3>(aligned, length);
    }
}

TEST(Flash2Parts, FinishesRowsWithAndWithoutKeys) {
  std::vector<float> weights(32), lse(32);
  run(32, {}, [&] {
    RowState<wide> rows;
    for (int row = 0; row < thread_rows<wide>; ++row)
      rows.largest[row] = row == 0 ? -infinity : 3, rows.sum[row] = row == 0 ? 0 : row == 1 ? NAN : 0.5f;
    float w[thread_rows<wide>], l[thread_rows<wide>];
    finish_rows<wide>(rows, 4, 0.5f, w, l);
    for (int row = 0; row < thread_rows<wide>; ++row) {
      weights[size_t(row * 8 + lane_index() / 4)] = w[row];
      lse[size_t(row * 8 + lane_index() / 4)] = l[row];
    }
  });
  for (size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(std::isnan(weights[i]), i / 8 == 1);
    EXPECT_EQ(std::isnan(lse[i]), i / 8 == 1);
    if (i / 8 == 1) continue;
    EXPECT_EQ(weights[i], i < 8 ? 0 : 2);  // four lanes with 0.5 each
    if (i < 8) {
      EXPECT_EQ(lse[i], -infinity);
    } else {
      EXPECT_NEAR(lse[i], 1.5 + std::log(2.0), 1e-6);
    }
  }
}

}  // namespace
}  // namespace flashproof::flash2
