// The first strength of oracle/value.h: attention and its gradients in double, every number with a proved radius.
//
// A pass over query rows gives O, L, dQ, dsink and dbias; a pass over keys computes the scores again and gives dK and
// dV. Each output element is one sum in one fixed order, whatever the number of threads and the sample. Radii: sums by
// oracle/certified_sum.h, functions by oracle/certified_math.h, elementwise steps by oracle/value_strip.h, quotients
// here. With exact weights W_j = w_j + e_j, |e_j| <= r_j, exact sums S = sum W, N = sum W v, computed ones S^, N^, and
// O^ = N^ / S^:
//   N - O^ S = sum e_j (v_j - O^) + (sum w v - N^) - O^ (sum w - S^), so that, with |S - S^| <= error S^,
//   |N / S - O^| <= (sum r |v| + sum_error sum w |v| + |O^| error S^) / (S^ (1 - error));
//   L = reference + ln S^ + ln(S / S^), and |ln(1 + e)| <= error / (1 - error) for |e| <= error.
// A row whose error is above 2^-10 (huge scores) is left to the next strength: radius infinity.
#include <cmath>
#include <limits>

#include "oracle/nonfinite.h"
#include "oracle/value.h"
#include "oracle/value_strip.h"
#include "reference/attention.h"
#include "reference/threads.h"

namespace flashproof {
namespace {

constexpr double u = unit_roundoff;
constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double largest_error = 0x1p-10;

void store(OutputValues& values, int64_t index, double mid, double radius, double size) {
  radius = radius * inflation + underflow_slack;
  const bool useful = radius < 0x1p700;  // false for NaN too
  values.mid[index] = useful ? mid : 0;
  values.radius[index] = useful ? radius : infinity;
  values.condition[index] = size;
  values.known[index] = 1;
}

void store_exact(OutputValues& values, int64_t index, double mid) {
  values.mid[index] = mid;
  values.radius[index] = values.condition[index] = 0;
  values.known[index] = 1;
}

/// One kv head of one entry with the query heads that read it.
struct Group {
  const Inputs& in;
  int64_t b, kv_head, heads, first_head, seq_q, seq_k;
  double score_scale, value_scale;  ///< scale t_q t_k, off by at most u; t_v
  Side k, v;
  std::vector<Side> q, d_o;       ///< by query head of the group
  std::vector<RowStates> states;  ///< by query head of the group

  int64_t query_row(int64_t head, int64_t i) const {
    return (in.packing.q_begin[b] + i) * in.problem.heads + first_head + head;
  }
  int64_t key_row(int64_t j) const { return (in.packing.k_begin[b] + j) * in.problem.kv_heads + kv_head; }
};

Group make_group(const Inputs& in, int64_t b, int64_t kv_head) {
  const Problem& p = in.problem;
  const int64_t heads = p.heads / p.kv_heads, pair = b * p.kv_heads + kv_head;
  Group group{in,
              b,
              kv_head,
              heads,
              kv_head * heads,
              in.packing.seq_q(b),
              in.packing.seq_k(b),
              double(scale_of(p)) * double(in.q_descale[pair]) * double(in.k_descale[pair]),
              double(in.v_descale[pair]),
              {},
              {},
              {},
              {},
              {}};
  group.k = make_side(in.k, group.key_row(0), p.kv_heads, group.seq_k, p.head_dim);
  group.v = make_side(in.v, group.key_row(0), p.kv_heads, group.seq_k, p.value_dim);
  for (int64_t head = 0; head < heads; ++head) {
    group.q.push_back(make_side(in.q, group.query_row(head, 0), p.heads, group.seq_q, p.head_dim));
    group.d_o.push_back(make_side(in.d_o, group.query_row(head, 0), p.heads, group.seq_q, p.value_dim));
    group.states.emplace_back(group.seq_q);
  }
  return group;
}

/// Sums over the rows of a strip, one a column.
struct ColumnSums {
  explicit ColumnSums(int64_t columns) : value(columns), radius(columns), size(columns) {}
  std::vector<double> value, radius, size;

