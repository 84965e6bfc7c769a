// The comparison of one case by all strengths; see agreement.h.
#include "tests/oracle/agreement.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <stdexcept>

#include "oracle/slow_problem.h"
#include "oracle/value_element.h"
#include "reference/threads.h"

namespace flashproof::test {
namespace {

constexpr size_t most_examples = 10;
constexpr int interval_bits = 256;
/// The twin's own error, relative to the sum of magnitudes: its 1024 bits leave about 2^-1000 where terms cancel, and
/// scores below 2^300 take less than 300 bits from the exponents. It is felt only where an enclosure is tighter still.
constexpr double twin_error = 0x1p-600;

struct Comparison {
  const Case& c;
  const Inputs& in;
  const Values& values;
  Agreement& result;

  void disagree(OutputId id, int64_t n, const char* strength, double mid, double radius, const slow::Value& exact) {
    ++result.disagreements;
    if (result.examples.size() == most_examples) return;
    char values[160];
    std::snprintf(values, sizeof values, "%.17g +- %.3g, slow %.17g + %.3g", mid, radius,
                  exact.negative_infinity ? -INFINITY : exact.hi, exact.lo);
    result.examples.push_back(print(c) + "\n  " + print(locate(in.problem, id, n)) + ", " + strength + ": " + values);
  }

  void enclosed(OutputId id, int64_t n, const char* strength, double mid, double radius, const slow::Value& exact) {
    if (!encloses(mid, std::max(radius, twin_error * values[id].condition[n]), exact))
      disagree(id, n, strength, mid, radius, exact);
  }

  void first_strength(OutputId id, int64_t n, const slow::Value& exact) {
    const OutputValues& output = values[id];
    const double mid = output.mid[n], radius = output.radius[n], condition = output.condition[n];
    ++result.outputs[int(id)];
    result.conditioned += condition > 0;
    result.small_radii += condition > 0 && radius <= 0x1p-40 * condition;
    if (condition == 0) result.largest_zero_radius = std::max(result.largest_zero_radius, radius);
    if (!output.known[n]) return disagree(id, n, "unknown", mid, radius, exact);
    enclosed(id, n, "double", mid, radius, exact);
    if (radius > 0 && std::isfinite(radius))
      result.worst_ratio = std::max(result.worst_ratio, std::fabs((mid - exact.hi) - exact.lo) / radius);
  }

  void higher_strengths(OutputId id, int64_t n, const slow::Value& exact) {
    ++result.stronger;
    const ElementValue ball = element_ball(in, id, n), interval = element_interval(in, id, n, interval_bits);
    enclosed(id, n, "ball", ball.mid, ball.radius, exact);
    enclosed(id, n, "interval", interval.mid, interval.radius, exact);
    const Enclosure tightest = enclose(in, id, n, 0);
    enclosed(id, n, "enclose", tightest.mid, tightest.radius, exact);
  }

  /// A zero's sign is free: the twin does not define it.
  void rounding(OutputId id, int64_t n, DType dtype, slow::Dtype slow_dtype, const slow::Value& exact) {
    const Rounded rounded = correctly_rounded(in, id, n, dtype);
    ++result.rounded_by[int(rounded.strength)];
    result.undecided += rounded.undecided;
    const double expected = slow::decode(slow::correctly_rounded(exact, slow_dtype), slow_dtype);
    if (decode(dtype, rounded.bits) != expected && decode(dtype, rounded.other) != expected)
      disagree(id, n, "rounding", decode(dtype, rounded.bits), 0, exact);
  }
};

bool is_gradient_sum(OutputId id) { return id == OutputId::dsink || id == OutputId::dbias; }

}  // namespace

int64_t Agreement::compared() const { return std::accumulate(outputs.begin(), outputs.end(), int64_t(0)); }

Agreement& Agreement::operator+=(const Agreement& other) {
  cases += other.cases;
  for (size_t n = 0; n < outputs.size(); ++n) outputs[n] += other.outputs[n];
  conditioned += other.conditioned;
  small_radii += other.small_radii;
  largest_zero_radius = std::max(largest_zero_radius, other.largest_zero_radius);
  worst_ratio = std::max(worst_ratio, other.worst_ratio);
  stronger += other.stronger;
  for (size_t n = 0; n < rounded_by.size(); ++n) rounded_by[n] += other.rounded_by[n];
  undecided += other.undecided;
  disagreements += other.disagreements;
  for (const std::string& example : other.examples)
    if (examples.size() < most_examples) examples.push_back(example);
  return *this;
}

Agreement compare_case(const Case& c, int64_t share) {
  const Inputs in = make_inputs(c);
  const slow::Problem twin = slow_problem(in);
  const Values values = value_double(in, {}, 1);
  const slow::Result exact = slow::forward_backward(twin, has_backward(c.problem));
  const slow::Dtype twin_output = format_of(c.problem.dtype).bits == 8 ? slow::Dtype::bf16 : twin.dtype;
  Agreement result;
  result.cases = 1;
  Comparison comparison{c, in, values, result};
  int64_t turn = int64_t(c.recipe.seed % uint64_t(share));  // not always the same elements
  for (int number = 0; number < output_count; ++number) {
    const auto id = OutputId(number);
    const std::vector<slow::Value>& expected = values_of(exact, id);
    if (values[id].mid.size() != expected.size())
      throw std::logic_error(print(c) + ": sizes of " + name_of(id) + " differ");
    const bool in_fp32 = id == OutputId::lse || is_gradient_sum(id);
    for (int64_t n = 0; n < std::ssize(expected); ++n) {
      comparison.first_strength(id, n, expected[n]);
      if (++turn % share != 0) continue;
      comparison.higher_strengths(id, n, expected[n]);
      comparison.rounding(id, n, in_fp32 ? DType::fp32 : output_dtype(c.problem),
                          in_fp32 ? slow::Dtype::fp32 : twin_output, expected[n]);
    }
  }
  return result;
}

Agreement compare_cases(const std::vector<Case>& cases, int64_t share) {
  std::vector<Agreement> results(cases.size());
  for_each_item(std::ssize(cases), 0, [&](int64_t n) {
    try {
      results[n] = compare_case(cases[n], share);
    } catch (const std::exception& error) {
      results[n].disagreements = 1;
      results[n].examples = {print(cases[n]) + "\n  " + error.what()};
    }
  });
  Agreement sum;
  for (const Agreement& result : results) sum += result;
  return sum;
}

}  // namespace flashproof::test
