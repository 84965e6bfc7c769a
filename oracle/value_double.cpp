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
#include "oracle/value_threads.h"
#include "reference/attention.h"

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
  std::vector<float> ones;

  int64_t query_row(int64_t head, int64_t i) const {
    return (in.packing.q_begin[b] + i) * in.problem.heads + first_head + head;
  }
  int64_t key_row(int64_t j) const { return (in.packing.k_begin[b] + j) * in.problem.kv_heads + kv_head; }
};

Group make_group(const Inputs& in, int64_t b, int64_t kv_head) {
  const Problem& p = in.problem;
  const int64_t heads = p.heads / p.kv_heads, pair = b * p.kv_heads + kv_head, seq_k = in.packing.seq_k(b);
  Group group{in,
              b,
              kv_head,
              heads,
              kv_head * heads,
              in.packing.seq_q(b),
              seq_k,
              double(scale_of(p)) * double(in.q_descale[pair]) * double(in.k_descale[pair]),
              double(in.v_descale[pair]),
              {},
              {},
              {},
              {},
              {},
              std::vector<float>(seq_k, 1.0f)};
  group.k = make_side(in.k, group.key_row(0), p.kv_heads, seq_k, p.head_dim);
  group.v = make_side(in.v, group.key_row(0), p.kv_heads, seq_k, p.value_dim);
  for (int64_t head = 0; head < heads; ++head) {
    group.q.push_back(make_side(in.q, group.query_row(head, 0), p.heads, group.seq_q, p.head_dim));
    group.d_o.push_back(make_side(in.d_o, group.query_row(head, 0), p.heads, group.seq_q, p.value_dim));
    group.states.emplace_back(group.seq_q);
  }
  return group;
}

/// Three arrays of a strip as weights of its rows.
BoundedSum weights_of(const Strip& strip, std::vector<double>& value, std::vector<double>& radius,
                      std::vector<double>& size) {
  return {value.data() + strip.begin, radius.data() + strip.begin, size.data() + strip.begin};
}

/// Sums over the rows of a strip, one a column.
struct ColumnSums {
  explicit ColumnSums(int64_t columns) : value(columns), radius(columns), size(columns) {}
  std::vector<double> value, radius, size;

  void add(const Side& side, const Strip& strip, const BoundedSum& weights) {
    add_weighted_rows(strip.end - strip.begin, side.channels, weights, side.rows.data() + strip.begin * side.channels,
                      {value.data(), radius.data(), size.data()});
  }
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

/// One query row on its way through the stages below.
struct RowPass {
  const Group& group;
  int64_t head, i;
  bool wanted;  ///< by the sample; else only its state is, for the keys' pass
  Strip strip{group.seq_k};
  RowStates states{group.seq_k};  ///< the row's state in every position
  RowState state;
  SinkWeight sink;

