// The formulas of slow.h as loops over (b, h, i, j), in MPFR at 1024 bits. Nothing is reused between rows.
#include "oracle/slow.h"

#include <algorithm>
#include <boost/multiprecision/mpfr.hpp>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

namespace flashproof::slow {
namespace {

namespace mp = boost::multiprecision;
using Real = mp::number<mp::mpfr_float_backend<309, mp::allocate_stack>, mp::et_off>;
static_assert(std::numeric_limits<Real>::digits >= 1024);

void require(bool condition, const std::string& message) {
  if (!condition) throw std::invalid_argument("slow oracle: " + message);
}

// ---- formats

struct Layout {
  int exponent_bits;
  int fraction_bits;
  bool has_infinity;  // otherwise the all-ones code alone is NaN, and the rest of its binade holds numbers
};

Layout layout(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp32:
      return {8, 23, true};
    case Dtype::bf16:
      return {8, 7, true};
    case Dtype::fp16:
      return {5, 10, true};
    case Dtype::e4m3:
      return {4, 3, false};
    case Dtype::e5m2:
      return {5, 2, true};
  }
  throw std::invalid_argument("slow oracle: unknown dtype");
}

Value negate(const Value& x) { return {-x.hi, -x.lo, -x.rest_sign, false}; }

// The sign of x - y. Rounding to nearest is monotonic, so hi != y decides; else the sign is that of x - hi.
int compare(const Value& x, double y) {
  if (x.hi != y) return x.hi < y ? -1 : 1;
  if (x.lo != 0) return x.lo < 0 ? -1 : 1;
  return x.rest_sign;
}

// Both differences are exact in 1024 bits: each removes leading bits of x.
Value to_value(const Real& x) {
  const double hi = mpfr_get_d(x.backend().data(), MPFR_RNDN);
  const Real tail = x - hi;
  const double lo = mpfr_get_d(tail.backend().data(), MPFR_RNDN);
  return {hi, lo, Real(tail - lo).sign(), false};
}

std::vector<Value> to_values(const std::vector<Real>& numbers) {
  std::vector<Value> values;
  for (const Real& x : numbers) values.push_back(to_value(x));
  return values;
}

// ---- the problem, checked and decoded

std::vector<double> decode_finite(const std::vector<uint32_t>& codes, Dtype dtype, bool allow_minus_infinity,
                                  const std::string& name) {
  std::vector<double> numbers;
  for (uint32_t code : codes) {
    const double x = decode(code, dtype);
    require(std::isfinite(x) || (allow_minus_infinity && std::isinf(x) && x < 0),
            name + " holds an element that is not finite; judge such inputs elsewhere");
    numbers.push_back(x);
  }
  return numbers;
}

void require_floats(const std::vector<float>& numbers, int64_t count, const std::string& name) {
  require(numbers.empty() || int64_t(numbers.size()) == count,
          name + " has " + std::to_string(numbers.size()) + " elements, expected " + std::to_string(count));
  for (float x : numbers) require(std::isfinite(x), name + " holds an element that is not finite");
}

void require_size(const std::vector<uint32_t>& codes, int64_t count, const std::string& name) {
  require(int64_t(codes.size()) == count,
          name + " has " + std::to_string(codes.size()) + " elements, expected " + std::to_string(count));
}

struct Data {
  std::vector<double> q, k, v, d_o, bias;
  std::vector<int64_t> first_query, first_key;  // of each entry in the concatenation
};

void require_parameters(const Problem& p) {
  require(p.batch >= 1 && p.heads >= 1 && p.kv_heads >= 1 && p.head_dim >= 1 && p.value_dim >= 1,
          "batch, heads and dimensions must be at least 1");
  require(p.heads % p.kv_heads == 0, "kv_heads must divide heads");
  require(int64_t(p.query_lengths.size()) == p.batch && int64_t(p.key_lengths.size()) == p.batch,
          "query_lengths and key_lengths need one length per batch entry");
  for (int64_t b = 0; b < p.batch; ++b) {
    require(p.query_lengths[b] >= 0 && p.key_lengths[b] >= 0, "a length is negative");
  }
  require(std::isfinite(p.scale), "scale must be finite");
  require(std::isfinite(p.softcap) && p.softcap >= 0, "softcap must be finite and at least 0");
  require(p.dropout_rate >= 0 && p.dropout_rate < 1, "dropout_rate must lie in [0, 1)");
  require(p.window_left.value_or(0) >= 0 && p.window_right.value_or(0) >= 0, "a window size is negative");
  require_floats(p.slopes, p.batch * p.heads, "slopes");
  require_floats(p.sinks, p.heads, "sinks");
  require_floats(p.q_descales, p.batch * p.kv_heads, "q_descales");
  require_floats(p.k_descales, p.batch * p.kv_heads, "k_descales");
  require_floats(p.v_descales, p.batch * p.kv_heads, "v_descales");
}

void require_bias(const Problem& p) {
  if (p.bias.empty()) return;
  const std::array<int64_t, 4> full = {p.batch, p.heads, *std::ranges::max_element(p.query_lengths),
                                       *std::ranges::max_element(p.key_lengths)};
  int64_t count = 1;
  for (int axis = 0; axis < 4; ++axis) {
    require(p.bias_shape[axis] == 1 || p.bias_shape[axis] == full[axis],
            "bias axis " + std::to_string(axis) + " must be 1 or " + std::to_string(full[axis]));
    count *= p.bias_shape[axis];
  }
  require_size(p.bias, count, "bias");
  require(p.bias_dtype == p.dtype || p.bias_dtype == Dtype::fp32, "bias must be in the input dtype or fp32");
}

Data checked_data(const Problem& p, bool backward) {
  require_parameters(p);
  require_bias(p);
  Data data;
  int64_t queries = 0, keys = 0;
  for (int64_t b = 0; b < p.batch; ++b) {
    data.first_query.push_back(queries);
    data.first_key.push_back(keys);
    queries += p.query_lengths[b];
    keys += p.key_lengths[b];
  }
  require_size(p.q, queries * p.heads * p.head_dim, "q");
  require_size(p.k, keys * p.kv_heads * p.head_dim, "k");
  require_size(p.v, keys * p.kv_heads * p.value_dim, "v");
  data.q = decode_finite(p.q, p.dtype, false, "q");
  data.k = decode_finite(p.k, p.dtype, false, "k");
  data.v = decode_finite(p.v, p.dtype, false, "v");
  data.bias = decode_finite(p.bias, p.bias_dtype, true, "bias");
  if (backward) {
    require_size(p.d_o, queries * p.heads * p.value_dim, "d_o");
    data.d_o = decode_finite(p.d_o, p.dtype, false, "d_o");
  }
  return data;
}

// ---- what each formula reads

// The kv head of query head h, by dealing out groups of H / Hk heads in order.
int64_t kv_head(const Problem& p, int64_t h) {
  int64_t kv = 0;
  for (int64_t first = p.heads / p.kv_heads; first <= h; first += p.heads / p.kv_heads) ++kv;
  return kv;
}

int64_t offset(const Problem& p, int64_t b) { return p.top_left ? 0 : p.key_lengths[b] - p.query_lengths[b]; }

int64_t bias_index(const Problem& p, int64_t b, int64_t h, int64_t i, int64_t j) {
  const std::array<int64_t, 4> at = {b, h, i, j};
  int64_t index = 0;
  for (int axis = 0; axis < 4; ++axis) {
    index = index * p.bias_shape[axis] + (p.bias_shape[axis] == 1 ? 0 : at[axis]);
  }
  return index;
}

Real descale(const Problem& p, const std::vector<float>& descales, int64_t b, int64_t h) {
  return descales.empty() ? Real(1) : Real(descales[b * p.kv_heads + kv_head(p, h)]);
}

// keep_ij: one Philox call serves the keys 2n, 2n + 1 of the rows r, r + 8 of a block of 16 rows.
bool keep(const Problem& p, int64_t b, int64_t h, int64_t i, int64_t j) {
  const int64_t block = i / 16, row = i % 16;
  const std::array<uint32_t, 4> words =
      philox4x32_10({uint32_t(j / 2), uint32_t(8 * block + row % 8), uint32_t(h), uint32_t(b)},
                    {uint32_t(p.dropout_seed), uint32_t(p.dropout_seed >> 32)});
  const uint32_t word = words[(row >= 8 ? 2 : 0) + j % 2];
  return word >= std::floor(double(p.dropout_rate) * 4294967296.0);
}

Real dot(const double* x, const double* y, int64_t n) {
  Real sum = 0;
  for (int64_t c = 0; c < n; ++c) sum += Real(x[c]) * y[c];
  return sum;
}

// ---- one row

struct Key {
  int64_t j;
  Real score;      // s
  Real cap_slope;  // ds1 / ds0
  Real weight;     // exp(s - peak), peak the largest score or sink of the row
  bool kept;
};

// Where row (b, h, i) and its entry's keys stand in the arrays.
struct Row {
  int64_t b, h, i;
  int64_t flat;   // row of q, o, l, d_o: (first_query + i) * H + h
  Real qk_scale;  // scale t_q t_k
  Real t_v;
  std::vector<Key> keys;  // the visible ones
  Real peak, total;       // L = peak + ln(total)
};

int64_t kv_row(const Problem& p, const Data& data, const Row& row, int64_t j) {
  return (data.first_key[row.b] + j) * p.kv_heads + kv_head(p, row.h);
}

Key make_key(const Problem& p, const Data& data, const Row& row, int64_t j) {
  Key key{j, 0, 1, 0, keep(p, row.b, row.h, row.i, j)};
  const double* q = &data.q[row.flat * p.head_dim];
  const double* k = &data.k[kv_row(p, data, row, j) * p.head_dim];
  key.score = row.qk_scale * dot(q, k, p.head_dim);
  if (p.softcap > 0) {
    const Real x = key.score / Real(p.softcap);
    key.score = Real(p.softcap) * tanh(x);
    const Real c = cosh(x);
    key.cap_slope = 1 / (c * c);  // 1 - tanh^2, which would cancel where tanh is near 1
  }
  if (!p.slopes.empty()) {
    const int64_t distance = row.i + offset(p, row.b) - j;
    key.score -= Real(p.slopes[row.b * p.heads + row.h]) * Real(distance < 0 ? -distance : distance);
  }
  if (!p.bias.empty()) key.score += data.bias[bias_index(p, row.b, row.h, row.i, j)];
  return key;
}

// The row's keys, and its softmax shifted by its peak: exp would overflow even MPFR's range for scores of 10^9.
Row make_row(const Problem& p, const Data& data, int64_t b, int64_t h, int64_t i) {
  Row row{b, h, i, (data.first_query[b] + i) * p.heads + h, 0, descale(p, p.v_descales, b, h), {}, 0, 0};
  row.qk_scale = Real(p.scale) * descale(p, p.q_descales, b, h) * descale(p, p.k_descales, b, h);
  for (int64_t j = 0; j < p.key_lengths[b]; ++j) {
    if (visible(p, b, h, i, j)) row.keys.push_back(make_key(p, data, row, j));
  }
  if (row.keys.empty()) return row;
  row.peak = p.sinks.empty() ? row.keys[0].score : Real(p.sinks[h]);
  for (const Key& key : row.keys) {
    if (key.score > row.peak) row.peak = key.score;
  }
  for (Key& key : row.keys) {
    key.weight = exp(key.score - row.peak);
    row.total += key.weight;
  }
  if (!p.sinks.empty()) row.total += exp(Real(p.sinks[h]) - row.peak);
  return row;
}

// O_i. The one division comes last, so that equal scores give a quotient of exact integers.
std::vector<Real> row_output(const Problem& p, const Data& data, const Row& row) {
  std::vector<Real> o(p.value_dim, Real(0));
  if (row.keys.empty()) return o;
  for (int64_t c = 0; c < p.value_dim; ++c) {
    for (const Key& key : row.keys) {
      if (key.kept) o[c] += key.weight * data.v[kv_row(p, data, row, key.j) * p.value_dim + c];
    }
    o[c] = row.t_v * o[c] / (row.total * (1 - Real(p.dropout_rate)));
  }
  return o;
}

Value row_lse(const Problem& p, const Row& row) {
  if (!row.keys.empty()) return to_value(row.peak + log(row.total));
  return p.sinks.empty() ? Value{.negative_infinity = true} : to_value(Real(p.sinks[row.h]));
}

struct Gradients {
  std::vector<Real> q, k, v, sink, bias;
};

void add_row_gradients(const Problem& p, const Data& data, const Row& row, const std::vector<Real>& o,
                       Gradients& gradients) {
  if (row.keys.empty()) return;
  const double* q = &data.q[row.flat * p.head_dim];
  const double* d_o = &data.d_o[row.flat * p.value_dim];
  Real delta = 0;  // D_i
  for (int64_t c = 0; c < p.value_dim; ++c) delta += d_o[c] * o[c];
  for (const Key& key : row.keys) {
    const int64_t kv = kv_row(p, data, row, key.j);
    const Real probability = key.weight / row.total;
    const Real z = key.kept ? 1 / (1 - Real(p.dropout_rate)) : Real(0);
    const Real g = row.t_v * dot(d_o, &data.v[kv * p.value_dim], p.value_dim);
    const Real d_score = probability * (z * g - delta);
    const Real d_product = row.qk_scale * d_score * key.cap_slope;
    for (int64_t c = 0; c < p.value_dim; ++c) {
      gradients.v[kv * p.value_dim + c] += row.t_v * probability * z * d_o[c];
    }
    for (int64_t c = 0; c < p.head_dim; ++c) {
      gradients.q[row.flat * p.head_dim + c] += d_product * data.k[kv * p.head_dim + c];
      gradients.k[kv * p.head_dim + c] += d_product * q[c];
    }
    if (!p.bias.empty()) gradients.bias[bias_index(p, row.b, row.h, row.i, key.j)] += d_score;
  }
  if (!p.sinks.empty()) gradients.sink[row.h] -= exp(Real(p.sinks[row.h]) - row.peak) / row.total * delta;
}

}  // namespace

