// What reaches each row, by enumeration of its keys; the rules stand in nonfinite.h.
#include "oracle/nonfinite.h"

#include <algorithm>
#include <cmath>

namespace flashproof {
namespace {

/// What stands in a set of numbers; larger goes before smaller, as infinity goes before NaN.
enum Content : uint8_t { finite, nan, infinity };

Content content_of(double x) { return std::isnan(x) ? nan : std::isinf(x) ? infinity : finite; }

Judgement judgement_of(Content content) {
  return content == finite ? Judgement::judged : content == nan ? Judgement::must_be_nan : Judgement::not_judged;
}

std::vector<Content> contents_of(const Tensor& tensor) {
  std::vector<Content> contents(tensor.size());
  for (int64_t n = 0; n < tensor.size(); ++n) contents[n] = content_of(tensor.at(n));
  return contents;
}

/// The worst content of each of the tensor's rows of `width` elements.
std::vector<Content> row_contents(const std::vector<Content>& contents, int64_t width) {
  std::vector<Content> rows(contents.size() / width);
  for (size_t row = 0; row < rows.size(); ++row)
    rows[row] = *std::max_element(contents.begin() + row * width, contents.begin() + (row + 1) * width);
  return rows;
}

struct Contents {
  std::vector<Content> v, q_rows, k_rows, v_rows, d_o_rows;
  bool all_finite() const {
    const auto clean = [](const std::vector<Content>& rows) {
      return std::count(rows.begin(), rows.end(), finite) == std::ssize(rows);
    };
    return clean(q_rows) && clean(k_rows) && clean(v_rows) && clean(d_o_rows);
  }
};

/// What reaches one row.
struct RowContent {
  bool sees_key = false, hidden = false;
  Content scores = finite;      ///< of q_i and the visible k_j
  std::vector<Content> values;  ///< by channel, of the visible v_j
};

RowContent row_content(const Inputs& in, const Contents& contents, int64_t b, int64_t h, int64_t i) {
  const Problem& p = in.problem;
  RowContent row;
  row.values.assign(p.value_dim, finite);
  for (int64_t j = 0; j < in.packing.seq_k(b); ++j) {
    const int64_t key = (in.packing.k_begin[b] + j) * p.kv_heads + h / (p.heads / p.kv_heads);
    if (!sees(in, b, h, i, j)) {
      row.hidden |= contents.k_rows[key] != finite || contents.v_rows[key] != finite;
      continue;
    }
    row.sees_key = true;
    row.scores = std::max(row.scores, contents.k_rows[key]);
    if (contents.v_rows[key] == finite) continue;
    for (int64_t c = 0; c < p.value_dim; ++c)
      row.values[c] = std::max(row.values[c], contents.v[key * p.value_dim + c]);
  }
  if (row.sees_key) row.scores = std::max(row.scores, contents.q_rows[(in.packing.q_begin[b] + i) * p.heads + h]);
  return row;
}

void leave_gradients_unjudged(const Inputs& in, int64_t b, int64_t h, int64_t i, Judgements& out) {
  const Problem& p = in.problem;
  const auto fill = [&](OutputId id, int64_t begin, int64_t count) {
    std::fill_n(out.output[int(id)].begin() + begin, count, Judgement::not_judged);
  };
  fill(OutputId::dq, ((in.packing.q_begin[b] + i) * p.heads + h) * p.head_dim, p.head_dim);
  for (int64_t j = 0; j < in.packing.seq_k(b); ++j) {
    const int64_t key = (in.packing.k_begin[b] + j) * p.kv_heads + h / (p.heads / p.kv_heads);
    fill(OutputId::dk, key * p.head_dim, p.head_dim);
    fill(OutputId::dv, key * p.value_dim, p.value_dim);
  }
  if (p.sink) fill(OutputId::dsink, h, 1);
  fill(OutputId::dbias, 0, std::ssize(out.output[int(OutputId::dbias)]));
}

}  // namespace

Judgements judge_nonfinite(const Inputs& in, bool bears_hidden) {
  const Problem& p = in.problem;
  Contents contents;
  contents.v = contents_of(in.v);
  contents.q_rows = row_contents(contents_of(in.q), p.head_dim);
  contents.k_rows = row_contents(contents_of(in.k), p.head_dim);
  contents.v_rows = row_contents(contents.v, p.value_dim);
  contents.d_o_rows = row_contents(contents_of(in.d_o), p.value_dim);
  Judgements out;
  if (contents.all_finite()) return out;

  const Outputs shapes = make_outputs(p);
  for (int id = 0; id < output_count; ++id)
    out.output[id].assign(tensor_of(shapes, OutputId(id)).size(), Judgement::judged);
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t h = 0; h < p.heads; ++h)
      for (int64_t i = 0; i < in.packing.seq_q(b); ++i) {
        const RowContent row = row_content(in, contents, b, h, i);
        const bool spoiled = row.hidden && !bears_hidden;
        const int64_t query = (in.packing.q_begin[b] + i) * p.heads + h;
        out.output[int(OutputId::lse)][query] = spoiled ? Judgement::not_judged : judgement_of(row.scores);
        for (int64_t c = 0; c < p.value_dim; ++c)
          out.output[int(OutputId::o)][query * p.value_dim + c] =
              spoiled ? Judgement::not_judged : judgement_of(std::max(row.scores, row.values[c]));
        const bool clean = row.scores == finite && *std::max_element(row.values.begin(), row.values.end()) == finite &&
                           (!row.sees_key || contents.d_o_rows[query] == finite);
        if (has_backward(p) && (spoiled || !clean)) leave_gradients_unjudged(in, b, h, i, out);
      }
  return out;
}

}  // namespace flashproof
