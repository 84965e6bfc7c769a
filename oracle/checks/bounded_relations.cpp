// Relations between results that differ by rounding alone: `shift`, `permutation`, `split` and `decode`.
//
// Both problems have the same exact value x (shifted for L), so two results differ by at most the sum of their bounds:
// |x1 - x2| <= |x1 - x| + |x - x2|. A related problem of another shape may be computed with other tiles, splits and
// sums than the case's, which the kernel has declared: its bound takes the worst over these. A kernel that promises a
// query row's bits whatever the other rows (DETERMINISTIC_ROWS) is held to them by `decode`.
//
// split: with parts a = 1, 2 of the keys, L = ln(e^L1 + e^L2), w_a = e^(L_a - L) and O = w_1 O_1 + w_2 O_2
// (FlashDecoding). Errors d_a of L_a and D_a of O_a move L by at most max d_a, and, as w_1 depends on L_1 - L_2 alone
// and w e^d / (w e^d + 1 - w) - w <= w (1 - w) (e^d - 1), O by at most
//     w_1 D_1 + w_2 D_2 + w_1 w_2 (e^(d_1 + d_2) - 1) (|O_1 - O_2| + D_1 + D_2).
#include <algorithm>
#include <cmath>
#include <limits>

#include "oracle/bound.h"
#include "oracle/checks/related_case.h"
#include "oracle/checks/relation.h"

namespace flashproof {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double ln_2 = 0x1.62e42fefa39efp-1;
constexpr int64_t most_rows = 8;  ///< query rows a verdict, so that it costs little beside the check `bound`

Case forward_of(const Case& c) {
  Case forward = c;
  if (c.problem.direction == Direction::backward_exact) forward.problem.direction = Direction::forward;
  return forward;
}

bool is_masked(const Mask& mask) {
  return mask.causal || mask.window_left != open_window || mask.window_right != open_window;
}

/// What a kernel declared for one shape, of another.
Arithmetic of_another_shape(Arithmetic a) {
  const Arithmetic unknown;
  a.tile_m = a.tile_n = 0;
  a.order = unknown.order;
  a.two_level = unknown.two_level;
  a.argument = unknown.argument;
  a.prescaled = unknown.prescaled;
  a.row_sum_lanes = a.splits = 0;
  return a;
}

/// O and L of some rows of one run, with their bounds.
struct Side {
  Problem problem;
  const Outputs& outputs;
  Values values;
  Bounds bounds;
  bool base_2;
  bool same_bits = false;  ///< the kernel promises the bits of the other side: a finite bound counts as 0

