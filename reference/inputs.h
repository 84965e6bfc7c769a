// The tensors of a case, logical and packed: entries of the batch concatenated by used length, no padding, no pages.
//
// Layout in memory (slots, strides, pages, red zones) is the runner's business; oracles and algorithms see these.
#pragma once
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "reference/case.h"
#include "reference/tokens.h"

namespace flashproof {

/// Row-major tensor of encoded numbers.
struct Tensor {
  DType dtype = DType::fp32;
  std::vector<int64_t> shape;
  std::vector<uint8_t> bytes;

  Tensor() = default;
  Tensor(DType dtype, std::vector<int64_t> shape);  ///< all bits zero
  int64_t size() const;                             ///< number of elements
  uint32_t bits(int64_t index) const {
    const int64_t width = format_of(dtype).bits / 8;
    const uint8_t* first = bytes.data() + index * width;
    uint32_t value = 0;
    // A copy of a size that the compiler knows is one load; this is the innermost read of every oracle.
    if (width == 4)
      std::memcpy(&value, first, 4);
    else if (width == 2)
      std::memcpy(&value, first, 2);
    else
      value = *first;
    return value;
  }
  void set_bits(int64_t index, uint32_t value);
  double at(int64_t index) const { return decode(dtype, bits(index)); }
  bool operator==(const Tensor&) const = default;
};

/// All elements decoded, in order.
std::vector<double> decoded(const Tensor&);

/// Where each batch entry's rows start in the packed tensors: q_begin has batch + 1 entries, Sq of entry b is the
/// difference.
struct Packing {
  std::vector<int64_t> q_begin, k_begin;
  int64_t seq_q(int64_t b) const { return q_begin[b + 1] - q_begin[b]; }
  int64_t seq_k(int64_t b) const { return k_begin[b + 1] - k_begin[b]; }
  int64_t total_q() const { return q_begin.back(); }
  int64_t total_k() const { return k_begin.back(); }
};
Packing packing_of(const Problem&);

struct Inputs {
  Problem problem;
  Packing packing;
  Tensor q;                                            ///< [total_q, H, d]
  Tensor k;                                            ///< [total_k, Hk, d]
  Tensor v;                                            ///< [total_k, Hk, dv]
  Tensor d_o;                                          ///< [total_q, H, dv]
  Tensor bias;                                         ///< [1|B, 1|H, 1|max Sq, 1|max Sk]; size 0 without bias
  std::vector<float> slopes;                           ///< [B, H] (per-head slopes repeated); empty without ALiBi
  std::vector<float> sinks;                            ///< [H]; empty without sink
  std::vector<float> q_descale, k_descale, v_descale;  ///< [B, Hk]; all 1 without descales
};

/// The data of a case. Throws UsageError for an illegal problem or data (bias +inf or NaN), UnavailableError for a
/// missing file. Large tensors are made on all cores (threads.h).
Inputs make_inputs(const Case&);

/// One operand's tokens: a TokenRecipe with its arrays.
struct TokenPlan {
  Recipe recipe;
  Operand operand = Operand::q;
  std::vector<ElementContext> contexts;
  std::vector<TokenPlace> tokens;
  std::vector<int64> heads, channels;
};
/// Fills the tensor with the plan's elements, bit for bit `token_element`'s. UnavailableError leaves it to the host.
using TokenMaker = std::function<void(const TokenPlan&, Tensor&)>;
/// make_inputs with q, k, v and dO, where they are large and not from a file, made by another processor than this host.
Inputs make_inputs(const Case&, const TokenMaker&);

struct Outputs {
  Tensor o;      ///< [total_q, H, dv], output_dtype
  Tensor lse;    ///< [total_q, H], fp32
  Tensor dq;     ///< [total_q, H, d]
  Tensor dk;     ///< [total_k, Hk, d]
  Tensor dv;     ///< [total_k, Hk, dv]
  Tensor dsink;  ///< [H], fp32; size 0 without sink
  Tensor dbias;  ///< shape of bias, fp32; size 0 without bias
};
/// Tensors of the right shapes, all bits zero; gradients have size 0 for a forward problem.
Outputs make_outputs(const Problem&);

enum class OutputId : int { o, lse, dq, dk, dv, dsink, dbias };
constexpr int output_count = 7;
const char* name_of(OutputId);  ///< "O", "L", "dQ", "dK", "dV", "dsink", "dbias"
const Tensor& tensor_of(const Outputs&, OutputId);
Tensor& tensor_of(Outputs&, OutputId);

/// Bias of (b, h, i, j) by the broadcast rules; 0 without bias. -infinity hides the key.
double bias_at(const Inputs&, int64_t b, int64_t h, int64_t i, int64_t j);
/// Whether row (b, h, i) sees key j: mask and bias.
bool sees(const Inputs&, int64_t b, int64_t h, int64_t i, int64_t j);
/// The dropout factor's keep decision (rule and counter in reference/philox.h); true without dropout.
bool keeps(const Problem&, int64_t b, int64_t h, int64_t i, int64_t j);

}  // namespace flashproof