Result forward_backward(const Problem& p, bool backward) {
  const Data data = checked_data(p, backward);
  Result result;
  result.o.resize(p.q.size() / p.head_dim * p.value_dim);
  result.l.resize(p.q.size() / p.head_dim);
  Gradients gradients;
  if (backward) {
    gradients.q.resize(p.q.size());
    gradients.k.resize(p.k.size());
    gradients.v.resize(p.v.size());
    gradients.sink.resize(p.sinks.size());
    gradients.bias.resize(p.bias.size());
  }
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t h = 0; h < p.heads; ++h) {
      for (int64_t i = 0; i < p.query_lengths[b]; ++i) {
        const Row row = make_row(p, data, b, h, i);
        const std::vector<Real> o = row_output(p, data, row);
        for (int64_t c = 0; c < p.value_dim; ++c) result.o[row.flat * p.value_dim + c] = to_value(o[c]);
        result.l[row.flat] = row_lse(p, row);
        if (backward) add_row_gradients(p, data, row, o, gradients);
      }
    }
  }
  result.dq = to_values(gradients.q);
  result.dk = to_values(gradients.k);
  result.dv = to_values(gradients.v);
  result.dsink = to_values(gradients.sink);
  result.dbias = to_values(gradients.bias);
  return result;
}

// Distances are compared, not positions: i + off + right may not fit an integer for a window as wide as one.
bool visible(const Problem& p, int64_t b, int64_t h, int64_t i, int64_t j) {
  const int64_t ahead = j - (i + offset(p, b));  // how far key j lies past the row's diagonal
  if (p.causal && ahead > 0) return false;
  if (p.window_left && -ahead > *p.window_left) return false;
  if (p.window_right && ahead > *p.window_right) return false;
  if (p.bias.empty()) return true;
  return decode(p.bias[bias_index(p, b, h, i, j)], p.bias_dtype) != -std::numeric_limits<double>::infinity();
}

