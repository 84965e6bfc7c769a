// Exact attention against values worked out by hand and against differences of itself.
#include "reference/attention.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <boost/multiprecision/cpp_bin_float.hpp>
#include <functional>

#include "tests/reference/small_inputs.h"

namespace flashproof::test {
namespace {

using Wide =
    boost::multiprecision::number<boost::multiprecision::cpp_bin_float_50::backend_type, boost::multiprecision::et_off>;

/// fp32 problem with one row and one channel, scores s_j = k_j and values v_j.
Inputs one_row(const std::vector<float>& scores, const std::vector<float>& values) {
  Case c;
  c.problem.dtype = DType::fp32;
  c.problem.k.slot = int64_t(scores.size());
  c.problem.head_dim = c.problem.value_dim = 1;
  c.problem.scale = 1;
  Inputs in = make_inputs(c);
  in.q.set_bits(0, encode(DType::fp32, 1));
  for (size_t j = 0; j < scores.size(); ++j) {
    in.k.set_bits(int64_t(j), encode(DType::fp32, scores[j]));
    in.v.set_bits(int64_t(j), encode(DType::fp32, values[j]));
  }
  return in;
}

TEST(attention, eight_key_example_to_thirty_digits) {
  const Inputs in = one_row({2, 1, 0.5, 3, -1, 2.5, 0, 4}, {10, 20, 30, 40, 50, 60, 70, 80});
  const auto exact = exact_attention<Wide>(in);
  const std::vector<double> s = {2, 1, 0.5, 3, -1, 2.5, 0, 4};
  Wide numerator(0), denominator(0);
  for (size_t j = 0; j < s.size(); ++j) {
    numerator += exp(Wide(s[j])) * Wide(10.0 * double(j + 1));
    denominator += exp(Wide(s[j]));
  }
  EXPECT_LT(abs(exact.o[0] - numerator / denominator), Wide("1e-45"));
  EXPECT_LT(abs(exact.l[0] - log(denominator)), Wide("1e-45"));
  EXPECT_LT(abs(exact.o[0] - Wide("61.6894444404")), Wide("5e-11"));
}

TEST(attention, any_reference_point_gives_the_same_row) {
  const Inputs in = one_row({2, 1, 0.5, 3}, {1, 2, 3, 4});
  const Row<Wide> near = softmax_row<Wide>(in, 0, 0, 0), far = softmax_row<Wide>(in, 0, 0, 0, -40.0);
  EXPECT_LT(abs(near.l - far.l), Wide("1e-45"));
  EXPECT_LT(abs(output(in, near, 0) - output(in, far, 0)), Wide("1e-45"));
}

TEST(attention, a_row_without_keys_is_zero) {
  Case c;
  c.problem.q.slot = 3;
  c.problem.k.slot = 1;
  c.problem.mask.causal = true;  // bottom-right: rows 0 and 1 see nothing
  c.problem.head_dim = c.problem.value_dim = 2;
  c.problem.direction = Direction::backward;
  const auto out = exact_attention<double>(make_inputs(c));
  EXPECT_TRUE(out.l_is_minus_infinity[0] && out.l_is_minus_infinity[1] && !out.l_is_minus_infinity[2]);
  for (int n = 0; n < 4; ++n) {
    EXPECT_EQ(out.o[n], 0);
    EXPECT_EQ(out.dq[n], 0);
  }
  EXPECT_NE(out.o[4], 0);
}

TEST(attention, a_sink_takes_weight_and_gives_no_value) {
  Inputs in = one_row({0, 0}, {1, 3});
  in.problem.sink = true;
  in.sinks = {std::log(2.0f)};
  const auto out = exact_attention<double>(in);
  EXPECT_NEAR(out.o[0], 1, 1e-7);  // (1 + 3) / (1 + 1 + 2)
  EXPECT_NEAR(out.l[0], std::log(4.0), 1e-7);
}

/// sum dO o O, whose derivatives the gradients are.
Wide objective(const Inputs& in) {
  const auto out = exact_attention<Wide>(in);
  Wide sum(0);
  for (size_t n = 0; n < out.o.size(); ++n) sum += out.o[n] * Wide(in.d_o.at(int64_t(n)));
  return sum;
}

/// Derivative of the objective along `move(in, amount)`, by central differences at h and h / 2 with h^2 eliminated.
Wide derivative(const Inputs& in, const std::function<void(Inputs&, double)>& move) {
  const auto difference = [&](double h) {
    Inputs up = in, down = in;
    move(up, h);
    move(down, -h);
    return (objective(up) - objective(down)) / Wide(2 * h);
  };
  return (4 * difference(0x1p-8) - difference(0x1p-7)) / 3;
}

/// Moves an fp32 element; a multiple of 2^-12 below 2^10 before and after, so that the step is exact.
void add_to(Tensor& tensor, int64_t index, double amount) {
  tensor.set_bits(index, encode(DType::fp32, tensor.at(index) + amount));
}

RC_GTEST_PROP(attention, gradients_are_derivatives, ()) {
  Problem p = draw_problem(DType::fp32, 4);
  if (p.bias) p.bias->fp32 = true;
  Inputs in = draw_inputs(p);
  for (Tensor* tensor : {&in.q, &in.k, &in.v, &in.bias})
    for (int64_t n = 0; n < tensor->size(); ++n)
      tensor->set_bits(n, encode(DType::fp32, std::round(tensor->at(n) * 0x1p12) * 0x1p-12));
  RC_LOG() << print(p);
  // Backward's dO stays; the objective needs the forward alone.
  const auto out = exact_attention<Wide>(in);
  in.problem.direction = Direction::forward;
  const auto check = [&](Tensor Inputs::*tensor, const std::vector<Wide>& gradient) {
    if ((in.*tensor).size() == 0) return;
    const int64_t index = draw(0, (in.*tensor).size() - 1);
    if (!std::isfinite((in.*tensor).at(index))) return;
    const Wide expected = derivative(in, [&](Inputs& moved, double h) { add_to(moved.*tensor, index, h); });
    RC_ASSERT(abs(gradient[size_t(index)] - expected) < 1e-4);
  };
  check(&Inputs::q, out.dq);
  check(&Inputs::k, out.dk);
  check(&Inputs::v, out.dv);
  if (p.bias) check(&Inputs::bias, out.dbias);
  if (p.sink) {
    for (float& sink : in.sinks) sink = std::round(sink * 4096) / 4096;
    in.problem.direction = Direction::backward;
    const auto rounded = exact_attention<Wide>(in);
    in.problem.direction = Direction::forward;
    const size_t h = size_t(draw(0, p.heads - 1));
    const Wide expected = derivative(in, [&](Inputs& moved, double step) { moved.sinks[h] += float(step); });
    RC_ASSERT(abs(rounded.dsink[h] - expected) < 1e-4);
  }
}

}  // namespace
}  // namespace flashproof::test
