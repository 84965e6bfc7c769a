// Whether a kernel's results are those of exact attention, within a loose factor (the oracle judges closely), on small
// random problems of every feature and layout.
#pragma once
#include <cmath>
#include <string>

#include "tests/kernels/small_call.h"
#include "tests/reference/small_inputs.h"

namespace flashproof::test {

/// A legal problem with a backward, of sequences up to `longest`: half of the features, paged or strided.
inline Problem draw_laid_out_problem(DType dtype, int64_t longest = 12) {
  Problem p = draw_problem(dtype, longest);
  const bool dense = p.q.packed.empty() && p.k.packed.empty();
  if (p.k.packed.empty() && coin()) p.paging = Paging{0, draw(1, 5)};
  p.layout.row_gap = draw(0, 3);
  p.layout.heads_first = dense && !p.paging && coin();
  return p;
}

/// "" when every element is within tolerance (1 + largest |expected|) of what is expected.
inline std::string difference(const char* name, const std::vector<double>& got, const std::vector<double>& expected,
                              double tolerance) {
  if (got.size() != expected.size()) return std::string(name) + ": wrong size";
  double largest = 1;
  for (double x : expected) largest = std::max(largest, 1 + std::fabs(x));
  for (size_t n = 0; n < got.size(); ++n)
    if (got[n] != expected[n] && !(std::fabs(got[n] - expected[n]) <= tolerance * largest))
      return std::string(name) + "[" + std::to_string(n) + "] is " + std::to_string(got[n]) + ", not " +
             std::to_string(expected[n]);
  return "";
}

struct Gradients {
  std::vector<double> dq, dk, dv, dbias, dsink;
};
/// What a backward wrote; dbias and dsink are empty where the problem has none.
inline Gradients gradients_of(const SmallCall& small, const Inputs& in) {
  const Problem& p = in.problem;
  Gradients g;
  g.dq = small.gather_queries(small.call.dq, p.head_dim);
  g.dk = small.gather_key_gradients(small.call.dk, p.head_dim);
  g.dv = small.gather_key_gradients(small.call.dv, p.value_dim);
  if (p.bias) g.dbias = small.gather_all(small.call.dbias, in.bias.size());
  if (p.sink) g.dsink = small.gather_all(small.call.dsink, p.heads);
  return g;
}
inline std::string difference(const Gradients& got, const Gradients& expected, double tolerance) {
  const std::string differences[] = {
      difference("dQ", got.dq, expected.dq, tolerance), difference("dK", got.dk, expected.dk, tolerance),
      difference("dV", got.dv, expected.dv, tolerance), difference("dbias", got.dbias, expected.dbias, tolerance),
      difference("dsink", got.dsink, expected.dsink, tolerance)};
  for (const std::string& each : differences)
    if (!each.empty()) return each;
  return "";
}

/// `run(call, direction)` carries out the forward or the backward; "" or what went wrong. The first difference from
/// exact attention.
template <class Run>
std::string compare_with_exact(const Inputs& in, double tolerance, Run run) {
  const Problem& p = in.problem;
  SmallCall small(in);
  std::string found = run(small, Direction::forward);
  if (!found.empty()) return found;
  auto exact = exact_attention<double>(in);
  for (size_t row = 0; row < exact.l.size(); ++row)
    if (exact.l_is_minus_infinity[row]) exact.l[row] = -INFINITY;
  std::vector<double> finite_l = exact.l, got_l = small.gather_lse();
  for (size_t row = 0; row < finite_l.size(); ++row)
    if (got_l[row] == finite_l[row]) got_l[row] = finite_l[row] = 0;
  found = difference("O", small.gather_queries(small.call.o, p.value_dim), exact.o, tolerance);
  if (found.empty()) found = difference("L", got_l, finite_l, 1e-4);
  if (!found.empty() || !has_backward(p)) return found;
  small.add_gradients();
  found = run(small, Direction::backward);
  // dS = p (z g - D) cancels, D carries the rounding of O, and scale, 1 / (1 - rate) and the heads of a group multiply
  // it.
  return !found.empty() ? found
                        : difference(gradients_of(small, in), {exact.dq, exact.dk, exact.dv, exact.dbias, exact.dsink},
                                     8 * tolerance);
}

}  // namespace flashproof::test