// The codes of numbers of one sign are ordered as the numbers are, so the neighbours of |x| are found by bisection and
// the nearer one by comparison with their midpoint, which a double holds exactly (25 bits).
uint32_t correctly_rounded(const Value& value, Dtype dtype) {
  const auto [exponent_bits, fraction_bits, has_infinity] = layout(dtype);
  const uint32_t sign = 1u << (exponent_bits + fraction_bits);
  const uint32_t top = has_infinity ? (((1u << exponent_bits) - 1) << fraction_bits) - 1 : sign - 2;  // largest finite
  if (value.negative_infinity) {
    require(has_infinity, "-inf has no code in e4m3");
    return sign | (top + 1);
  }
  const bool negative = std::signbit(value.hi);
  const Value x = negative ? negate(value) : value;
  uint32_t below = 0, above = top + 1;  // decode(below) <= x < decode(above), with top + 1 standing for infinity
  while (above - below > 1) {
    const uint32_t middle = below + (above - below) / 2;
    (compare(x, decode(middle, dtype)) >= 0 ? below : above) = middle;
  }
  const double lower = decode(below, dtype);
  const double upper = below < top ? decode(above, dtype) : lower + (lower - decode(top - 1, dtype));
  const int side = compare(x, lower + (upper - lower) / 2);
  const bool up = side > 0 || (side == 0 && below % 2 == 1);
  const uint32_t code = up && (below < top || has_infinity) ? above : below;
  return negative ? sign | code : code;
}