  int64_t row() const { return group.query_row(head, i); }
  const Problem& problem() const { return group.in.problem; }
};

void score_row(RowPass& pass) {
  const Group& group = pass.group;
  const KeyRange keys = visible_keys(pass.problem().mask, group.seq_q, group.seq_k, pass.i);
  Strip& strip = pass.strip;
  strip.begin = keys.begin;
  strip.end = keys.end;
  if (has_pair_modifiers(pass.problem()))
    for (int64_t j = keys.begin; j < keys.end; ++j)
      set_modifiers(group.in, group.b, group.first_head + pass.head, pass.i, j, strip, j);
  dot_strip(group.k, group.q[pass.head], pass.i, group.score_scale, strip, strip.score, strip.score_radius);
  finish_scores(pass.problem(), strip);
}

/// Weights relative to the row's largest score `reference`, their sum and its error.
void weigh_row(RowPass& pass, double reference) {
  Strip& strip = pass.strip;
  pass.state.reference = reference;
  pass.states.fill(strip.begin, strip.end, pass.state);
  weigh(pass.states, strip);
  const int64_t n = strip.end - strip.begin;
  double sum = 0, radius = 0, size = 0;
  add_weighted_rows(n, 1, weights_of(strip, strip.weight, strip.weight_radius, strip.weight), pass.group.ones.data(),
                    {&sum, &radius, &size});
  if (pass.problem().sink) {
    Strip one(1);
    RowStates of_sink(1);
    one.score[0] = pass.group.in.sinks[pass.group.first_head + pass.head];
    of_sink.set(0, pass.state);
    weigh(of_sink, one);
    pass.sink = {one.weight[0], one.weight_radius[0]};
    sum += pass.sink.value;
  }
  const double error = (radius + pass.sink.radius + sum_error(n) * size + u * sum) / sum * inflation;
  const bool lost = !(error <= largest_error);
  pass.state.sum = lost ? 1 : sum;
  pass.state.error = lost ? 0x1p800 : error;
}

/// L, O and D.
void finish_forward(RowPass& pass, Values& values) {
  const Problem& p = pass.problem();
  Strip& strip = pass.strip;
  RowState& state = pass.state;
  if (p.dropout)
    for (int64_t j = strip.begin; j < strip.end; ++j)
      if (strip.kept[j] == 0) strip.weight_radius[j] = strip.weight[j] = 0;
  ColumnSums sums(p.value_dim);
  sums.add(pass.group.v, strip, weights_of(strip, strip.weight, strip.weight_radius, strip.weight));
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

/// dQ, and the row's terms of dsink and dbias.
void finish_backward(RowPass& pass, Values& values, RowTerms& terms) {
  const Group& group = pass.group;
  const Problem& p = pass.problem();
  Strip& strip = pass.strip;
  pass.states.fill(strip.begin, strip.end, pass.state);
  if (p.dropout) weigh(pass.states, strip);  // again: the forward took out the weights that dropout drops
  dot_strip(group.v, group.d_o[pass.head], pass.i, group.value_scale, strip, strip.g, strip.g_radius);
  differentiate(pass.states, strip);
  if (p.bias) {
    terms.keys = {strip.begin, strip.end};
    terms.ds = strip.ds, terms.ds_radius = strip.ds_radius, terms.ds_size = strip.ds_size;
  }
  if (p.sink) {  // a key whose value is 0: p (0 - D)
    Strip one(1);
    RowStates of_sink(1);
    one.weight[0] = pass.sink.value, one.weight_radius[0] = pass.sink.radius;
    of_sink.set(0, pass.state);
    differentiate(of_sink, one);
    terms.sink = one.ds[0], terms.sink_radius = one.ds_radius[0], terms.sink_size = one.ds_size[0];
  }
  undo_softcap(strip);
  ColumnSums sums(p.head_dim);
  sums.add(group.k, strip, weights_of(strip, strip.ds, strip.ds_radius, strip.ds_size));
  sums.store_into(values[OutputId::dq], pass.row() * p.head_dim, group.score_scale, sum_error(strip.end - strip.begin));
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

/// One query row, start to end; its state goes to the group.
RowTerms evaluate_row(Group& group, int64_t head, int64_t i, bool wanted, Values& values) {
  RowTerms terms;
  RowPass pass{.group = group, .head = head, .i = i, .wanted = wanted, .state = {}, .sink = {}};
  score_row(pass);
  double reference = -infinity;
  for (int64_t j = pass.strip.begin; j < pass.strip.end; ++j) reference = std::max(reference, pass.strip.score[j]);
  if (reference == -infinity) {
    if (wanted) store_row_without_keys(pass, values);
    return terms;
  }
  if (group.in.problem.sink) reference = std::max(reference, double(group.in.sinks[group.first_head + head]));
  weigh_row(pass, reference);
  finish_forward(pass, values);
  if (wanted && has_backward(group.in.problem)) finish_backward(pass, values, terms);
  group.states[head].set(i, pass.state);
  return terms;
}

/// dK_j and dV_j: sums over the rows that see the key, of all query heads of the group.
void evaluate_key(Group& group, int64_t j, Values& values) {
  const Problem& p = group.in.problem;
  ColumnSums dk(p.head_dim), dv(p.value_dim);
  Strip strip(group.seq_q);
  bool seen = false;
  for (int64_t head = 0; head < group.heads; ++head) {
    strip.begin = 0;
    strip.end = group.seq_q;
    const auto sees_key = [&](int64_t i) { return visible(p.mask, group.seq_q, group.seq_k, i, j); };
    while (strip.begin < strip.end && !sees_key(strip.begin)) ++strip.begin;
    while (strip.begin < strip.end && !sees_key(strip.end - 1)) --strip.end;
    if (has_pair_modifiers(p))
      for (int64_t i = strip.begin; i < strip.end; ++i)
        set_modifiers(group.in, group.b, group.first_head + head, i, j, strip, i);
    dot_strip(group.q[head], group.k, j, group.score_scale, strip, strip.score, strip.score_radius);
    dot_strip(group.d_o[head], group.v, j, group.value_scale, strip, strip.g, strip.g_radius);
    finish_scores(p, strip);
    weigh(group.states[head], strip);
    differentiate(group.states[head], strip);
    undo_softcap(strip);
    for (int64_t i = strip.begin; i < strip.end; ++i) {
      seen |= strip.weight_radius[i] != 0;
      if (strip.kept[i] == 0) strip.p[i] = strip.p_radius[i] = 0;
    }
    dk.add(group.q[head], strip, weights_of(strip, strip.ds, strip.ds_radius, strip.ds_size));
    dv.add(group.d_o[head], strip, weights_of(strip, strip.p, strip.p_radius, strip.p));
  }
  if (!seen) {
    for (int64_t c = 0; c < p.head_dim; ++c) store_exact(values[OutputId::dk], group.key_row(j) * p.head_dim + c, 0);
    for (int64_t c = 0; c < p.value_dim; ++c) store_exact(values[OutputId::dv], group.key_row(j) * p.value_dim + c, 0);
    return;
  }
  const double error =
      sum_error(group.seq_q) + double(group.heads * (1 + group.seq_q / 256)) * u;  // every head adds its blocks
  dk.store_into(values[OutputId::dk], group.key_row(j) * p.head_dim, group.score_scale, error);
  dv.store_into(values[OutputId::dv], group.key_row(j) * p.value_dim, group.value_scale * dropout_scale(p), error);
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
  for (int64_t first = 0; first < rows; first += wave) {
    const int64_t count = std::min(wave, rows - first);
    for_each_item(count, threads, [&](int64_t n) {
      const int64_t head = (first + n) / group.seq_q, i = (first + n) % group.seq_q;
      const bool wanted = work.queries[group.query_row(head, i)];
      if (wanted || some_key) terms[n] = evaluate_row(group, head, i, wanted, values);
    });
    if (work.all)
      for (int64_t n = 0; n < count; ++n)
        add_row_terms(group, (first + n) / group.seq_q, (first + n) % group.seq_q, terms[n], sums);
    work.report(count);
  }
  for (int64_t first = 0; some_key && first < group.seq_k; first += wave) {
    const int64_t count = std::min(wave, group.seq_k - first);
    for_each_item(count, threads, [&](int64_t n) {
      if (work.keys[group.key_row(first + n)]) evaluate_key(group, first + n, values);
    });
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