  /// factor times the sums, `factor` being off by at most 4 u, into values[index ...]; sum_error is that of the
  /// summation.
  void store_into(OutputValues& values, int64_t index, double factor, double error) const {
    for (size_t c = 0; c < value.size(); ++c) {
      const double mid = factor * value[c], magnitude = std::fabs(factor);
      const double sum_radius = (radius[c] + error * size[c]) * inflation + underflow_slack;
      store(values, index + c, mid, magnitude * sum_radius + 6 * u * std::fabs(mid), magnitude * size[c]);
    }
  }
};

/// exp(sink - reference).
struct SinkWeight {
  double value = 0, radius = 0;
};

/// What one query row adds to sums over rows.
struct RowTerms {
  KeyRange keys{0, 0};
  std::vector<double> ds, ds_radius, ds_size;  ///< by key; filled where there is a bias
  double sink = 0, sink_radius = 0, sink_size = 0;
};

/// Which array of a strip holds a sum's weights, their radii and sizes.
struct WeightFields {
  std::vector<double> Strip::*value, Strip::*radius, Strip::*size;
};
constexpr WeightFields exp_weights{&Strip::weight, &Strip::weight_radius, &Strip::weight};
constexpr WeightFields p_weights{&Strip::p, &Strip::p_radius, &Strip::p};
constexpr WeightFields ds_weights{&Strip::ds, &Strip::ds_radius, &Strip::ds_size};

/// sums[lane] += over the rows of `side` with the weights of strips[lane]. Outside its range a strip's weights become
/// 0, from and to where that leaves the order of its sums as it is, whatever the other strips' ranges.
void add_weighted_side(const Side& side, std::span<Strip* const> strips, const WeightFields& fields,
                       std::span<ColumnSums> sums) {
  int64_t begin = side.count, end = 0;
  for (const Strip* strip : strips) {
    if (strip->begin >= strip->end) continue;
    begin = std::min(begin, strip->begin / sum_block * sum_block);
    end = std::max(end, (strip->end + sum_chunk - 1) / sum_chunk * sum_chunk);
  }
  if (begin >= end) return;
  std::vector<BoundedSum> weights, out;
  for (size_t lane = 0; lane < strips.size(); ++lane) {
    Strip& strip = *strips[lane];
    const int64_t first = std::clamp(strip.begin, begin, end), last = std::clamp(strip.end, first, end);
    const auto clear_outside = [&](std::vector<double>& numbers) {
      std::fill(numbers.begin() + begin, numbers.begin() + first, 0.0);
      std::fill(numbers.begin() + last, numbers.begin() + end, 0.0);
      return numbers.data() + begin;
    };
    weights.push_back(
        {clear_outside(strip.*fields.value), clear_outside(strip.*fields.radius), clear_outside(strip.*fields.size)});
    out.push_back({sums[lane].value.data(), sums[lane].radius.data(), sums[lane].size.data()});
  }
  add_weighted_rows(end - begin, side.channels, weights, side.rows.data() + begin * side.channels, out);
}

/// One query row on its way through the stages below.
struct RowPass {
  const Group& group;
  int64_t head, i;
  bool wanted;  ///< by the sample; else only its state is, for the keys' pass
  Strip& strip;
  RowState state;
  SinkWeight sink;

