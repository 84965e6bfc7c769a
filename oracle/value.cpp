// Escalation from one strength of the oracle to the next, correct rounding, and the choice of rows (contracts in
// oracle/value.h).
#include "oracle/value.h"

#include <cmath>
#include <limits>
#include <optional>
#include <stdexcept>

#include "oracle/value_element.h"
#include "oracle/value_tie.h"
#include "reference/threads.h"

namespace flashproof {
namespace {

/// Frees at its end what MPFR keeps for this thread, which would be lost when the thread ends.
struct MpfrCacheOfThread {
  MpfrCacheOfThread() = default;
  MpfrCacheOfThread(const MpfrCacheOfThread&) = delete;
  MpfrCacheOfThread& operator=(const MpfrCacheOfThread&) = delete;
  ~MpfrCacheOfThread() { mpfr_free_cache2(MPFR_FREE_LOCAL_CACHE); }
};

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr int most_bits = 4096;

/// The sample that holds just one element.
Sample sample_of(const Problem& p, OutputId id, int64_t index) {
  Sample sample{.all = false, .query_rows = {}, .key_rows = {}};
  switch (id) {
    case OutputId::o:
      sample.query_rows = {index / p.value_dim};
      break;
    case OutputId::lse:
      sample.query_rows = {index};
      break;
    case OutputId::dq:
      sample.query_rows = {index / p.head_dim};
      break;
    case OutputId::dk:
      sample.key_rows = {index / p.head_dim};
      break;
    case OutputId::dv:
      sample.key_rows = {index / p.value_dim};
      break;
    case OutputId::dsink:
    case OutputId::dbias:
      sample.all = true;
      break;
  }
  return sample;
}

/// One element by the first strength; the ends are rounded outward.
ElementValue element_double(const OutputValues& values, int64_t index) {
  if (!values.known[index])
    throw std::runtime_error(
        "no exact value: NaN or infinity in the inputs reaches this element, and it is not judged");
  const double mid = values.mid[index], radius = values.radius[index];
  if (radius == 0) return {mid, 0, mid, mid, ""};
  return {mid, radius, std::nextafter(mid - radius, -infinity), std::nextafter(mid + radius, infinity), ""};
}

/// The next strength after `bits` (0: double).
int next_bits(int bits) { return bits == 0 ? 128 : 2 * bits; }
Strength strength_of(int bits) {
  return bits == 0 ? Strength::certified_double : bits == 128 ? Strength::mpfr : Strength::interval;
}
ElementValue element_at(const Inputs& in, OutputId id, int64_t index, int bits) {
  return bits == 128 ? element_ball(in, id, index) : element_interval(in, id, index, bits);
}

/// Position of an encoding among the format's numbers in ascending order; both zeros are 0.
int64_t order_of(DType dtype, uint32_t bits) {
  const uint32_t sign = 1u << (format_of(dtype).bits - 1);
  return bits & sign ? -int64_t(bits & ~sign) : int64_t(bits);
}

/// The number half way between neighbours low < high; past the largest number, where rounding turns to infinity.
double midpoint(DType dtype, uint32_t low, uint32_t high) {
  double a = decode(dtype, low), b = decode(dtype, high);
  if (std::isinf(b)) b = a + ulp(dtype, a);
  if (std::isinf(a)) a = b - ulp(dtype, b);
  return (a + b) / 2;
}

/// An element's exact tie with r, the row's groups of scores being found once.
struct TieTest {
  const Inputs& in;
  std::optional<std::vector<ScoreGroup>> groups;

