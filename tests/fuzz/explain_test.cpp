// Hand-made mistakes, in a kernel of its own that shares no code with the hypotheses, are each named first; a right
// kernel is not accused.
#include "fuzz/explain/explain.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "reference/attention.h"
#include "reference/formats.h"

namespace flashproof {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

enum class Error {
  none,
  last_key,
  window_left,
  causal_diagonal,
  scale,
  l_base_2,
  pad_key,
  bias_of_kv_head,
  alibi_sign,
  sink_ignored,
  dropout_unscaled,
  kv_head_mod,
  dead_row_nan,
  last_row_zeroed,
  p_in_e4m3,
  softcap_ignored,
  no_d,
  dk_of_last_head,
};

/// What one row computes, kept for the backward.
struct Row {
  std::vector<double> s, p, z, slope;  ///< by key; s = -infinity where hidden
  std::vector<double> o;
  double l = -infinity, sink = -infinity;
};

int64_t kv_head_of(const Problem& p, int64_t h, Error error) {
  return error == Error::kv_head_mod ? h % p.kv_heads : h / (p.heads / p.kv_heads);
}

int64_t bias_head_of(const Problem& p, int64_t h, Error error) {
  return error == Error::bias_of_kv_head ? h / (p.heads / p.kv_heads) : h;
}

bool shown(const Inputs& in, int64_t b, int64_t h, int64_t i, int64_t j, Error error) {
  const Mask& m = in.problem.mask;
  const int64_t sq = in.packing.seq_q(b), sk = in.packing.seq_k(b), here = i + (m.top_left ? 0 : sk - sq);
  if (error == Error::last_key && j == sk - 1) return false;
  if (m.causal && (error == Error::causal_diagonal ? j >= here : j > here)) return false;
  const int64_t left = m.window_left - (error == Error::window_left ? 1 : 0);
  if (m.window_left >= 0 && j < here - left) return false;
  if (m.window_right >= 0 && j > here + m.window_right) return false;
  return bias_at(in, b, bias_head_of(in.problem, h, error), i, j) != -infinity;
}

Row make_row(const Inputs& in, int64_t b, int64_t h, int64_t i, Error error) {
  const Problem& p = in.problem;
  const int64_t sk = in.packing.seq_k(b), q = (in.packing.q_begin[b] + i) * p.heads + h, kv = kv_head_of(p, h, error);
  Row row;
  row.s.assign(sk, -infinity), row.p.assign(sk, 0), row.z.assign(sk, 1), row.slope.assign(sk, 1);
  row.o.assign(p.value_dim, 0);
  double top = p.sink && error != Error::sink_ignored ? in.sinks[h] : -infinity;
  row.sink = top;
  for (int64_t j = 0; j < sk; ++j) {
    if (!shown(in, b, h, i, j, error)) continue;
    double s = 0;
    for (int64_t c = 0; c < p.head_dim; ++c)
      s += in.q.at(q * p.head_dim + c) * in.k.at(((in.packing.k_begin[b] + j) * p.kv_heads + kv) * p.head_dim + c);
    s *= scale_of(p) * (error == Error::scale ? 1.007 : 1);
    if (p.softcap > 0 && error != Error::softcap_ignored) {
      s = p.softcap * std::tanh(s / p.softcap);
      row.slope[j] = 1 - s / p.softcap * s / p.softcap;
    }
    const int64_t off = p.mask.top_left ? 0 : sk - in.packing.seq_q(b);
    if (p.alibi != Alibi::none)
      s -= (error == Error::alibi_sign ? -1 : 1) * in.slopes[b * p.heads + h] * double(std::abs(i + off - j));
    s += bias_at(in, b, bias_head_of(p, h, error), i, j);
    row.s[j] = s;
    top = std::max(top, s);
    if (!p.dropout) continue;
    const double kept = error == Error::dropout_unscaled ? 1 : 1 / (1 - double(p.dropout->rate));
    row.z[j] = keeps(p, b, h, i, j) ? kept : 0;
  }
  if (top == -infinity) {
    if (error == Error::dead_row_nan) row.o.assign(p.value_dim, NAN), row.l = NAN;
    return row;
  }
  double sum = std::exp(row.sink - top) + (error == Error::pad_key && sk % 2 ? std::exp(-top) : 0);
  for (int64_t j = 0; j < sk; ++j) sum += row.p[j] = std::exp(row.s[j] - top);
  for (int64_t j = 0; j < sk; ++j) {
    const double weight = error == Error::p_in_e4m3 ? double(round_to(DType::e4m3, row.p[j])) : row.p[j];
    for (int64_t c = 0; c < p.value_dim && row.p[j] > 0; ++c)
      row.o[c] += weight * row.z[j] / sum * in.v.at(((in.packing.k_begin[b] + j) * p.kv_heads + kv) * p.value_dim + c);
    row.p[j] /= sum;
  }
  row.l = top + std::log(sum);
  return row;
}

void add_gradients(const Inputs& in, int64_t b, int64_t h, int64_t i, const Row& row, Error error,
                   std::vector<double> (&sums)[output_count]) {
  const Problem& p = in.problem;
  const int64_t q = (in.packing.q_begin[b] + i) * p.heads + h, kv = kv_head_of(p, h, error),
                group = p.heads / p.kv_heads;
  const bool stored = error != Error::dk_of_last_head || h % group == group - 1;
  double d = 0;
  for (int64_t c = 0; c < p.value_dim; ++c) d += in.d_o.at(q * p.value_dim + c) * row.o[c];
  if (p.sink && row.l > -infinity) sums[int(OutputId::dsink)][h] -= std::exp(row.sink - row.l) * d;
  for (int64_t j = 0; j < in.packing.seq_k(b); ++j) {
    if (row.p[j] == 0) continue;
    const int64_t k = (in.packing.k_begin[b] + j) * p.kv_heads + kv;
    double g = 0;
    for (int64_t c = 0; c < p.value_dim; ++c) g += in.d_o.at(q * p.value_dim + c) * in.v.at(k * p.value_dim + c);
    const double dshifted = row.p[j] * (row.z[j] * g - (error == Error::no_d ? 0 : d)), ds = dshifted * row.slope[j];
    if (p.bias) sums[int(OutputId::dbias)][bias_index(in, b, h, i, j)] += dshifted;
    for (int64_t c = 0; c < p.head_dim; ++c) {
      sums[int(OutputId::dq)][q * p.head_dim + c] += scale_of(p) * ds * in.k.at(k * p.head_dim + c);
      if (stored) sums[int(OutputId::dk)][k * p.head_dim + c] += scale_of(p) * ds * in.q.at(q * p.head_dim + c);
    }
    for (int64_t c = 0; c < p.value_dim && stored; ++c)
      sums[int(OutputId::dv)][k * p.value_dim + c] += row.p[j] * row.z[j] * in.d_o.at(q * p.value_dim + c);
  }
}

RunResult run_with(Error error, const Run& run) {
  const Inputs in = make_inputs(run.c);
  const Problem& p = in.problem;
  RunResult result;
  result.outputs = make_outputs(p);
  std::vector<double> sums[output_count];
  for (int id = 0; id < output_count; ++id) sums[id].assign(tensor_of(result.outputs, OutputId(id)).size(), 0);
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t h = 0; h < p.heads; ++h)
      for (int64_t i = 0; i < in.packing.seq_q(b); ++i) {
        const Row row = make_row(in, b, h, i, error);
        const int64_t q = (in.packing.q_begin[b] + i) * p.heads + h;
        const bool zero = error == Error::last_row_zeroed && h == 0 && i == in.packing.seq_q(b) - 1;
        for (int64_t c = 0; c < p.value_dim; ++c) sums[int(OutputId::o)][q * p.value_dim + c] = zero ? 0 : row.o[c];
        sums[int(OutputId::lse)][q] = row.l * (error == Error::l_base_2 ? std::log2(std::exp(1.0)) : 1);
        if (has_backward(p)) add_gradients(in, b, h, i, row, error, sums);
      }
  for (int id = 0; id < output_count; ++id) {
    Tensor& tensor = tensor_of(result.outputs, OutputId(id));
    for (int64_t n = 0; n < tensor.size(); ++n) tensor.set_bits(n, encode(tensor.dtype, sums[id][n]));
  }
  return result;
}