  struct Number {
    double x, bound;  ///< infinite where the row sees no key, is not judged, or may overflow
  };
  Number at(OutputId id, int64_t index) const {
    const OutputValues& of = values[id];
    if (!of.known[index] || !std::isfinite(of.mid[index])) return {0, infinity};
    const double x = tensor_of(outputs, id).at(index), bound = bounds.bound[int(id)][index];
    if (same_bits) return {x, bound < infinity ? 0 : infinity};
    if (id != OutputId::lse || !base_2) return {x, bound};
    return {x * ln_2, bound + 3 * 0x1p-24 * std::abs(x * ln_2)};  // log2 e, its product, and the product here
  }
  bool is_empty(int64_t row) const { return values[OutputId::lse].mid[row] == -infinity; }
};

Side side_of(const Run& run, const RunResult& result, const Subject& subject, const Arithmetic& arithmetic,
             const std::vector<int64_t>& rows, bool same_bits = false) {
  Run forward = run;
  forward.c.problem.direction = Direction::forward;
  const Inputs in = make_inputs(forward);
  Values values = value_double(in, {.all = false, .query_rows = rows, .key_rows = {}}, 0,
                               subject.conventions.bears_hidden_nan != 0);
  Bounds bounds = bound(in, arithmetic, values);
  return {in.problem,
          result.outputs,
          std::move(values),
          std::move(bounds),
          subject.conventions.lse_base == FLASHPROOF_LSE_BASE_2,
          same_bits};
}

/// Rows of [total_q, H]: the first, the last and some between.
std::vector<int64_t> rows_to_compare(const Case& c) {
  const int64_t all = packing_of(c.problem).total_q() * c.problem.heads;
  std::vector<int64_t> rows;
  for (int64_t n = 0; n < std::min(all, most_rows); ++n)
    rows.push_back(n == 0 ? 0 : n == 1 ? all - 1 : int64_t(choose(c, uint64_t(n), uint64_t(all))));
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

/// x of the case's element, y of the related result.
void compare(Verdict& v, const Problem& p, const char* kind, OutputId id, int64_t index, Side::Number x, Side::Number y,
             const std::string& what) {
  const double bound = x.bound + y.bound;
  if (!(bound < infinity)) return;
  ++v.judged;
  const double error = std::abs(x.x - y.x);
  const double ratio = error == 0 ? 0 : !(error < infinity) || bound == 0 ? infinity : error / bound;
  if (!note_ratio(v, p, id, index, ratio) || ratio <= 1) return;
  fail_as_worst(v, kind,
                print(v.where) + " is " + number_text(x.x) + ", and " + number_text(y.x) + " " + what + ": " +
                    number_text(error) + " apart, " +
                    (bound == 0 ? "none allowed" : "both bounds together " + number_text(bound)));
}

/// Row `row` of the case against row `other` of the related problem, whose L is larger by `shift`.
void compare_row(Verdict& v, const Subject& subject, const char* kind, const Side& side, int64_t row,
                 const Side& related, int64_t other, double shift, const std::string& what) {
  const int64_t width = side.problem.value_dim;
  if (is_judged(subject, side.problem, OutputId::lse)) {
    Side::Number l = related.at(OutputId::lse, other);
    l.x -= shift;
    compare(v, side.problem, kind, OutputId::lse, row, side.at(OutputId::lse, row), l, what);
  }
  if (side.is_empty(row)) return;
  for (int64_t c = 0; c < width; ++c)
    compare(v, side.problem, kind, OutputId::o, row * width + c, side.at(OutputId::o, row * width + c),
            related.at(OutputId::o, other * width + c), what);
}

Arithmetic declared(const Subject& subject) { return parse_arithmetic(subject.arithmetic); }

// ---- shift

/// Far down, where a key that does not exist and scores 0 outweighs all others; or to where exp(score) is infinite.
float shift_of(const Case& c) { return choose(c, 3, 2) == 0 ? -64.0f : 96.0f; }

bool shift_applies(const Case& c, const Subject& subject) {
  return (subject.features & FLASHPROOF_FEATURE_BIAS) && !c.problem.bias && !c.problem.sink;
}

std::vector<Run> plan_shift(const Case& c) {
  Run shifted{.c = scores_shifted(c, shift_of(c)), .placement = {}};
  shifted.c.problem.direction = Direction::forward;
  return {Run{.c = forward_of(c), .placement = {}}, shifted};
}

void judge_shift(Verdict& v, const Case& c, const Subject& subject, std::span<const Run> runs,
                 std::span<const RunResult> results) {
  const std::vector<int64_t> rows = rows_to_compare(c);
  const Arithmetic a = declared(subject);
  const Side side = side_of(runs[0], results[0], subject, a, rows),
             shifted = side_of(runs[1], results[1], subject, of_another_shape(a), rows);
  const double shift = shift_of(c);
  for (int64_t row : rows)
    compare_row(v, subject, "shift", side, row, shifted, row, shift,
                "with " + number_text(shift) + " added to all scores (and taken from L)");
}

// ---- permutation

bool keys_are_alike(const Problem& p) {
  return !is_masked(p.mask) && p.alibi == Alibi::none && !p.dropout && max_used_length(p.k, p.batch) > 1;
}

bool permutation_applies(const Case& c, const Subject&) { return keys_are_alike(c.problem) && c.sets.empty(); }

std::vector<Run> plan_permutation(const Case& c) {
  Run permuted{.c = keys_permuted(c), .placement = {}};
  permuted.c.problem.direction = Direction::forward;
  return {Run{.c = forward_of(c), .placement = {}}, permuted};
}

void judge_permutation(Verdict& v, const Case& c, const Subject& subject, std::span<const Run> runs,
                       std::span<const RunResult> results) {
  const std::vector<int64_t> rows = rows_to_compare(c);
  const Side side = side_of(runs[0], results[0], subject, declared(subject), rows),
             permuted = side_of(runs[1], results[1], subject, declared(subject), rows);
  for (int64_t row : rows)
    compare_row(v, subject, "permutation", side, row, permuted, row, 0, "with the keys in another order");
}

// ---- split

int64_t cut_of(const Case& c) {
  return 1 + int64_t(choose(c, 4, uint64_t(max_used_length(c.problem.k, c.problem.batch) - 1)));
}

/// The family late_max knows which key is the last.
bool split_applies(const Case& c, const Subject& subject) {
  return keys_are_alike(c.problem) && c.sets.empty() && !c.problem.sink && c.recipe.family != Family::late_max &&
         subject.conventions.lse_base != FLASHPROOF_LSE_NONE;
}

std::vector<Run> plan_split(const Case& c) {
  const int64_t cut = cut_of(c), end = max_used_length(c.problem.k, c.problem.batch);
  Run first{.c = keys_between(c, 0, cut), .placement = {}}, second{.c = keys_between(c, cut, end), .placement = {}};
  first.c.problem.direction = second.c.problem.direction = Direction::forward;
  return {Run{.c = forward_of(c), .placement = {}}, first, second};
}

/// Two parts of a row with keys in both, merged; `merge` gives O.
struct Merge {
  Side::Number l;
  double first = 0, second = 0;  ///< w_1, w_2
  double moved = 0;              ///< w_1 w_2 (e^(d_1 + d_2) - 1)
  Side::Number merge(Side::Number a, Side::Number b) const {
    const double apart = std::abs(a.x - b.x) + a.bound + b.bound;
    return {first * a.x + second * b.x, first * a.bound + second * b.bound + moved * apart};
  }
};
Merge merge_of(Side::Number a, Side::Number b) {
  Merge m;
  const double top = std::max(a.x, b.x), sum = std::exp(a.x - top) + std::exp(b.x - top);
  m.l = {top + std::log(sum), std::max(a.bound, b.bound)};
  m.first = std::exp(a.x - top) / sum;
  m.second = std::exp(b.x - top) / sum;
  m.moved = m.first * m.second * std::expm1(a.bound + b.bound);
  return m;
}

void judge_split_row(Verdict& v, const Side& side, const Side& first, const Side& second, int64_t row,
                     const std::string& what) {
  const int64_t width = side.problem.value_dim;
  const Merge merge = merge_of(first.at(OutputId::lse, row), second.at(OutputId::lse, row));
  if (!(merge.l.bound < infinity)) return;
  compare(v, side.problem, "split", OutputId::lse, row, side.at(OutputId::lse, row), merge.l, what);
  for (int64_t n = row * width; n < (row + 1) * width; ++n)
    compare(v, side.problem, "split", OutputId::o, n, side.at(OutputId::o, n),
            merge.merge(first.at(OutputId::o, n), second.at(OutputId::o, n)), what);
}

void judge_split(Verdict& v, const Case& c, const Subject& subject, std::span<const Run> runs,
                 std::span<const RunResult> results) {
  const std::vector<int64_t> rows = rows_to_compare(c);
  const Arithmetic a = declared(subject), other = of_another_shape(a);
  const Side side = side_of(runs[0], results[0], subject, a, rows),
             first = side_of(runs[1], results[1], subject, other, rows),
             second = side_of(runs[2], results[2], subject, other, rows);
  const std::string what = "merged from keys before " + std::to_string(cut_of(c)) + " and from it on, by their L";
  for (int64_t row : rows) {
    if (first.is_empty(row))
      compare_row(v, subject, "split", side, row, second, row, 0, what);
    else if (second.is_empty(row))
      compare_row(v, subject, "split", side, row, first, row, 0, what);
    else
      judge_split_row(v, side, first, second, row, what);
  }
}

// ---- decode

int64_t decoded_entry(const Case& c) { return int64_t(choose(c, 5, uint64_t(c.problem.batch))); }

bool decode_applies(const Case& c, const Subject&) {
  const Problem& p = c.problem;
  const int64_t b = decoded_entry(c);
  const bool positions_count = is_masked(p.mask) || p.alibi != Alibi::none;
  return !(p.mask.top_left && positions_count) && !p.dropout && c.sets.empty() && used_length(p.q, b) > 1 &&
         used_length(p.k, b) > 0;
}

std::vector<Run> plan_decode(const Case& c) {
  Run last{.c = last_row(entry_alone(c, decoded_entry(c))), .placement = {}};
  last.c.problem.direction = Direction::forward;
  return {Run{.c = forward_of(c), .placement = {}}, last};
}

void judge_decode(Verdict& v, const Case& c, const Subject& subject, std::span<const Run> runs,
                  std::span<const RunResult> results) {
  const Problem& p = c.problem;
  const int64_t first = (packing_of(p).q_begin[decoded_entry(c) + 1] - 1) * p.heads;
  std::vector<int64_t> rows, alone;
  for (int64_t n = 0; n < std::min(p.heads, most_rows); ++n) {
    alone.push_back(n * p.heads / std::min(p.heads, most_rows));
    rows.push_back(first + alone.back());
  }
  const Arithmetic a = declared(subject);
  const bool same_bits = subject.conventions.deterministic >= FLASHPROOF_DETERMINISTIC_ROWS;
  const Side side = side_of(runs[0], results[0], subject, a, rows, same_bits),
             decoded = side_of(runs[1], results[1], subject, of_another_shape(a), alone, same_bits);
  for (size_t n = 0; n < rows.size(); ++n)
    compare_row(
        v, subject, "decode", side, rows[n], decoded, alone[n], 0,
        same_bits ? "as the only query, where `deterministic=any-rows` promises the same bits" : "as the only query");
}

}  // namespace

const Relation shift_relation = {"shift", shift_applies, plan_shift, judge_shift};
const Relation permutation_relation = {"permutation", permutation_applies, plan_permutation, judge_permutation};
const Relation split_relation = {"split", split_applies, plan_split, judge_split};
const Relation decode_relation = {"decode", decode_applies, plan_decode, judge_decode};

}  // namespace flashproof
