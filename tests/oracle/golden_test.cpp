// Both oracles against values that other projects' code computed in float64 (tests/golden/README.md).
//
// A golden value carries its witness's rounding: at most 1e-12 of the sum of magnitudes behind it, max(1, |L|) for L.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "oracle/slow_problem.h"
#include "oracle/value.h"

namespace flashproof {
namespace {

using Json = nlohmann::json;

constexpr double witness_error = 1e-12;
constexpr int64_t enclose_share = 7;  // one output in so many is evaluated at a higher strength too
constexpr const char* golden_names[output_count] = {"o", "l", "dq", "dk", "dv", "dsink", "dbias"};

double real(const Json& hexadecimal) { return std::strtod(hexadecimal.get_ref<const std::string&>().c_str(), nullptr); }

std::vector<float> floats(const Json& list) {
  std::vector<float> numbers;
  for (const Json& x : list) numbers.push_back(float(real(x)));
  return numbers;
}

DType dtype_of(const std::string& name) {
  for (int n = 0; n < dtype_count; ++n) {
    Problem p;
    p.dtype = DType(n);
    if (print(p).starts_with(name + " ") || print(p) == name) return p.dtype;
  }
  throw std::runtime_error("unknown dtype " + name);
}

Problem problem_of(const Json& g) {
  Problem p;
  p.dtype = dtype_of(g["dtype"]);
  p.batch = g["batch"], p.heads = g["heads"], p.kv_heads = g["kv_heads"];
  p.q.packed = g["seq_q"].get<std::vector<int64_t>>(), p.k.packed = g["seq_k"].get<std::vector<int64_t>>();
  p.head_dim = g["head_dim"], p.value_dim = g["value_dim"];
  p.scale = float(real(g["scale"])), p.softcap = float(real(g["softcap"]));
  p.mask.causal = g["causal"], p.mask.top_left = g["top_left"];
  if (!g["window_left"].is_null()) p.mask.window_left = g["window_left"];
  if (!g["window_right"].is_null()) p.mask.window_right = g["window_right"];
  if (!g["slopes"].is_null()) p.alibi = Alibi::per_batch_and_head;
  p.sink = !g["sinks"].is_null();
  if (!g["bias"].is_null()) {
    const auto shape = g["bias"]["shape"].get<std::vector<int64_t>>();
    p.bias = Bias{shape[0] > 1, shape[1] > 1, shape[2] > 1, shape[3] > 1, true};
  }
  if (!g["dq"].is_null()) p.direction = Direction::backward;
  return p;
}

void fill(Tensor& tensor, const Json& bits) {
  ASSERT_EQ(tensor.size(), std::ssize(bits));
  for (int64_t n = 0; n < tensor.size(); ++n) tensor.set_bits(n, bits[n]);
}

/// A case of the problem, and then the golden file's numbers in place of its own.
Inputs inputs_of(const Json& g) {
  Case c;
  c.problem = problem_of(g);
  Inputs in = make_inputs(c);
  fill(in.q, g["q"]), fill(in.k, g["k"]), fill(in.v, g["v"]), fill(in.d_o, g["d_o"]);
  if (c.problem.alibi != Alibi::none) in.slopes = floats(g["slopes"]);
  if (c.problem.sink) in.sinks = floats(g["sinks"]);
  if (c.problem.bias) {
    const Json& values = g["bias"]["values"];
    EXPECT_EQ(in.bias.size(), std::ssize(values));
    for (int64_t n = 0; n < in.bias.size(); ++n) in.bias.set_bits(n, encode(DType::fp32, real(values[n])));
  }
  return in;
}

const std::vector<Json>& golden_cases() {
  static const std::vector<Json> cases = [] {
    std::vector<Json> list;
    std::ifstream file(FLASHPROOF_TEST_DATA "/golden/golden.jsonl");
    for (std::string line; std::getline(file, line);) list.push_back(Json::parse(line));
    return list;
  }();
  return cases;
}

/// body(id, n, golden value, the witness's error) for each output element that the case has.
template <class Body>
void for_each_value(const Json& g, const Values& values, const Body& body) {
  for (int number = 0; number < output_count; ++number) {
    const auto id = OutputId(number);
    const Json& list = g[golden_names[number]];
    if (list.is_null()) continue;
    ASSERT_EQ(std::ssize(values[id].mid), std::ssize(list)) << g["id"] << " " << name_of(id);
    for (int64_t n = 0; n < std::ssize(list); ++n) {
      const double expected = real(list[n]);
      const double size = id != OutputId::lse    ? values[id].condition[n]
                          : std::isinf(expected) ? 0
                                                 : std::max(1.0, std::fabs(expected));
      ASSERT_LE(size, 1e6) << "the golden cases are tame: this would excuse too much";
      body(id, n, expected, witness_error * size);
    }
  }
}

/// |a - b| <= allowed, or both -infinity.
bool near(double a, double b, double allowed) { return a == b || std::fabs(a - b) <= allowed; }

TEST(Golden, HasTheCasesItSays) {
  EXPECT_GE(std::ssize(golden_cases()), 200);
  int64_t with[output_count] = {};
  for (const Json& g : golden_cases())
    for (int n = 0; n < output_count; ++n) with[n] += !g[golden_names[n]].is_null();
  for (const int64_t cases : with) EXPECT_GT(cases, 5);
}

TEST(Golden, ValueAgrees) {
  int64_t compared = 0, shifted_unseen = 0;
  for (const Json& g : golden_cases()) {
    const Inputs in = inputs_of(g);
    const Values values = value_double(in, {});
    for_each_value(g, values, [&](OutputId id, int64_t n, double expected, double error) {
      const double mid = values[id].mid[n], radius = values[id].radius[n];
      ASSERT_TRUE(values[id].known[n]);
      EXPECT_TRUE(near(mid, expected, radius + error)) << g["id"] << " " << name_of(id) << " " << n << ": " << mid;
      if (std::isfinite(expected) && error > 0) shifted_unseen += near(mid, expected + 3 * error, radius + error);
      if (++compared % enclose_share != 0) return;
      const Enclosure tight = enclose(in, id, n, 0);
      EXPECT_TRUE(near(tight.mid, expected, tight.radius + error)) << g["id"] << " " << name_of(id) << " " << n;
    });
  }
  EXPECT_EQ(shifted_unseen, 0) << "a golden value that is 3e-12 of its size off must be seen";
  EXPECT_GT(compared, 10000);
}

TEST(Golden, SlowAgrees) {
  int64_t shifted_unseen = 0;
  for (const Json& g : golden_cases()) {
    const Inputs in = inputs_of(g);
    const slow::Result result = slow::forward_backward(slow_problem(in), has_backward(in.problem));
    for_each_value(g, value_double(in, {}), [&](OutputId id, int64_t n, double expected, double error) {
      const slow::Value& x = values_of(result, id)[n];
      const double value = x.negative_infinity ? -INFINITY : x.hi;
      EXPECT_TRUE(near(value, expected, error)) << g["id"] << " " << name_of(id) << " " << n << ": " << value;
      if (std::isfinite(expected) && error > 0) shifted_unseen += near(value, expected + 3 * error, error);
    });
  }
  EXPECT_EQ(shifted_unseen, 0);
}

}  // namespace
}  // namespace flashproof
