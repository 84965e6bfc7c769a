// Arithmetic: what a kernel computes with, as one plain struct - where it rounds, in which order it adds, which exp it
// uses.
//
// A kernel declares it, `oracle/bound` takes the worst case over every field left unknown, and a predictor of bits
// needs all known. Text form: the tokens named below, in any order; what is not written is unknown. The empty text is
// all unknown.
//   example  `tile=64x64 order=ascending scores=fp32 values=fp32 exp=exp2f p=bf16 rowsum=1 division=ieee ds=bf16`
#pragma once
#include <string>
#include <string_view>

#include "reference/formats.h"

namespace flashproof {

/// How a sum of products is accumulated.
struct Accumulation {
  enum Kind {
    unknown,   ///< the worst of those below
    fp32,      ///< fp32, round to nearest, one product a step (`fp32`); serial order
    fp32_any,  ///< fp32, round to nearest, any order of additions (`fp32-any`)
    /// `tc:K:F:keep`: K products and the accumulator aligned to the largest exponent, truncated to F fraction bits,
    /// summed exactly, truncated to `keep` fraction bits; `tc` = 16:25:23.
    tensor_core,
    /// `tc-pair:RUN`: fp8 by way of fp16. Of 32 products those with k / RUN even make a step of `tc` from zero, the
    /// others one on its result, which is added to the accumulator in fp32, to nearest.
    tensor_core_pair,
  };
  Kind kind = unknown;
  int products = 16, align_bits = 25, keep_bits = 23;
  int run = 0;  ///< of a pair: 2 as operands lie in registers, 8 where a fragment of P holds neighbouring keys
  bool operator==(const Accumulation&) const = default;
};

/// Which exponential, with its relative error for normal results.
enum class Exponential {
  unknown,     ///< the worst of those below
  ex2_approx,  ///< `ex2`: ex2.approx.ftz.f32, 2^-22.709 (its model, on all inputs)
  exp2f,       ///< `exp2f`: CUDA exp2f or a C library's, 2 ulp
  expf,        ///< `expf`: CUDA expf or a C library's, 2 ulp
  fast_expf,   ///< `__expf`: 2 + floor(|1.173 x|) ulp (CUDA C++ Programming Guide)
  rounded,     ///< `rounded`: correctly rounded
};

/// How the exponent's argument is formed from a score s and the row's reference m.
enum class Argument {
  unknown,
  base2_fma,       ///< `fma2`: fma(s, c, -fl(m c)), c = fl(scale log2 e), or fl(log2 e) where s is `scaled`; base 2
  base2_subtract,  ///< `sub2`: fl(fl(s - m) c), base 2
  base_e,          ///< `sub`: fl(s' - m'), s' = fl(s scale) already scaled, base e
};

/// Which hyperbolic tangent a softcap uses.
enum class Tangent {
  unknown,
  accurate,     ///< `tanh=accurate`: a library's tanhf, or cap (1 - 2 / (1 + exp(2 s / cap)))
  approximate,  ///< `tanh=approximate`: tanh.approx.f32, relative error 2^-11 (PTX ISA)
};

/// When P or O is divided by the row sum.
enum class Normalization {
  unknown,
  last,      ///< `normalized=no`: O once, after the last tile
  first,     ///< `normalized=yes`: P, before P v
  each_tile  ///< `normalized=each-tile`: O at each tile by the row sum so far, times it at the next (FlashAttention 1)
};

/// What dropout's 1 / (1 - rate) multiplies.
enum class DropoutFactor {
  unknown,
  weights,  ///< `dropout=weights`: P, before it is rounded
  output    ///< `dropout=output`: O
};

enum class TileOrder { unknown, ascending, descending };
enum class Tristate { unknown, no, yes };

/// What O is multiplied with at the end, for the row sum l and the value factor g = t_v / (1 - rate).
enum class Division {
  unknown,
  ieee,         ///< `division=ieee`: O / l, or O times fl(1 / l)
  approximate,  ///< `division=approximate`: rcp.approx, 2^-23, then a product
  reciprocal    ///< `division=reciprocal`: fl(O fl(fl(1 / l) g)), 1 / l to nearest
};

/// Which partial sum of a row key j of a tile belongs to, and how they are added up.
enum class RowSumOwner {
  unknown,
  m16n8  ///< `owner=m16n8`: lane (j mod 8) / 2, as an accumulator fragment lies; at the end (l0 + l2) + (l1 + l3)
};

/// Which logarithm L = m + ln l takes.
enum class Logarithm {
  unknown,
  polynomial  ///< `log=polynomial`: kernels/hardware/natural_log.h; L = fma(m, scale, ln l), scale 1 if `scaled=yes`
};

/// Whose tensor core and ex2 it is, as kernels/hardware models them; the bounds do not depend on it.
enum class Chip { unknown, sm_80, sm_89, sm_90 };

struct Arithmetic {
  int tile_m = 0, tile_n = 0;            ///< `tile=MxN` queries and keys a tile; 0 unknown (worst case: one key a tile)
  TileOrder order = TileOrder::unknown;  ///< `order=ascending|descending`
  Accumulation scores;                   ///< `scores=` q.k (and dO.v)
  Accumulation values;                   ///< `values=` P v (and the backward's outer sums)
  Tristate two_level = Tristate::unknown;  ///< `levels=1|2`: 2 = each tile's P v from zero, then an fp32 addition
  Exponential exponential = Exponential::unknown;  ///< `exp=`
  Argument argument = Argument::unknown;           ///< `arg=fma2|sub2|sub`
  Tristate scaled = Tristate::unknown;     ///< `scaled=no|yes`: scores are times scale, rounded; no: scale is in c
  Tangent tangent = Tangent::unknown;      ///< `tanh=accurate|approximate`
  int score_format = -1;                   ///< `s=fp32|bf16|fp16`: format scores are stored in (DType); -1 unknown
  Tristate prescaled = Tristate::unknown;  ///< `prescaled=no|yes`: q times scale rounded to the input dtype before q.k
  int p_format = -1;     ///< `p=fp32|bf16|fp16|e4m3|e5m2`: format P is rounded to before P v; -1 unknown
  int p_scale_log2 = 0;  ///< `pscale=8`: P times 2^8 (fp8)
  Normalization normalized = Normalization::unknown;  ///< `normalized=no|yes|each-tile`
  DropoutFactor dropout = DropoutFactor::unknown;     ///< `dropout=weights|output`
  int row_sum_lanes = 0;                     ///< `rowsum=1|4|...`: partial sums a row, added serially each; 0 unknown
  RowSumOwner owner = RowSumOwner::unknown;  ///< `owner=m16n8`
  int splits = 0;  ///< `splits=1|2|...`: at most so many parts of the keys, each with its own O and L
                   ///< in fp32, combined by exp(L_part - L); 1: not split, 0 unknown
  Division division = Division::unknown;         ///< `division=ieee|approximate|reciprocal`
  Logarithm logarithm = Logarithm::unknown;      ///< `log=polynomial`
  Chip chip = Chip::unknown;                     ///< `chip=sm_80|sm_89|sm_90`
  int ds_format = -1;                            ///< `ds=`: format dS (and P in the backward) is rounded to; -1 unknown
  Tristate d_from_stored_o = Tristate::unknown;  ///< `d=rounded|exact`: yes = D_i is taken from O as stored, rounded
  bool operator==(const Arithmetic&) const = default;
};

std::string print(const Arithmetic&);
/// Throws UsageError naming the wrong token.
Arithmetic parse_arithmetic(std::string_view text);

}  // namespace flashproof
