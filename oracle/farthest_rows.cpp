// O_i = t_v sum_j p_ij z_ij v_j of DESIGN in double without radii, compared with a kernel's.
#include "oracle/farthest_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "oracle/value_strip.h"
#include "reference/attention.h"

namespace flashproof {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// O of row i over its visible keys.
std::vector<double> plain_row(const Inputs& in, const HeadIndex& at, int64_t i, const Side& k, const Side& v) {
  const Problem& p = in.problem;
  const KeyRange keys = visible_keys(p.mask, at.seq_q, at.seq_k, i);
  std::vector<double> o(p.value_dim, 0), weight(at.seq_k, 0), q(p.head_dim);
  for (int64_t c = 0; c < p.head_dim; ++c) q[c] = in.q.at(at.query_row(i) * p.head_dim + c);
  add_weighted_rows(p.head_dim, at.seq_k, keys.begin, keys.end, q.data(), k.columns.data(), weight.data());
  double top = p.sink ? double(in.sinks[at.h]) : -infinity;
  for (int64_t j = keys.begin; j < keys.end; ++j) {
    const double s0 = score_scale<double>(in, at) * weight[j], cap = p.softcap;
    weight[j] = shifted<double>(in, at, i, j, cap == 0 ? s0 : cap * std::tanh(s0 / cap));
    top = std::max(top, weight[j]);
  }
  if (top == -infinity) return o;
  double sum = p.sink ? std::exp(in.sinks[at.h] - top) : 0;
  for (int64_t j = keys.begin; j < keys.end; ++j) {
    weight[j] = std::exp(weight[j] - top);
    sum += weight[j];
    weight[j] *= dropout_factor<double>(in, at, i, j);
  }
  add_weighted_rows(keys.end - keys.begin, p.value_dim, 0, p.value_dim, weight.data() + keys.begin,
                    v.rows.data() + keys.begin * p.value_dim, o.data());
  for (double& x : o) x *= value_scale<double>(in, at) / sum;
  return o;
}

double distance(const std::vector<double>& exact, const Tensor& o, int64_t row) {
  double error = 0, size = 0;
  for (size_t c = 0; c < exact.size(); ++c) {
    const double difference = std::abs(o.at(row * int64_t(exact.size()) + int64_t(c)) - exact[c]);
    if (!std::isfinite(difference)) return infinity;
    error = std::max(error, difference);
    size = std::max(size, std::abs(exact[c]));
  }
  return error == 0 ? 0 : error / size;
}

}  // namespace

std::vector<int64_t> farthest_rows(const Inputs& in, const Tensor& o, double budget, size_t most, uint64_t seed) {
  const Problem& p = in.problem;
  double work = 0;
  for (int64_t b = 0; b < p.batch; ++b)
    work +=
        double(p.heads) * double(in.packing.seq_q(b)) * double(in.packing.seq_k(b)) * double(p.head_dim + p.value_dim);
  const auto step = int64_t(std::max(1.0, std::ceil(work / budget)));
  int64_t skip = int64_t(seed % uint64_t(step));
  std::vector<std::pair<double, int64_t>> rows;
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t h = 0; h < p.heads; ++h) {
      const HeadIndex at = head_index(in, b, h);
      if (skip < at.seq_q) {
        const Side k = make_side(in.k, at.key_row(0), p.kv_heads, at.seq_k, p.head_dim);
        const Side v = make_side(in.v, at.key_row(0), p.kv_heads, at.seq_k, p.value_dim);
        for (; skip < at.seq_q; skip += step)
          rows.emplace_back(-distance(plain_row(in, at, skip, k, v), o, at.query_row(skip)), at.query_row(skip));
      }
      skip -= at.seq_q;
    }
  std::sort(rows.begin(), rows.end());
  rows.resize(std::min(most, rows.size()));
  std::vector<int64_t> farthest;
  for (const auto& row : rows) farthest.push_back(row.second);
  return farthest;
}

}  // namespace flashproof