  int64_t row() const { return group.query_row(head, i); }
  const Problem& problem() const { return group.in.problem; }
};

/// The rows of a block that see a key, as strips.
std::vector<Strip*> strips_of(std::span<RowPass* const> rows) {
  std::vector<Strip*> strips;
  for (RowPass* pass : rows) strips.push_back(&pass->strip);
  return strips;
}

void score_rows(std::span<RowPass* const> rows) {
  const Group& group = rows.front()->group;
  const Problem& p = group.in.problem;
  std::vector<DotLane> lanes;
  for (RowPass* pass : rows) {
    const KeyRange keys = visible_keys(p.mask, group.seq_q, group.seq_k, pass->i);
    pass->strip.begin = keys.begin;
    pass->strip.end = std::max(keys.begin, keys.end);
    lanes.push_back({group.q[pass->head], pass->i, pass->strip});
  }
  dot_strips(group.k, lanes, group.score_scale, &Strip::score, &Strip::score_radius);
  for (RowPass* pass : rows) {
    Strip& strip = pass->strip;
    if (has_pair_modifiers(p))
      for (int64_t j = strip.begin; j < strip.end; ++j)
        set_modifiers(group.in, group.b, group.first_head + pass->head, pass->i, j, strip, j);
    finish_scores(p, strip);
  }
}

/// Weights relative to the row's largest score `reference`, their sum and its error.
void weigh_row(RowPass& pass, double reference) {
  Strip& strip = pass.strip;
  pass.state.reference = reference;
  weigh(pass.state, strip);
  const int64_t n = strip.end - strip.begin;
  Total total = add_up(n, strip.weight.data() + strip.begin, strip.weight_radius.data() + strip.begin);
  const double rounding = sum_error(n) * total.value;
  if (pass.problem().sink) {
    Strip one(1);
    one.score[0] = pass.group.in.sinks[pass.group.first_head + pass.head];
    weigh(pass.state, one);
    pass.sink = {one.weight[0], one.weight_radius[0]};
    total.value += pass.sink.value;
  }
  const double error = (total.radius + pass.sink.radius + rounding + u * total.value) / total.value * inflation;
  const bool lost = !(error <= largest_error);
  pass.state.sum = lost ? 1 : total.value;
  pass.state.error = lost ? 0x1p800 : error;
}

/// L, O and D of one row from its weighted sums of V.
void finish_forward(RowPass& pass, const ColumnSums& sums, Values& values) {
  const Problem& p = pass.problem();
  const Strip& strip = pass.strip;
  RowState& state = pass.state;
  const double error = sum_error(strip.end - strip.begin), factor = pass.group.value_scale * dropout_scale(p);
  for (int64_t c = 0; c < p.value_dim; ++c) {
    const double quotient = sums.value[c] / state.sum, o = quotient * factor;
    const double radius = ((sums.radius[c] + error * sums.size[c]) / state.sum + std::fabs(quotient) * state.error) *
                              (1 + 2 * state.error) * inflation +
                          underflow_slack;
    const double o_radius = (factor * radius + 6 * u * std::fabs(o)) * inflation + underflow_slack;
    if (pass.wanted)
      store(values[OutputId::o], pass.row() * p.value_dim + c, o, o_radius, factor * sums.size[c] / state.sum);
    const double d_o = pass.group.d_o[pass.head].rows[pass.i * p.value_dim + c];
    state.delta += d_o * o;
    state.delta_radius += std::fabs(d_o) * o_radius;
    state.delta_size += std::fabs(d_o * o);
  }
  state.delta_radius =
      (state.delta_radius + double(p.value_dim + 1) * u * state.delta_size) * inflation + underflow_slack;
  if (!pass.wanted) return;
  const double ln_sum = certified_log(state.sum), l = state.reference + ln_sum;
  const double radius = state.error * (1 + 2 * state.error) + log_error * std::fabs(ln_sum) + u * std::fabs(l);
  store(values[OutputId::lse], pass.row(), l, radius, std::fabs(state.reference) + std::fabs(ln_sum));
}

/// L, O and D of a block's rows.
void finish_forward(std::span<RowPass* const> rows, Values& values) {
  const Group& group = rows.front()->group;
  const Problem& p = group.in.problem;
  if (p.dropout)
    for (RowPass* pass : rows) {
      Strip& strip = pass->strip;
      for (int64_t j = strip.begin; j < strip.end; ++j)
        if (strip.kept[j] == 0) strip.weight_radius[j] = strip.weight[j] = 0;
    }
  std::vector<ColumnSums> sums(rows.size(), ColumnSums(p.value_dim));
  add_weighted_side(group.v, strips_of(rows), exp_weights, sums);
  for (size_t n = 0; n < rows.size(); ++n) finish_forward(*rows[n], sums[n], values);
}

/// dS of one row, and the row's terms of dsink and dbias.
void differentiate_row(RowPass& pass, RowTerms& terms) {
  const Problem& p = pass.problem();
  Strip& strip = pass.strip;
  if (p.dropout) weigh(pass.state, strip);  // again: the forward took out the weights that dropout drops
  differentiate(pass.state, strip);
  if (p.bias) {
    terms.keys = {strip.begin, strip.end};
    terms.ds = strip.ds, terms.ds_radius = strip.ds_radius, terms.ds_size = strip.ds_size;
  }
  if (p.sink) {  // a key whose value is 0: p (0 - D)
    Strip one(1);
    one.weight[0] = pass.sink.value, one.weight_radius[0] = pass.sink.radius;
    differentiate(pass.state, one);
    terms.sink = one.ds[0], terms.sink_radius = one.ds_radius[0], terms.sink_size = one.ds_size[0];
  }
  undo_softcap(strip);
}

/// dQ of a block's rows; terms[n] are those of rows[n].
void finish_backward(std::span<RowPass* const> rows, Values& values, std::span<RowTerms* const> terms) {
  const Group& group = rows.front()->group;
  const Problem& p = group.in.problem;
  std::vector<DotLane> lanes;
  for (RowPass* pass : rows) lanes.push_back({group.d_o[pass->head], pass->i, pass->strip});
  dot_strips(group.v, lanes, group.value_scale, &Strip::g, &Strip::g_radius);
  for (size_t n = 0; n < rows.size(); ++n) differentiate_row(*rows[n], *terms[n]);
  std::vector<ColumnSums> sums(rows.size(), ColumnSums(p.head_dim));
  add_weighted_side(group.k, strips_of(rows), ds_weights, sums);
  for (size_t n = 0; n < rows.size(); ++n)
    sums[n].store_into(values[OutputId::dq], rows[n]->row() * p.head_dim, group.score_scale,
                       sum_error(rows[n]->strip.end - rows[n]->strip.begin));
}

/// L = sink or -infinity, O = 0, dQ = 0.
void store_row_without_keys(const RowPass& pass, Values& values) {
  const Problem& p = pass.problem();
  const double l = p.sink ? double(pass.group.in.sinks[pass.group.first_head + pass.head]) : -infinity;
  store_exact(values[OutputId::lse], pass.row(), l);
  for (int64_t c = 0; c < p.value_dim; ++c) store_exact(values[OutputId::o], pass.row() * p.value_dim + c, 0);
  if (!has_backward(p)) return;
  for (int64_t c = 0; c < p.head_dim; ++c) store_exact(values[OutputId::dq], pass.row() * p.head_dim + c, 0);
}

/// What one thread works in: a strip for each row or key of a block.
using Scratch = std::vector<Strip>;
/// Rows or keys that are evaluated together.
constexpr int64_t block_size = sum_lanes;

/// A query row to evaluate, and where its terms go.
struct RowRequest {
  int64_t head, i;
  bool wanted;
  RowTerms* terms;
};

/// A block of query rows, start to end; their states go to the group.
void evaluate_rows(Group& group, std::span<const RowRequest> requests, Scratch& scratch, Values& values) {
  std::vector<RowPass> passes;
  std::vector<RowPass*> rows, seeing, wanted;
  std::vector<RowTerms*> terms;
  passes.reserve(requests.size());
  for (size_t n = 0; n < requests.size(); ++n) {
    passes.push_back({.group = group,
                      .head = requests[n].head,
                      .i = requests[n].i,
                      .wanted = requests[n].wanted,
                      .strip = scratch[n],
                      .state = {},
                      .sink = {}});
    rows.push_back(&passes.back());
  }
  score_rows(rows);
  for (size_t n = 0; n < rows.size(); ++n) {
    RowPass& pass = *rows[n];
    double reference = -infinity;
    for (int64_t j = pass.strip.begin; j < pass.strip.end; ++j) reference = std::max(reference, pass.strip.score[j]);
    if (reference == -infinity) {
      if (pass.wanted) store_row_without_keys(pass, values);
      continue;
    }
    if (group.in.problem.sink) reference = std::max(reference, double(group.in.sinks[group.first_head + pass.head]));
    weigh_row(pass, reference);
    seeing.push_back(&pass);
    if (!pass.wanted) continue;
    wanted.push_back(&pass);
    terms.push_back(requests[n].terms);
  }
  if (seeing.empty()) return;
  finish_forward(seeing, values);
  if (!wanted.empty() && has_backward(group.in.problem)) finish_backward(wanted, values, terms);
  for (RowPass* pass : seeing) group.states[pass->head].set(pass->i, pass->state);
}

/// dS0 and p, dropped, of a query head's rows that see key j, from the products in the strip.
bool differentiate_key(Group& group, int64_t head, int64_t j, Strip& strip) {
  const Problem& p = group.in.problem;
  if (has_pair_modifiers(p))
    for (int64_t i = strip.begin; i < strip.end; ++i)
      set_modifiers(group.in, group.b, group.first_head + head, i, j, strip, i);
  finish_scores(p, strip);
  weigh(group.states[head], strip);
  differentiate(group.states[head], strip);
  undo_softcap(strip);
  bool seen = false;
  for (int64_t i = strip.begin; i < strip.end; ++i) {
    seen |= strip.weight_radius[i] != 0;
    if (strip.kept[i] == 0) strip.p[i] = strip.p_radius[i] = 0;
  }
  return seen;
}

void store_key(const Group& group, int64_t j, bool seen, const ColumnSums& dk, const ColumnSums& dv, Values& values) {
  const Problem& p = group.in.problem;
  const int64_t dk_index = group.key_row(j) * p.head_dim, dv_index = group.key_row(j) * p.value_dim;
  if (!seen) {
    for (int64_t c = 0; c < p.head_dim; ++c) store_exact(values[OutputId::dk], dk_index + c, 0);
    for (int64_t c = 0; c < p.value_dim; ++c) store_exact(values[OutputId::dv], dv_index + c, 0);
    return;
  }
  const int64_t blocks = group.seq_q / sum_block;
  const double error = sum_error(group.seq_q) + double(group.heads * (2 + blocks)) * u;  // every head adds its blocks
  dk.store_into(values[OutputId::dk], dk_index, group.score_scale, error);
  dv.store_into(values[OutputId::dv], dv_index, group.value_scale * dropout_scale(p), error);
}

/// dK_j and dV_j of a block of keys: sums over the rows that see the key, of all query heads of the group.
void evaluate_keys(Group& group, std::span<const int64_t> keys, Scratch& scratch, Values& values) {
  const Problem& p = group.in.problem;
  std::vector<ColumnSums> dk(keys.size(), ColumnSums(p.head_dim)), dv(keys.size(), ColumnSums(p.value_dim));
  std::vector<uint8_t> seen(keys.size());
  std::vector<DotLane> k_lanes, v_lanes;
  std::vector<Strip*> strips;
  for (size_t n = 0; n < keys.size(); ++n) {
    Strip& strip = scratch[n];
    const auto sees_key = [&](int64_t i) { return visible(p.mask, group.seq_q, group.seq_k, i, keys[n]); };
    strip.begin = 0;
    strip.end = group.seq_q;
    while (strip.begin < strip.end && !sees_key(strip.begin)) ++strip.begin;
    while (strip.begin < strip.end && !sees_key(strip.end - 1)) --strip.end;
    k_lanes.push_back({group.k, keys[n], strip});
    v_lanes.push_back({group.v, keys[n], strip});
    strips.push_back(&strip);
  }
  for (int64_t head = 0; head < group.heads; ++head) {
    dot_strips(group.q[head], k_lanes, group.score_scale, &Strip::score, &Strip::score_radius);
    dot_strips(group.d_o[head], v_lanes, group.value_scale, &Strip::g, &Strip::g_radius);
    for (size_t n = 0; n < keys.size(); ++n) seen[n] |= differentiate_key(group, head, keys[n], scratch[n]);
    add_weighted_side(group.q[head], strips, ds_weights, dk);
    add_weighted_side(group.d_o[head], strips, p_weights, dv);
  }
  for (size_t n = 0; n < keys.size(); ++n) store_key(group, keys[n], seen[n], dk[n], dv[n], values);
}

/// Sums over all rows.
struct GlobalSums {
  LongSums dsink, dbias;
};

void add_row_terms(const Group& group, int64_t head, int64_t i, const RowTerms& terms, GlobalSums& sums) {
  const int64_t h = group.first_head + head;
  if (terms.sink_radius != 0) sums.dsink.add(h, terms.sink, terms.sink_radius, terms.sink_size);
  for (int64_t j = terms.keys.begin; j < terms.keys.end; ++j)
    if (terms.ds_radius[j] != 0)
      sums.dbias.add(bias_index(group.in, group.b, h, i, j), terms.ds[j], terms.ds_radius[j], terms.ds_size[j]);
}

void store_sums(const LongSums& sums, OutputValues& values) {
  for (int64_t n = 0; n < std::ssize(sums.sum); ++n) {
    if (sums.terms[n] == 0)
      store_exact(values, n, 0);
    else
      store(values, n, sums.value(n), sums.error(n), sums.size[n]);
  }
}

/// Marks of the sampled rows, by flat row number.
std::vector<uint8_t> marks(bool all, const std::vector<int64_t>& rows, int64_t count) {
  std::vector<uint8_t> marked(count, all);
  for (int64_t row : rows) marked.at(row) = 1;
  return marked;
}

struct Work {
  std::vector<uint8_t> queries, keys;  ///< by flat row
  bool all = true;
  int threads = 0;
  int64_t done = 0, count = 0;
  const Progress& progress;