  bool decides(OutputId id) const { return id == OutputId::o || id == OutputId::lse; }
  bool equals(const Where& where, double r) {
    if (!groups) groups = equal_scores(in, where.b, where.head, where.position);
    if (where.output == OutputId::lse) return l_equals(in, *groups, where.b, where.head, where.position, r);
    return o_equals(in, *groups, where.b, where.head, where.position, where.channel, r);
  }
};

/// Rounds the element to `dtype`, `value` being what double says of it; `ties` is that of the element's row.
Rounded round_element(const Inputs& in, OutputId id, int64_t index, DType dtype, ElementValue value, TieTest& ties) {
  bool tie_tested = false;
  for (int bits = 0;; bits = next_bits(bits)) {
    if (bits != 0) value = element_at(in, id, index, bits);
    const uint32_t low = encode(dtype, value.low_odd), high = encode(dtype, value.high_odd);
    const int64_t distance = order_of(dtype, high) - order_of(dtype, low);
    const Strength strength = strength_of(bits);
    if (low == high) return {low, low, false, strength};
    if (std::isfinite(value.radius) && distance == 0)
      return {0, 0, false, strength};  // zero, of a sign that is not known
    if (distance == 1 && !tie_tested && ties.decides(id)) {
      tie_tested = true;
      const uint32_t even = low & 1 ? high : low;
      if (ties.equals(locate(in.problem, id, index), midpoint(dtype, low, high))) return {even, even, false, strength};
    }
    if (bits >= most_bits) return {low, high, true, strength};
  }
}

}  // namespace

Enclosure enclose(const Inputs& in, OutputId id, int64_t index, double wanted) {
  const MpfrCacheOfThread cache;
  const Values values = value_double(in, sample_of(in.problem, id, index), 1, true);
  ElementValue value = element_double(values[id], index);
  int bits = 0;
  while (value.radius > wanted && bits < most_bits) {
    bits = next_bits(bits);
    value = element_at(in, id, index, bits);
    if (value.radius <= 0x1p-52 * std::fabs(value.mid))
      break;  // the rounding of mid to double, which no precision takes away
  }
  return {value.mid, value.radius, strength_of(bits)};
}

Rounded correctly_rounded(const Inputs& in, OutputId id, int64_t index, DType dtype) {
  const MpfrCacheOfThread cache;
  const Values values = value_double(in, sample_of(in.problem, id, index), 1, true);
  TieTest ties{in, {}};
  return round_element(in, id, index, dtype, element_double(values[id], index), ties);
}

void correctly_rounded_forward(const Inputs& in, Tensor& o, Tensor& lse) {
  Inputs forward = in;
  forward.problem.direction = Direction::forward;
  const Values values = value_double(forward, {}, 0, true);
  Outputs outputs = make_outputs(forward.problem);
  const int64_t rows = outputs.lse.size(), value_dim = in.problem.value_dim;
  for_each_item(rows, 0, [&](int64_t row) {
    const MpfrCacheOfThread cache;
    TieTest ties{forward, {}};
    const auto round = [&](OutputId id, Tensor& tensor, int64_t index) {
      const OutputValues& output = values[id];
      if (!output.known[index]) return tensor.set_bits(index, nan_bits(tensor.dtype));
      tensor.set_bits(index, round_element(forward, id, index, tensor.dtype, element_double(output, index), ties).bits);
    };
    round(OutputId::lse, outputs.lse, row);
    for (int64_t c = 0; c < value_dim; ++c) round(OutputId::o, outputs.o, row * value_dim + c);
  });
  o = std::move(outputs.o);
  lse = std::move(outputs.lse);
}

std::string value_hex128(const Inputs& in, OutputId id, int64_t index) {
  const MpfrCacheOfThread cache;
  const Values values = value_double(in, sample_of(in.problem, id, index), 1, true);
  const ElementValue value = element_double(values[id], index);
  if (std::isnan(value.mid)) return "nan";
  if (value.radius == 0 && value.mid == 0) return "0x0p+0";
  std::string previous;
  for (int bits = 256; bits <= most_bits; bits *= 2) {
    const ElementValue exact = element_interval(in, id, index, bits);
    if (exact.hex128 == previous) return previous;
    previous = exact.low_odd <= 0 && exact.high_odd >= 0 ? "0x0p+0" : exact.hex128;
  }
  return previous;
}

}  // namespace flashproof
