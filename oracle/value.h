// The exact value of every output of attention, with a radius: O, L, dQ, dK, dV, dsink, dbias.
//
// Three strengths, escalated by need (Ziv's strategy): certified double (one pass, running or a-priori error bound, own
// exp and log), MPFR at 128 bits with a running bound, MPFI intervals at rising precision up to 4096 bits. An enclosure
// [mid - radius, mid + radius] always contains the exact value of DESIGN's formulas on the encoded inputs.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "reference/inputs.h"

namespace flashproof {

/// Rows to evaluate: flat row numbers of [total_q, H] (O, L, dQ) and of [total_k, Hk] (dK, dV), ascending. `all`
/// overrides the lists.
struct Sample {
  bool all = true;
  std::vector<int64_t> query_rows, key_rows;
};
/// All rows while the work of value_double (multiply-adds) is at most `budget`; else first and last rows, tile edges,
/// `extra` rows, and random ones by seed until the budget (half of it with a backward) is spent (first, last and extra
/// rows in any case). With a backward, keys of one kv head, chosen by seed, take the other half: none where its forward
/// alone, which each of them needs, costs more.
Sample sample_rows(const Problem&, double budget, int64_t tile_m, int64_t tile_n,
                   const std::vector<int64_t>& extra_query_rows, uint64_t seed);

/// Values of one output tensor, flat like the tensor; elements outside the sample have known == 0.
struct OutputValues {
  std::vector<double> mid, radius;
  std::vector<double> condition;  ///< the sum of magnitudes the value is made of, see below
  std::vector<uint8_t> known;
};

struct Values {
  OutputValues output[output_count];  ///< indexed by OutputId; empty vectors where not asked for
  const OutputValues& operator[](OutputId id) const { return output[int(id)]; }
  OutputValues& operator[](OutputId id) { return output[int(id)]; }
};

/// Rows done of all rows (query rows, then keys) of the problem's work; called now and then by the calling thread.
using Progress = std::function<void(int64_t done, int64_t all)>;

/// First strength, on `threads` cores (0: all); no bit depends on their number.
///
/// condition, with c the channel:  O: t_v sum_j p z |v_jc|.  L: |m| + |L - m|, m the largest score of the row.  With
/// S_ij = p (z |g| + sum_c |dO_ic O_ic|) as the size of dS_ij:  dQ: |scale| t sum_j S slope |k_jc|, dK: |scale| t sum_i
/// S slope |q_ic|, slope = dS0 / dS;  dV: t_v sum_i p z |dO_ic|;  dsink: sum of exp(sink - L) sum_c |dO O|;  dbias: sum
/// of S.
///
/// A row that sees no key: O = 0 and L = sink or -infinity, radius 0; so is a gradient that nothing adds to. Elements
/// that a non-finite input reaches (oracle/nonfinite.h, which also says what `bears_hidden` is): mid NaN and radius 0
/// where the result must be NaN, unknown where it is not judged. radius is infinity where double cannot tell (scores
/// beyond about 2^38). dsink and dbias sum over all rows: they are known only when the sample is all of them.
Values value_double(const Inputs&, const Sample&, int threads = 0, bool bears_hidden = false,
                    const Progress& progress = {});

enum class Strength { certified_double, mpfr, interval };

struct Enclosure {
  double mid = 0, radius = 0;  ///< radius covers the rounding of mid too
  Strength strength = Strength::certified_double;
};
/// Enclosure of one element with radius at most `wanted` (absolute) where 4096 bits and a mid in double allow. This and
/// the functions below leave out what is hidden, finite or not; they throw std::runtime_error for an element that an
/// infinity reaches, and give NaN where the result must be NaN.
Enclosure enclose(const Inputs&, OutputId, int64_t index, double wanted);

struct Rounded {
  uint32_t bits = 0;       ///< the exact value rounded to the format
  uint32_t other = 0;      ///< a tie that could not be excluded: the other neighbour, else == bits
  bool undecided = false;  ///< 4096 bits and the exact tie tests left two neighbours
  Strength strength = Strength::certified_double;
};
/// Correct rounding of one element to `dtype` (ties of O and L: value_tie.h).
Rounded correctly_rounded(const Inputs&, OutputId, int64_t index, DType dtype);
/// The same for all of O (in output_dtype) and L (fp32): what a backward in mode `backward_exact` reads. NaN where not
/// judged.
void correctly_rounded_forward(const Inputs&, Tensor& o, Tensor& lse);

/// The value to 128 bits as hexadecimal ("0xc.8p+0", as strtod reads it), for dumps that any program can read; "-inf",
/// "nan"; "0x0p+0" where 4096 bits do not tell it from 0.
std::string value_hex128(const Inputs&, OutputId, int64_t index);

}  // namespace flashproof