double decode(uint32_t code, Dtype dtype) {
  const auto [exponent_bits, fraction_bits, has_infinity] = layout(dtype);
  const uint32_t fractions = 1u << fraction_bits, exponents = 1u << exponent_bits;
  require(uint64_t(code) < uint64_t(2) * exponents * fractions, "a code is wider than its format");
  const uint32_t fraction = code % fractions, exponent = code / fractions % exponents;
  const double sign = code / fractions / exponents == 0 ? 1 : -1;
  if (exponent == exponents - 1 && (has_infinity || fraction == fractions - 1)) {
    return has_infinity && fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                                         : std::numeric_limits<double>::quiet_NaN();
  }
  const int unit = 1 - (int(exponents) / 2 - 1) - fraction_bits;  // log2 of the smallest subnormal
  if (exponent == 0) return sign * std::ldexp(fraction, unit);
  return sign * std::ldexp(fractions + fraction, unit + int(exponent) - 1);
}

std::array<uint32_t, 4> philox4x32_10(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t(0xD2511F53) * counter[0];
    const uint64_t b = uint64_t(0xCD9E8D57) * counter[2];
    counter = {uint32_t(b >> 32) ^ counter[1] ^ key[0], uint32_t(b), uint32_t(a >> 32) ^ counter[3] ^ key[1],
               uint32_t(a)};
    key[0] += 0x9E3779B9;  // golden ratio
    key[1] += 0xBB67AE85;  // sqrt(3) - 1
  }
  return counter;
}

}  // namespace flashproof::slow
