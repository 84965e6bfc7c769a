// The closed form of each algorithm's cost, for one head: n rows, m keys, head dims d (of q, k) and e (of v); see
// cost.h.
//
// Tiles are r rows by c keys, T_r = ceil(n / r) by T_c = ceil(m / c) of them. An algorithm that passes over hidden
// tiles visits these, each a product without a mask and a sum over tiles or rows with one:
//   area      n m     scores of the visited tiles           visible   n m     scores that the mask shows
//   rows      n T_c   rows, once for each visited tile      seeing    n       rows that see a key
//   keys      m T_r   keys, once for each visited tile      reaching  n T_c   of a row, its visited tiles that end past
//                                                                             the first key that it sees
// In each table below the terms of an operation stand in the order in which the algorithm's text meets them.
#include <algorithm>

#include "reference/cost_parts.h"
#include "reference/flash_decoding.h"

namespace flashproof {
namespace {

struct Shape {
  int64 n, m, d, e;
  int64 tile_rows, tile_keys;  ///< r and c, at most n and m
  int64 row_tiles, key_tiles;  ///< T_r and T_c
  int64 parts, full_parts;     ///< of flash_decoding, and those that are not empty
  int64 input_bytes, output_bytes;
  bool two_level;
};

/// What the mask leaves, as above, and the largest visited tile.
struct Visited {
  int64 area = 0, rows = 0, keys = 0, visible = 0, seeing = 0, reaching = 0;
  int64 seeing_parts = 0;  ///< parts of flash_decoding in which a row sees a key, summed over rows
  int64 tile_rows = 0, tile_keys = 0, tile_area = 0;
};

int64 ceil_div(int64 a, int64 b) { return (a + b - 1) / b; }

/// Keys that row i sees: from the definition in reference/visible.h, as two clamped ends.
Span seen_by(const Mask& mask, const Shape& s, int64 i) {
  const int64 position = i + (mask.top_left ? 0 : s.m - s.n);
  const int64 left = mask.window_left == open_window ? s.n + s.m : mask.window_left;
  const int64 right = mask.window_right == open_window ? s.n + s.m : mask.window_right;
  const int64 begin = std::clamp<int64>(position - left, 0, s.m);
  const int64 end = std::clamp<int64>(position + (mask.causal ? 0 : right) + 1, 0, s.m);
  return begin < end ? Span{begin, end} : Span{0, 0};
}

Visited without_mask(const Shape& s) {
  return {.area = s.n * s.m,
          .rows = s.n * s.key_tiles,
          .keys = s.m * s.row_tiles,
          .visible = s.n * s.m,
          .seeing = s.m > 0 ? s.n : 0,
          .reaching = s.n * s.key_tiles,
          .seeing_parts = s.n * s.full_parts,
          .tile_rows = s.m > 0 ? s.tile_rows : 0,
          .tile_keys = s.n > 0 ? s.tile_keys : 0,
          .tile_area = s.tile_rows * s.tile_keys};
}

/// Adds what is visited for the rows [first, first + rows): the tiles of keys, by number, from that of the first key
/// that one of the rows sees to that of the last.
void add_row_tile(const Shape& s, const Mask& mask, int64 first, int64 rows, int64 part_keys, Visited& v) {
  Span hull{s.m, 0};
  for (int64 i = first; i < first + rows; ++i) {
    const Span seen = seen_by(mask, s, i);
    if (seen.size() == 0) continue;
    hull = {std::min(hull.begin, seen.begin), std::max(hull.end, seen.end)};
    ++v.seeing;
    v.visible += seen.size();
    v.seeing_parts += ceil_div(seen.end, part_keys) - seen.begin / part_keys;
  }
  if (hull.begin >= hull.end) return;
  const Span tiles{hull.begin / s.tile_keys, ceil_div(hull.end, s.tile_keys)};
  for (int64 i = first; i < first + rows; ++i)
    if (const Span seen = seen_by(mask, s, i); seen.size() > 0) v.reaching += tiles.end - seen.begin / s.tile_keys;
  const int64 keys = std::min(tiles.end * s.tile_keys, s.m) - tiles.begin * s.tile_keys;
  const int64 largest = std::min(keys, s.tile_keys);
  v.area += rows * keys;
  v.rows += rows * tiles.size();
  v.keys += keys;
  v.tile_rows = std::max(v.tile_rows, rows);
  v.tile_keys = std::max(v.tile_keys, largest);
  v.tile_area = std::max(v.tile_area, rows * largest);
}

Visited visited(const Shape& s, const Mask& mask) {
  const bool masked = mask.causal || mask.window_left != open_window || mask.window_right != open_window;
  if (!masked || s.n == 0 || s.m == 0) return without_mask(s);
  const int64 part_keys = keys_of_part(0, s.parts, s.tile_keys, s.m).size();
  Visited v;
  for (int64 first = 0; first < s.n; first += s.tile_rows)
    add_row_tile(s, mask, first, std::min(s.tile_rows, s.n - first), part_keys, v);
  return v;
}

/// Algorithm 0 of 2205.14135.
Cost standard_forward_form(const Shape& s, const Visited& v) {
  const auto [n, m, d, e] = std::array{s.n, s.m, s.d, s.e};
  Cost cost;
  cost.operations = {.multiply_adds = n * m * d + n * m * e,
                     .exponentials = n * m + n,
                     .logarithms = v.seeing,
                     .additions = n * m + n + n * m + v.seeing,
                     .multiplications = v.visible + n + v.seeing * m + n * e,
                     .divisions = v.seeing * m,
                     .comparisons = n * m};
  cost[Array::q] = {.loaded = n * d};
  cost[Array::k] = {.loaded = m * d};
  cost[Array::v] = {.loaded = m * e};
  for (const Array a : {Array::s, Array::p}) cost[a] = {.loaded = n * m, .stored = n * m, .extent = n * m};
  cost[Array::o] = {.stored = n * e};
  return cost;
}

/// Algorithm 3 of 2205.14135.
Cost standard_backward_form(const Shape& s) {
  const auto [n, m, d, e] = std::array{s.n, s.m, s.d, s.e};
  Cost cost;
  cost.operations = {.multiply_adds = n * m * e + n * m * (2 * d + e),
                     .additions = 2 * n * m,
                     .multiplications = 3 * n * m + n * d + m * d + m * e};
  cost[Array::q] = {.loaded = n * d};
  cost[Array::k] = {.loaded = m * d};
  cost[Array::v] = {.loaded = m * e};
  cost[Array::d_o] = {.loaded = 2 * n * e};
  cost[Array::p] = {.loaded = 2 * n * m};
  cost[Array::dp] = {.loaded = n * m, .stored = n * m, .extent = n * m};
  cost[Array::ds] = {.loaded = 2 * n * m, .stored = n * m, .extent = n * m};
  cost[Array::dq] = {.stored = n * d};
  cost[Array::dk] = {.stored = m * d};
  cost[Array::dv] = {.stored = m * e};
  return cost;
}

/// Figure 1 of 2112.05682: every chunk is visited.
Cost rabe_staats_form(const Shape& s, const Visited& v) {
  const auto [n, m, d, e] = std::array{s.n, s.m, s.d, s.e};
  const int64 rows = n * s.key_tiles, keys = m * s.row_tiles, summaries = s.key_tiles * s.tile_rows;
  Cost cost;
  cost.operations = {.multiply_adds = n * m * d + n * m * e,
                     .exponentials = n * m + n + rows,
                     .logarithms = v.seeing,
                     .additions = 2 * n * m + n + rows * (1 + e + 1) + v.seeing,
                     .multiplications = v.visible + n + rows * (e + 1) + v.seeing * e,
                     .divisions = v.seeing * e,
                     .comparisons = n * m + rows};
  cost[Array::q] = {.loaded = rows * d};
  cost[Array::k] = {.loaded = keys * d};
  cost[Array::v] = {.loaded = keys * e};
  for (const Array a : {Array::s, Array::p})
    cost[a] = {.loaded = n * m, .stored = n * m, .extent = s.tile_rows * s.tile_keys};
  cost[Array::part_o] = {.loaded = rows * e, .stored = rows * e, .extent = summaries * e};
  for (const Array a : {Array::part_maximum, Array::part_sum})
    cost[a] = {.loaded = rows, .stored = rows, .extent = summaries};
  cost[Array::o] = {.stored = n * e};
  return cost;
}

/// Algorithm 1 of 2205.14135.
Cost flash1_forward_form(const Shape& s, const Visited& v) {
  const auto [n, m, d, e] = std::array{s.n, s.m, s.d, s.e};
  const int64 in = s.input_bytes, out = s.output_bytes, r = v.tile_rows;
  Cost cost;
  cost.operations = {.multiply_adds = v.area * d + v.area * e,
                     .exponentials = v.area + 2 * v.rows,
                     .logarithms = v.seeing,
                     .additions = 2 * v.area + 3 * v.rows + v.reaching * e + v.seeing,
                     .multiplications = v.visible + 2 * v.rows + 3 * v.reaching * e + n * e,
                     .divisions = v.reaching * e,
                     .comparisons = v.area + v.rows};
  cost[Array::q] = {.loaded = v.rows * d, .tile_bytes = in * r * d};
  cost[Array::k] = {.loaded = m * d, .tile_bytes = in * s.tile_keys * d};
  cost[Array::v] = {.loaded = m * e, .tile_bytes = in * s.tile_keys * e};
  cost[Array::o] = {.loaded = v.rows * e, .stored = n * e + v.rows * e, .tile_bytes = out * r * e};
  for (const Array a : {Array::sum, Array::maximum})
    cost[a] = {.loaded = v.rows, .stored = n + v.rows, .extent = n, .tile_bytes = 4 * r};
  cost[Array::s] = {.tile_bytes = 4 * v.tile_area};
  cost[Array::p] = {.tile_bytes = in * v.tile_area};
  cost[Array::part_o] = {.tile_bytes = 4 * r * e};
  for (const Array a : {Array::part_maximum, Array::part_sum}) cost[a] = {.tile_bytes = 4 * r};
  return cost;
}

/// What the backwards of FlashAttention 1 and 2 share: the five products of a tile, and the operations on its elements.
Cost recomputing_backward_form(const Shape& s, const Visited& v) {
  const auto [n, m, d, e] = std::array{s.n, s.m, s.d, s.e};
  const int64 in = s.input_bytes, out = s.output_bytes, r = v.tile_rows;
  Cost cost;
  cost.operations = {.multiply_adds = v.area * (d + e) + v.area * (e + d + d),
                     .exponentials = v.visible,
                     .additions = 2 * v.visible,
                     .multiplications = 4 * v.visible + n * d + m * d + m * e};
  cost[Array::q] = {.loaded = v.rows * d, .tile_bytes = in * r * d};
  cost[Array::d_o] = {.loaded = v.rows * e, .tile_bytes = in * r * e};
  cost[Array::dq] = {.loaded = v.rows * d, .stored = n * d + v.rows * d, .tile_bytes = out * r * d};
  cost[Array::k] = {.loaded = m * d, .tile_bytes = in * s.tile_keys * d};
  cost[Array::v] = {.loaded = m * e, .tile_bytes = in * s.tile_keys * e};
  cost[Array::dk] = {.stored = m * d, .tile_bytes = 4 * v.tile_keys * d};
  cost[Array::dv] = {.stored = m * e, .tile_bytes = 4 * v.tile_keys * e};
  for (const Array a : {Array::s, Array::dp}) cost[a] = {.tile_bytes = 4 * v.tile_area};
  for (const Array a : {Array::p, Array::ds}) cost[a] = {.tile_bytes = in * v.tile_area};
  return cost;
}

/// Algorithm 4 of 2205.14135: D again for every tile, dK and dV zeroed in device memory.
Cost flash1_backward_form(const Shape& s, const Visited& v) {
  Cost cost = recomputing_backward_form(s, v);
  cost.operations.additions += v.rows * s.e;
  cost.operations.multiplications += v.rows * s.e;
  cost[Array::o] = {.loaded = v.rows * s.e, .tile_bytes = s.output_bytes * v.tile_rows * s.e};
  for (const Array a : {Array::sum, Array::maximum}) cost[a] = {.loaded = v.rows, .tile_bytes = 4 * v.tile_rows};
  cost[Array::dk].stored += s.m * s.d;
  cost[Array::dv].stored += s.m * s.e;
  return cost;
}

/// Algorithm 2 of 2307.08691: D once, before the tiles.
Cost flash2_backward_form(const Shape& s, const Visited& v) {
  Cost cost = recomputing_backward_form(s, v);
  cost.operations.additions += s.n * s.e;
  cost.operations.multiplications += s.n * s.e;
  cost[Array::o] = {.loaded = s.n * s.e, .tile_bytes = s.output_bytes * s.tile_rows * s.e};
  cost[Array::d_o].loaded += s.n * s.e;
  cost[Array::d_o].tile_bytes = s.input_bytes * s.tile_rows * s.e;
  cost[Array::lse] = {.loaded = v.rows, .tile_bytes = 4 * v.tile_rows};
  cost[Array::delta] = {.loaded = v.rows, .stored = s.n, .extent = s.n, .tile_bytes = 4 * v.tile_rows};
  return cost;
}

/// The online softmax over tiles of keys, rows outside: lines 7 to 10 of Algorithm 1 of 2307.08691.
Cost online_tiles_form(const Shape& s, const Visited& v) {
  const int64 d = s.d, e = s.e, in = s.input_bytes, r = v.tile_rows;
  Cost cost;
  cost.operations = {.multiply_adds = v.area * d + v.area * e,
                     .exponentials = v.rows + v.area,
                     .additions = v.rows + 2 * v.area,
                     .multiplications = v.visible + v.rows + v.rows * e,
                     .comparisons = v.area};
  cost[Array::k] = {.loaded = v.keys * d, .tile_bytes = in * v.tile_keys * d};
  cost[Array::v] = {.loaded = v.keys * e, .tile_bytes = in * v.tile_keys * e};
  cost[Array::o] = {.tile_bytes = 4 * r * e};
  for (const Array a : {Array::maximum, Array::sum}) cost[a] = {.tile_bytes = 4 * r};
  cost[Array::s] = {.tile_bytes = 4 * v.tile_area};
  cost[Array::p] = {.tile_bytes = in * v.tile_area};
  return cost;
}

/// Algorithm 1 of 2307.08691, and Algorithm 2 of 2407.08608, which in two levels adds each tile's P V to O.
Cost flash2_forward_form(const Shape& s, const Visited& v, bool two_level) {
  Cost cost = online_tiles_form(s, v);
  cost.operations.additions += v.seeing + (two_level ? v.rows * s.e : 0);
  cost.operations.logarithms = v.seeing;
  cost.operations.divisions = v.seeing * s.e;
  cost.operations.multiplications += v.seeing * s.e;
  cost[Array::q] = {.loaded = s.n * s.d, .tile_bytes = s.input_bytes * s.tile_rows * s.d};
  cost[Array::o].stored = s.n * s.e;
  cost[Array::lse] = {.stored = s.n, .extent = s.n};
  if (two_level) cost[Array::part_o] = {.tile_bytes = 4 * v.tile_rows * s.e};
  return cost;
}

/// Parts visit every tile, hidden or not; then the parts of each row are combined.
Cost flash_decoding_form(const Shape& s, const Visited& v) {
  if (s.parts == 1) return flash2_forward_form(s, v, false);
  Visited all = without_mask(s);
  all.visible = v.visible;
  const int64 x = v.seeing_parts, z = v.seeing, n_parts = s.n * s.parts, e = s.e;
  Cost cost = online_tiles_form(s, all);
  Operations& o = cost.operations;
  o.exponentials += n_parts + z * s.parts;
  o.logarithms = x + z;
  o.additions += x + 2 * n_parts + z + z * s.parts * (1 + e);
  o.multiplications += x * e + z * (s.parts * e + e);
  o.divisions = x * e;
  o.comparisons += n_parts;
  cost[Array::q] = {.loaded = n_parts * s.d, .tile_bytes = s.input_bytes * s.tile_rows * s.d};
  cost[Array::part_o] = {
      .loaded = n_parts * e, .stored = n_parts * e, .extent = n_parts * e, .tile_bytes = 4 * s.tile_rows * e};
  cost[Array::part_lse] = {.loaded = n_parts, .stored = n_parts, .extent = n_parts, .tile_bytes = 4 * s.tile_rows};
  cost[Array::o].stored = s.n * e;
  cost[Array::lse] = {.stored = s.n, .extent = s.n};
  return cost;
}

Shape shape_of(const Problem& p, int64 n, int64 m, std::string_view algorithm, const Schedule& schedule) {
  Shape s{};
  s.n = n, s.m = m, s.d = p.head_dim, s.e = p.value_dim;
  s.tile_rows = std::min(schedule.tile.rows, n);
  s.tile_keys = std::min(schedule.tile.keys, m);
  s.row_tiles = ceil_div(n, schedule.tile.rows);
  s.key_tiles = ceil_div(m, schedule.tile.keys);
  s.parts = schedule.parts;
  s.full_parts = m == 0 ? 0 : ceil_div(s.key_tiles, ceil_div(s.key_tiles, s.parts));
  s.input_bytes = format_of(p.dtype).bits / 8;
  s.output_bytes = format_of(output_dtype(p)).bits / 8;
  s.two_level = algorithm == "flash3" && format_of(p.dtype).bits == 8;
  return s;
}

Cost form_of_head(const Shape& s, const Mask& mask, std::string_view algorithm, Pass pass) {
  const Visited v = visited(s, mask);
  const bool forward = pass == Pass::forward;
  if (algorithm == "standard") return forward ? standard_forward_form(s, v) : standard_backward_form(s);
  if (algorithm == "rabe_staats") return rabe_staats_form(s, v);
  if (algorithm == "flash1") return forward ? flash1_forward_form(s, v) : flash1_backward_form(s, v);
  if (!forward) return flash2_backward_form(s, v);
  return algorithm == "flash_decoding" ? flash_decoding_form(s, v) : flash2_forward_form(s, v, s.two_level);
}

}  // namespace

Cost cost_closed_form(const Problem& p, std::string_view algorithm, Pass pass, const Schedule& schedule) {
  refuse_uncosted(p, algorithm, pass, schedule);
  Cost total;
  for (const auto& [lengths, entries] : entries_by_length(p)) {
    const Shape s = shape_of(p, lengths.first, lengths.second, algorithm, schedule);
    add_times(total, form_of_head(s, p.mask, algorithm, pass), entries * p.heads);
  }
  return total;
}

}  // namespace flashproof
