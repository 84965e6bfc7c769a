// See slow_problem.h.
#include "oracle/slow_problem.h"

#include <cmath>

namespace flashproof {
namespace {

slow::Dtype dtype_of(DType dtype) {
  switch (dtype) {
    case DType::fp32:
      return slow::Dtype::fp32;
    case DType::bf16:
      return slow::Dtype::bf16;
    case DType::fp16:
      return slow::Dtype::fp16;
    case DType::e4m3:
      return slow::Dtype::e4m3;
    case DType::e5m2:
      return slow::Dtype::e5m2;
  }
  return slow::Dtype::fp32;
}

std::vector<uint32_t> bits_of(const Tensor& tensor) {
  std::vector<uint32_t> bits(size_t(tensor.size()));
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = tensor.bits(int64_t(i));
  return bits;
}

/// The sign of x - (hi + lo), exactly, for the double hi nearest to hi + lo. Rounding to nearest is monotonic: as long
/// as the nearest doubles differ they decide, and then what is left of both.
int compare(const slow::Value& x, double hi, double lo) {
  if (x.hi != hi) return x.hi < hi ? -1 : 1;
  if (x.lo != lo) return x.lo < lo ? -1 : 1;
  return x.rest_sign;
}

/// a + b - fl(a + b), exactly (Knuth, TAOCP 2, section 4.2.2, theorem B).
double sum_error(double a, double b) {
  const double sum = a + b, b_part = sum - a;
  return (a - (sum - b_part)) + (b - b_part);
}

}  // namespace

slow::Problem slow_problem(const Inputs& in) {
  const Problem& p = in.problem;
  slow::Problem s;
  s.dtype = dtype_of(p.dtype);
  s.batch = p.batch, s.heads = p.heads, s.kv_heads = p.kv_heads;
  s.head_dim = p.head_dim, s.value_dim = p.value_dim;
  for (int64_t b = 0; b < p.batch; ++b) {
    s.query_lengths.push_back(in.packing.seq_q(b));
    s.key_lengths.push_back(in.packing.seq_k(b));
  }
  s.scale = scale_of(p), s.softcap = p.softcap;
  s.causal = p.mask.causal, s.top_left = p.mask.top_left;
  if (p.mask.window_left != open_window) s.window_left = p.mask.window_left;
  if (p.mask.window_right != open_window) s.window_right = p.mask.window_right;
  s.slopes = in.slopes, s.sinks = in.sinks;
  if (p.dropout) s.dropout_rate = p.dropout->rate, s.dropout_seed = p.dropout->seed;
  s.q_descales = in.q_descale, s.k_descales = in.k_descale, s.v_descales = in.v_descale;
  if (p.bias) {
    for (size_t axis = 0; axis < 4; ++axis) s.bias_shape[axis] = in.bias.shape[axis];
    s.bias_dtype = dtype_of(in.bias.dtype);
    s.bias = bits_of(in.bias);
  }
  s.q = bits_of(in.q), s.k = bits_of(in.k), s.v = bits_of(in.v);
  if (has_backward(p)) s.d_o = bits_of(in.d_o);
  return s;
}

const std::vector<slow::Value>& values_of(const slow::Result& result, OutputId id) {
  switch (id) {
    case OutputId::o:
      return result.o;
    case OutputId::lse:
      return result.l;
    case OutputId::dq:
      return result.dq;
    case OutputId::dk:
      return result.dk;
    case OutputId::dv:
      return result.dv;
    case OutputId::dsink:
      return result.dsink;
    case OutputId::dbias:
      return result.dbias;
  }
  return result.o;
}

bool encloses(double mid, double radius, const slow::Value& x) {
  if (std::isnan(mid) || std::isnan(radius)) return false;
  if (std::isinf(mid) || x.negative_infinity) return mid == -INFINITY && x.negative_infinity;
  if (std::isinf(radius)) return true;
  return compare(x, mid - radius, sum_error(mid, -radius)) >= 0 &&
         compare(x, mid + radius, sum_error(mid, radius)) <= 0;
}

}  // namespace flashproof
