#include "fuzz/explain/sketch.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace flashproof {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// Decoded operands of one pass, and the pass's view of the mistake.
struct Pass {
  const Inputs& in;
  const Mistake& mistake;
  bool mistaken;
  const Pass* right = nullptr;  ///< the pass of rows in which the mistake is not made
  std::vector<double> q = decoded(in.q), k = decoded(in.k), v = decoded(in.v), d_o = decoded(in.d_o);
};

const Pass& pass_of_row(const Pass& pass, const HeadIndex& at, int64_t i) {
  const std::vector<bool>& rows = pass.mistake.rows;
  return pass.right == nullptr || rows.empty() || rows[at.query_row(i)] ? pass : *pass.right;
}

double product_of(const std::vector<double>& a, int64_t a_row, const std::vector<double>& b, int64_t b_row, int64_t n) {
  double sum = 0;
  for (int64_t c = 0; c < n; ++c) sum += a[a_row * n + c] * b[b_row * n + c];
  return sum;
}

RowSketch make_row(const Pass& pass, const HeadIndex& at, int64_t i) {
  const Inputs& in = pass.in;
  RowSketch row{.at = at, .i = i, .pairs = {}, .o = {}};
  if (pass.mistaken && pass.mistake.kv_head) row.at.kv_head = pass.mistake.kv_head(in, at);
  row.sink = in.problem.sink ? double(in.sinks[at.h]) : -infinity;
  for (int64_t j = 0; j < at.seq_k; ++j) {
    Pair pair{.j = j, .key_row = row.at.key_row(j), .value_row = row.at.key_row(j)};
    pair.visible = sees(in, at.b, at.h, i, j);
    pair.product = product_of(pass.q, at.query_row(i), pass.k, pair.key_row, in.problem.head_dim);
    pair.z = dropout_factor<double>(in, at, i, j);
    row.pairs.push_back(pair);
  }
  score_again(in, row);
  if (pass.mistaken && pass.mistake.scores) pass.mistake.scores(in, row);
  return row;
}

/// O and L of all rows. `read`: L as the backward uses it.
void forward(const Pass& pass, Sketch& out, std::vector<double>& read) {
  const Problem& p = pass.in.problem;
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t h = 0; h < p.heads; ++h) {
      const HeadIndex at = head_index(pass.in, b, h);
      for (int64_t i = 0; i < at.seq_q; ++i) {
        const Pass& here = pass_of_row(pass, at, i);
        RowSketch row = make_row(here, at, i);
        soften(here.in, row);
        if (here.mistaken && here.mistake.result) here.mistake.result(here.in, row);
        std::copy(row.o.begin(), row.o.end(), out[OutputId::o].begin() + at.query_row(i) * p.value_dim);
        out[OutputId::lse][at.query_row(i)] = row.stored;
        read[at.query_row(i)] = row.l;
      }
    }
}

/// What one pair adds, given p and D.
void add_pair(const Pass& pass, const RowSketch& row, const Pair& pair, double p, double d, Sketch& out) {
  if (pair.value_row < 0) return;  // a padding key's own gradients are stored nowhere
  const Inputs& in = pass.in;
  const HeadIndex& at = row.at;
  const unsigned fault = pass.mistaken ? pass.mistake.gradient : 0;
  const int64_t dim = in.problem.head_dim, value_dim = in.problem.value_dim, group = at.heads / at.kv_heads;
  const int64_t query = at.query_row(row.i);
  const double scale = score_scale<double>(in, at), t_v = value_scale<double>(in, at);
  const double g =
      (fault & fault_g_without_t_v ? 1 : t_v) * product_of(pass.d_o, query, pass.v, pair.value_row, value_dim);
  const bool without_d = fault & fault_no_d || (fault & fault_d_dropped && pair.z == 0);
  const double of_g = fault & fault_g_kept_all ? 1 : pair.z, of_d = fault & fault_ds_of_dropped_p ? pair.z : 1;
  const double ds = p * (of_g * g - (without_d ? 0 : of_d * d));
  const double unrounded = ds * (fault & fault_no_slope ? 1 : pair.slope);
  const double ds0 = pass.mistaken && pass.mistake.round_ds ? pass.mistake.round_ds(unrounded) : unrounded;
  const double weight = pass.mistaken && pass.mistake.round_p ? pass.mistake.round_p(p) : p;
  for (int64_t c = 0; c < dim; ++c)
    out[OutputId::dq][query * dim + c] +=
        (fault & fault_dq_unscaled ? 1 : scale) * ds0 * pass.k[pair.key_row * dim + c];
  const bool first = at.h % group == 0, last = at.h % group == group - 1;
  const bool left_out_of_dk = (fault & fault_dk_last_head && !last) || (fault & fault_dk_first_head && !first);
  const bool left_out_of_dv = (fault & fault_dv_last_head && !last) || (fault & fault_dv_first_head && !first);
  const double kept = fault & fault_dv_dropped_unscaled && pair.z != 0 ? 1 : pair.z;
  if (!left_out_of_dk)
    for (int64_t c = 0; c < dim; ++c)
      out[OutputId::dk][pair.key_row * dim + c] +=
          (fault & fault_dk_unscaled ? 1 : scale) * ds0 * pass.q[query * dim + c];
  if (!left_out_of_dv)
    for (int64_t c = 0; c < value_dim; ++c)
      out[OutputId::dv][pair.value_row * value_dim + c] +=
          t_v * weight * (fault & fault_dv_kept_all ? 1 : kept) * pass.d_o[query * value_dim + c];
  if (in.problem.bias && pair.j < at.seq_k && (first || !(fault & fault_bias_first_heads))) {
    double& sum = out[OutputId::dbias][bias_index(in, at.b, at.h, row.i, pair.j)];
    sum = fault & fault_bias_one_row ? ds : sum + ds;
  }
}