Explanation explained(Error error, const char* text) {
  const RunOnce run_once = [error](const Run& run, const std::string&) { return run_with(error, run); };
  return explain(run_once, load_kernel("cpu:flash2"), Job{parse_case(text), "", {"bound"}}, {}, 10);
}

struct Planted {
  Error error;
  const char *text, *id;
  const char* needed;  ///< a field that the failure needs; "" none
};

void PrintTo(const Planted& planted, std::ostream* out) { *out << planted.id; }

class Explain : public testing::TestWithParam<Planted> {};

TEST_P(Explain, NamesTheMistakeFirst) {
  const Explanation e = explained(GetParam().error, GetParam().text);
  ASSERT_TRUE(e.failure.has_value());
  ASSERT_FALSE(e.causes.empty());
  EXPECT_TRUE(e.fits()) << e.causes.front().id << ' ' << e.causes.front().score << ": " << e.causes.front().explained
                        << " of " << e.causes.front().wrong << ", against " << e.causes.front().contradicted << "; "
                        << print(e.reduced.c);
  EXPECT_EQ(e.causes.front().id, GetParam().id)
      << e.causes.front().score << " before " << e.causes[1].id << ' ' << e.causes[1].score;
  if (*GetParam().needed) {
    EXPECT_NE(std::find(e.fields.needed.begin(), e.fields.needed.end(), GetParam().needed), e.fields.needed.end());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Mistakes, Explain,
    testing::Values(
        Planted{Error::last_key, "bf16 h2 q9 k37 d16 seed=3", "last-key-dropped", ""},
        Planted{Error::window_left, "bf16 h2 q9 k37 d16 window=5,2 seed=3", "window-left-one-less", "window left"},
        Planted{Error::causal_diagonal, "bf16 h2 q9 k37 d16 causal seed=3", "causal-one-less", "causal"},
        Planted{Error::scale, "bf16 h2 q9 k37 d16 seed=3", "scale-off", ""},
        Planted{Error::l_base_2, "bf16 h2 q9 k37 d16 causal seed=3", "l-base-2", ""},
        Planted{Error::pad_key, "bf16 h2 q9 k37 d16 seed=3", "padded-to-2", ""},
        Planted{Error::bias_of_kv_head, "bf16 h4/2 q9 k37 d16 bias=1h1k seed=3", "bias-of-kv-head", "bias by head"},
        Planted{Error::alibi_sign, "bf16 h2 q9 k37 d16 alibi seed=3", "alibi-sign", "alibi"},
        Planted{Error::sink_ignored, "bf16 h2 q9 k37 d16 sink seed=3", "sink-ignored", "sink"},
        Planted{Error::dropout_unscaled, "bf16 h2 q9 k37 d16 dropout=0.25@7 seed=3", "dropout-unscaled", "dropout"},
        Planted{Error::kv_head_mod, "bf16 h6/2 q9 k37 d16 seed=3", "kv-head-mod", "query heads in groups"},
        Planted{Error::dead_row_nan, "bf16 h2 q19 k7 d16 causal seed=3", "dead-row-nan", ""},
        Planted{Error::last_row_zeroed, "bf16 h2 q9 k37 d16 seed=3", "zeroed", ""},
        Planted{Error::p_in_e4m3, "bf16 h2 q9 k37 d16 seed=3", "p-in-e4m3", ""},
        Planted{Error::softcap_ignored, "bf16 h2 q9 k37 d16 softcap=1.5 seed=3", "softcap-ignored", "softcap"},
        Planted{Error::no_d, "bf16 h2 q9 k17 d16 bwd seed=3", "d-missing", "backward"},
        Planted{Error::dk_of_last_head, "bf16 h4/2 q9 k17 d16 bwd seed=3", "dk-dv-last-head", "query heads in groups"}),
    [](const testing::TestParamInfo<Planted>& info) {
      std::string name = info.param.id;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

TEST(ExplainNothing, ARightKernelIsNotAccused) {
  const Explanation e =
      explained(Error::none, "bf16 h4/2 q19 k37 d16 causal alibi sink bias=1h1k dropout=0.25@7 softcap=5 bwd seed=3");
  EXPECT_FALSE(e.failure.has_value());
  EXPECT_EQ(e.judgement.status(), Status::pass);
  EXPECT_TRUE(e.causes.empty());
}

TEST(ExplainSketch, WithoutAMistakeIsTheExactValue) {
  const Inputs in = make_inputs(parse_case(
      "fp32 b2 h4/2 seqq=[7,3] seqk=[5,11] d8/4 window=6,2 alibi sink bias=1h1k dropout=0.25@7 softcap=5 bwd seed=3"));
  const Sketch made = sketch(in, Mistake{});
  const ExactOutputs<double> exact = exact_attention<double>(in);
  const std::vector<double>* expected[] = {&exact.o,  &exact.l,     &exact.dq,   &exact.dk,
                                           &exact.dv, &exact.dsink, &exact.dbias};
  for (int id = 0; id < output_count; ++id) {
    ASSERT_EQ(made.output[id].size(), expected[id]->size());
    for (size_t n = 0; n < expected[id]->size(); ++n) {
      if (id == int(OutputId::lse) && exact.l_is_minus_infinity[n]) {
        EXPECT_EQ(made.output[id][n], -infinity);
        continue;
      }
      EXPECT_NEAR(made.output[id][n], (*expected[id])[n], 1e-10) << name_of(OutputId(id)) << ' ' << n;
    }
  }
}

TEST(ExplainSketch, EachHypothesisThatAppliesChangesSomething) {
  // A hypothesis that predicts the truth could never be told from a right kernel; such would be noise in the table.
  const char* text =
      "bf16 b2 h4/2 q33 k65 d16/8 scale=0.5 causal window=20,3 alibi sink bias=bhqk dropout=0.25@7 softcap=5 bwd "
      "seed=3";
  const LoadedKernel& kernel = load_kernel("cpu:flash2");
  const Case c = parse_case(text);
  const flashproof::Run run{.c = c, .placement = {}};
  const Observation o = observe(run, subject_of(kernel, c.problem, "tile_m=16,tile_n=16"), *kernel.table,
                                run_with(Error::none, run), false);
  EXPECT_EQ(o.wrong, 0);
  int applied = 0, silent = 0;
  for (const Hypothesis& hypothesis : all_hypotheses()) {
    const std::optional<Prediction> prediction = hypothesis.predict(o);
    if (!prediction) continue;
    ++applied;
    bool differs = false;
    for (int id = 0; id < output_count; ++id) {
      const std::vector<double>& values = prediction->values.output[id];
      for (size_t n = 0; n < values.size(); ++n) differs |= !agrees(values[n], o.output[id].truth[n], 1e-9);
    }
    silent += !differs;
  }
  EXPECT_GT(applied, 150);
  EXPECT_LT(silent, applied / 8);
}

}  // namespace
}  // namespace flashproof