  void report(int64_t finished) {
    done += finished;
    if (progress) progress(done, count);
  }
};

/// body(scratch, block) for blocks of consecutive items, each thread with a scratch of its own.
template <class Item, class MakeScratch, class Body>
void for_each_block(std::span<const Item> items, int threads, const MakeScratch& make_scratch, const Body& body) {
  const int64_t blocks = (std::ssize(items) + block_size - 1) / block_size;
  for_each_item_with(blocks, threads, make_scratch, [&](Scratch& scratch, int64_t n) {
    body(scratch, items.subspan(n * block_size, std::min(block_size, std::ssize(items) - n * block_size)));
  });
}

void evaluate_group(const Inputs& in, int64_t b, int64_t kv_head, Work& work, Values& values, GlobalSums& sums) {
  const Problem& p = in.problem;
  Group group = make_group(in, b, kv_head);
  const bool backward = has_backward(p);
  bool some_key = false;
  for (int64_t j = 0; j < group.seq_k; ++j) some_key |= backward && work.keys[group.key_row(j)];
  // Threads cost some 50 us a group, as much as 10^5 multiply-adds.
  const double multiply_adds = double(group.heads * group.seq_q) * double(group.seq_k * (p.head_dim + p.value_dim));
  const int threads = multiply_adds < 1e6 ? 1 : work.threads;
  // Rows go in waves: the terms of a wave are kept and added in the order of rows.
  const int64_t rows = group.heads * group.seq_q, wave = 256;
  std::vector<RowTerms> terms(std::min(rows, wave));
  const auto row_scratch = [&] { return Scratch(block_size, Strip(group.seq_k)); };
  for (int64_t first = 0; first < rows; first += wave) {
    const int64_t count = std::min(wave, rows - first);
    std::vector<RowRequest> requests;
    for (int64_t n = 0; n < count; ++n) {
      const int64_t head = (first + n) / group.seq_q, i = (first + n) % group.seq_q;
      const bool wanted = work.queries[group.query_row(head, i)];
      terms[n] = {};
      if (wanted || some_key) requests.push_back({head, i, wanted, &terms[n]});
    }
    for_each_block(
        std::span<const RowRequest>(requests), threads, row_scratch,
        [&](Scratch& scratch, std::span<const RowRequest> block) { evaluate_rows(group, block, scratch, values); });
    if (work.all)
      for (int64_t n = 0; n < count; ++n)
        add_row_terms(group, (first + n) / group.seq_q, (first + n) % group.seq_q, terms[n], sums);
    work.report(count);
  }
  const auto key_scratch = [&] { return Scratch(block_size, Strip(group.seq_q)); };
  for (int64_t first = 0; some_key && first < group.seq_k; first += wave) {
    const int64_t count = std::min(wave, group.seq_k - first);
    std::vector<int64_t> keys;
    for (int64_t j = first; j < first + count; ++j)
      if (work.keys[group.key_row(j)]) keys.push_back(j);
    for_each_block(
        std::span<const int64_t>(keys), threads, key_scratch,
        [&](Scratch& scratch, std::span<const int64_t> block) { evaluate_keys(group, block, scratch, values); });
    work.report(count);
  }
}

void apply(const Judgements& judgements, Values& values) {
  for (int id = 0; id < output_count; ++id) {
    OutputValues& output = values.output[id];
    for (size_t n = 0; n < output.known.size(); ++n) {
      const Judgement judgement = judgements.at(OutputId(id), n);
      if (judgement == Judgement::judged || !output.known[n]) continue;
      store_exact(output, n, std::numeric_limits<double>::quiet_NaN());
      output.known[n] = judgement == Judgement::must_be_nan;
    }
  }
}

}  // namespace

Values value_double(const Inputs& in, const Sample& sample, int threads, bool bears_hidden, const Progress& progress) {
  const Problem& p = in.problem;
  Values values;
  const Outputs shapes = make_outputs(p);
  for (int id = 0; id < output_count; ++id) {
    const size_t size = tensor_of(shapes, OutputId(id)).size();
    OutputValues& output = values.output[id];
    for (std::vector<double>* numbers : {&output.mid, &output.radius, &output.condition}) numbers->assign(size, 0.0);
    output.known.assign(size, 0);
  }
  const int64_t query_rows = in.packing.total_q() * p.heads, key_rows = in.packing.total_k() * p.kv_heads;
  Work work{.queries = marks(sample.all, sample.query_rows, query_rows),
            .keys = marks(sample.all, sample.key_rows, key_rows),
            .all = sample.all,
            .threads = threads,
            .count = query_rows + (has_backward(p) ? key_rows : 0),
            .progress = progress};
  GlobalSums sums{LongSums(std::ssize(values[OutputId::dsink].mid)), LongSums(std::ssize(values[OutputId::dbias].mid))};
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t kv_head = 0; kv_head < p.kv_heads; ++kv_head) evaluate_group(in, b, kv_head, work, values, sums);
  if (sample.all) {
    store_sums(sums.dsink, values[OutputId::dsink]);
    store_sums(sums.dbias, values[OutputId::dbias]);
  }
  apply(judge_nonfinite(in, bears_hidden), values);
  return values;
}

}  // namespace flashproof