void backward(const Pass& pass, const std::vector<double>& o, const std::vector<double>& l, Sketch& out) {
  const Problem& p = pass.in.problem;
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t h = 0; h < p.heads; ++h) {
      const HeadIndex at = head_index(pass.in, b, h);
      for (int64_t i = 0; i < at.seq_q; ++i) {
        const Pass& here = pass_of_row(pass, at, i);
        const RowSketch row = make_row(here, at, i);
        if (!row.sees_keys()) continue;
        const unsigned fault = here.mistaken ? here.mistake.gradient : 0;
        const int64_t query = at.query_row(i);
        const double d = product_of(here.d_o, query, o, query, p.value_dim);
        for (const Pair& pair : row.pairs)
          if (pair.visible) add_pair(here, row, pair, pair.numerator * std::exp(pair.s - l[query]), d, out);
        if (p.sink) out[OutputId::dsink][h] -= (fault & fault_sink_sign ? -1 : 1) * std::exp(row.sink - l[query]) * d;
      }
    }
}

}  // namespace

bool RowSketch::sees_keys() const {
  return std::any_of(pairs.begin(), pairs.end(), [](const Pair& pair) { return pair.visible; });
}

void score_again(const Inputs& in, RowSketch& row) {
  const double scale = score_scale<double>(in, row.at), cap = in.problem.softcap;
  for (Pair& pair : row.pairs) {
    const double s0 = scale * pair.product, ratio = cap == 0 ? 0 : std::tanh(s0 / cap);
    pair.s = shifted<double>(in, row.at, row.i, pair.j, cap == 0 ? s0 : cap * ratio);
    pair.slope = 1 - ratio * ratio;
  }
}

void soften(const Inputs& in, RowSketch& row) {
  const int64_t dim = in.problem.value_dim;
  row.o.assign(dim, 0);
  double top = row.sink;
  for (const Pair& pair : row.pairs)
    if (pair.visible) top = std::max(top, pair.s);
  if (top == -infinity) {
    row.l = row.stored = -infinity;
    return;
  }
  double sum = std::exp(row.sink - top);
  for (const Pair& pair : row.pairs)
    if (pair.visible) sum += pair.denominator * std::exp(pair.s - top);
  row.l = row.stored = top + std::log(sum);
  const double t_v = value_scale<double>(in, row.at);
  for (const Pair& pair : row.pairs) {
    if (!pair.visible || pair.value_row < 0) continue;
    const double weight = t_v * pair.numerator * pair.z * std::exp(pair.s - top) / sum;
    for (int64_t c = 0; c < dim; ++c) row.o[c] += weight * in.v.at(pair.value_row * dim + c);
  }
}

namespace {

/// What the backward reads, with the mistake in its rows alone.
void misread(const Inputs& in, const Mistake& mistake, std::vector<double>& o, std::vector<double>& l) {
  const std::vector<double> right_o = o, right_l = l;
  mistake.stored(in, o, l);
  const int64_t dim = in.problem.value_dim;
  for (size_t row = 0; row < mistake.rows.size(); ++row) {
    if (mistake.rows[row]) continue;
    l[row] = right_l[row];
    std::copy_n(right_o.begin() + row * dim, dim, o.begin() + row * dim);
  }
}

}  // namespace

Sketch sketch(const Inputs& in, const Mistake& mistake) {
  const Problem& p = in.problem;
  Inputs edited = in;
  if (mistake.inputs) mistake.inputs(edited);
  const Pass right{in, mistake, false}, wrong{edited, mistake, true, &right};
  Sketch out;
  const Outputs shapes = make_outputs(p);
  for (int id = 0; id < output_count; ++id) out.output[id].assign(tensor_of(shapes, OutputId(id)).size(), 0);
  std::vector<double> l(out[OutputId::lse].size());
  forward(mistake.phases & in_forward ? wrong : right, out, l);
  if (!has_backward(p)) return out;
  std::vector<double> o = out[OutputId::o];
  if (p.direction == Direction::backward_exact) {
    Sketch exact = out;
    forward(right, exact, l);
    o = exact[OutputId::o];
  }
  if (mistake.stored && mistake.phases & in_backward) misread(in, mistake, o, l);
  backward(mistake.phases & in_backward ? wrong : right, o, l, out);
  return out;
}

}  // namespace flashproof
