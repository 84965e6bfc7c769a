// The table of the arrays, sums over them, and what cannot be costed; see cost.h.
#include "reference/cost.h"

#include <algorithm>

#include "reference/cost_parts.h"
#include "reference/errors.h"
#include "reference/nearest_word.h"

namespace flashproof {
namespace {

enum class Width { input, output, fp32 };
struct ArrayKind {
  const char* name;
  bool is_extra;
  Width width;
};
constexpr ArrayKind kinds[array_count] = {
    {"Q", false, Width::input},    {"K", false, Width::input},    {"V", false, Width::input},
    {"dO", false, Width::input},   {"O", false, Width::output},   {"dQ", false, Width::output},
    {"dK", false, Width::output},  {"dV", false, Width::output},  {"S", true, Width::output},
    {"P", true, Width::output},    {"dP", true, Width::output},   {"dS", true, Width::output},
    {"m", true, Width::fp32},      {"l", true, Width::fp32},      {"L", true, Width::fp32},
    {"D", true, Width::fp32},      {"O_part", true, Width::fp32}, {"m_part", true, Width::fp32},
    {"l_part", true, Width::fp32}, {"L_part", true, Width::fp32}};

template <class Term>
int64 sum_over_arrays(const Cost& cost, Term term) {
  int64 sum = 0;
  for (int a = 0; a < array_count; ++a) sum += term(Array(a), cost.arrays[size_t(a)]);
  return sum;
}

constexpr std::string_view algorithms[] = {"standard", "rabe_staats", "flash1", "flash2", "flash3", "flash_decoding"};

void refuse_unpublished(bool is_there, const char* word) {
  if (is_there)
    throw UsageError("cost counts the algorithms as published, which have no `" + std::string(word) +
                     "`; leave the word out\n  example: flashproof cost 'bf16 b4 h16 q1024 k1024 d64 causal'");
}

constexpr int64 largest_parts = 4096, largest_tile_side = (int64(1) << 31) - 1;

/// No sum is larger than 24 times the products with a row's head dims, at a tile of one score: all are below 2^63.
void refuse_overflow(const Problem& p, const Schedule& schedule) {
  double products = 0;
  for (const auto& [lengths, entries] : entries_by_length(p))
    products += double(entries) * double(p.heads) * double(lengths.first) * double(lengths.second + schedule.parts) *
                double(p.head_dim + p.value_dim + 4);
  if (products > double(int64(1) << 57))
    throw UsageError(
        "the problem costs more than cost can count (2^63); make a length, the batch or the heads smaller");
}

}  // namespace

int64 other_operations(const Operations& o) {
  return o.exponentials + o.logarithms + o.additions + o.multiplications + o.divisions + o.comparisons;
}

const char* name_of(Array a) { return kinds[int(a)].name; }
bool is_extra(Array a) { return kinds[int(a)].is_extra; }
int64 element_bytes(const Problem& p, Array a) {
  const Width width = kinds[int(a)].width;
  if (width == Width::fp32) return 4;
  return format_of(width == Width::input ? p.dtype : output_dtype(p)).bits / 8;
}

int64 loaded_bytes(const Problem& p, const Cost& cost) {
  return sum_over_arrays(cost, [&](Array a, const ArrayCost& c) { return c.loaded * element_bytes(p, a); });
}
int64 stored_bytes(const Problem& p, const Cost& cost) {
  return sum_over_arrays(cost, [&](Array a, const ArrayCost& c) { return c.stored * element_bytes(p, a); });
}
int64 extra_bytes(const Problem& p, const Cost& cost) {
  return sum_over_arrays(cost, [&](Array a, const ArrayCost& c) { return c.extent * element_bytes(p, a); });
}
int64 on_chip_bytes(const Cost& cost) {
  return sum_over_arrays(cost, [](Array, const ArrayCost& c) { return c.tile_bytes; });
}

std::vector<std::string> costed_algorithms() { return {std::begin(algorithms), std::end(algorithms)}; }
bool has_costed_backward(std::string_view algorithm) { return algorithm != "rabe_staats"; }

bool is_small_enough_to_run(const Problem& p) {
  for (int64 b = 0; b < p.batch; ++b)
    if (used_length(p.q, b) * used_length(p.k, b) > int64(1) << 22) return false;
  return true;
}

void refuse_uncosted(const Problem& p, std::string_view algorithm, Pass pass, const Schedule& schedule) {
  if (std::find(std::begin(algorithms), std::end(algorithms), algorithm) == std::end(algorithms))
    throw UsageError("cost knows no algorithm `" + std::string(algorithm) + "`; did you mean `" +
                     nearest_word(std::string(algorithm), costed_algorithms()) + "`?");
  if (schedule.tile.rows < 1 || schedule.tile.keys < 1 || schedule.parts < 1)
    throw UsageError("a tile has at least 1 row and 1 key, and there is at least 1 part");
  if (schedule.tile.rows > largest_tile_side || schedule.tile.keys > largest_tile_side)
    throw UsageError("a tile has at most " + std::to_string(largest_tile_side) + " rows and keys");
  if (schedule.parts > largest_parts) throw UsageError("there are at most " + std::to_string(largest_parts) + " parts");
  refuse_overflow(p, schedule);
  refuse_unpublished(p.softcap != 0, "softcap");
  refuse_unpublished(p.alibi != Alibi::none, "alibi");
  refuse_unpublished(p.bias.has_value(), "bias");
  refuse_unpublished(p.sink, "sink");
  refuse_unpublished(p.dropout.has_value(), "dropout");
  refuse_unpublished(p.descale, "descale");
  refuse_unpublished(p.paging.has_value(), "pages");
  if (pass == Pass::forward) return;
  if (!has_costed_backward(algorithm))
    throw UsageError(std::string(algorithm) + " has no backward of its own; leave `bwd` out");
  if (p.heads != p.kv_heads)
    throw UsageError(
        "the sum of dK and dV over a group of heads is in none of the published algorithms; give as many kv "
        "heads as heads, or leave `bwd` out");
}

void add_times(Cost& total, const Cost& entry, int64 times) {
  Operations &a = total.operations, b = entry.operations;
  a.multiply_adds += times * b.multiply_adds;
  a.exponentials += times * b.exponentials;
  a.logarithms += times * b.logarithms;
  a.additions += times * b.additions;
  a.multiplications += times * b.multiplications;
  a.divisions += times * b.divisions;
  a.comparisons += times * b.comparisons;
  for (size_t n = 0; n < entry.arrays.size(); ++n) {
    ArrayCost& sum = total.arrays[n];
    const ArrayCost& term = entry.arrays[n];
    sum.loaded += times * term.loaded;
    sum.stored += times * term.stored;
    sum.extent += times * term.extent;
    sum.tile_bytes = std::max(sum.tile_bytes, term.tile_bytes);
  }
  for (const Move& move : entry.moves)
    add_move(total.moves, {move.array, move.is_store, move.source, times * move.elements});
}

void add_move(std::vector<Move>& moves, const Move& move) {
  const auto same = std::find_if(moves.begin(), moves.end(), [&](const Move& m) {
    return m.array == move.array && m.is_store == move.is_store && m.source == move.source;
  });
  if (same == moves.end())
    moves.push_back(move);
  else
    same->elements += move.elements;
}

std::map<std::pair<int64, int64>, int64> entries_by_length(const Problem& p) {
  std::map<std::pair<int64, int64>, int64> entries;
  for (int64 b = 0; b < p.batch; ++b) ++entries[{used_length(p.q, b), used_length(p.k, b)}];
  return entries;
}

}  // namespace flashproof
