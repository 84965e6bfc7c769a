// Arithmetic to the chip's operations, and the run of FlashAttention 2 over them; see bits.h.
#include "oracle/bits.h"

#include <stdexcept>

#include "oracle/hardware_ops.h"
#include "reference/flash2.h"
#include "reference/threads.h"

namespace flashproof {
namespace {

constexpr float log2_e = 1.44269502f;

bool is_tensor_core(const Accumulation& sum) {
  return sum.kind == Accumulation::tensor_core || sum.kind == Accumulation::tensor_core_pair;
}

MatrixUnit unit_of(const Accumulation& sum, DType a, DType b) {
  return {a, b, sum.products, sum.align_bits, sum.keep_bits, sum.run};
}

/// Whether Hopper has an instruction of this arithmetic. Which products make a run is up to who fills the registers.
bool on_hopper(const MatrixUnit& unit) {
  for (const MatrixInstruction instruction : {MatrixInstruction::mma_sync, MatrixInstruction::wgmma}) {
    const MatrixUnit chip = matrix_unit(Architecture::sm_90, instruction, unit.a, unit.b);
    if (chip.products == unit.products && chip.align_bits == unit.align_bits && chip.keep_bits == unit.keep_bits &&
        (chip.run == 0) == (unit.run == 0))
      return true;
  }
  return false;
}

/// Scores stay <q, k> only where nothing is added to or done with them.
bool scale_may_be_in_exponent(const Problem& p) {
  return p.softcap == 0 && p.alibi == Alibi::none && !p.bias && !p.sink && !p.descale && scale_of(p) > 0;
}

/// Keys of a tile start an instruction and a row of fragments.
bool fits_instructions(const Problem& p, int64_t tile_n) { return tile_n % (is_fp8(p.dtype) ? 32 : 16) == 0; }

/// With rows of zeros up to a multiple of `tile` rows.
void fill_last_tile(Matrix<float>& a, int64_t tile) {
  a.rows = (a.rows + tile - 1) / tile * tile;
  a.data.resize(size_t(a.rows * a.columns));
}

/// The head with its factors as the kernel forms them. Its last tile of keys is whole: a key behind the end has weight
/// 2^-inf = 0, or NaN where the exponents of the row overflow.
Head<float> head_for(const Inputs& in, const Arithmetic& a, const HeadIndex& at) {
  Head<float> head = head_of<float>(in, at);
  set_factors(in, a, at, head.rule);
  for (Matrix<float>* operand : {&head.k, &head.v}) fill_last_tile(*operand, a.tile_n);
  head.k_t = transpose(head.k);
  return head;
}

void store_rows(const HeadIndex& at, const HeadOutputs<float>& head, Outputs& out) {
  for (int64_t i = 0; i < at.seq_q; ++i) {
    const int64_t row = at.query_row(i);
    for (int64_t c = 0; c < head.o.columns; ++c)
      out.o.set_bits(row * head.o.columns + c, encode(out.o.dtype, head.o.row(i)[c]));
    out.lse.set_bits(row, encode(DType::fp32, head.l[i]));
  }
}

}  // namespace

HardwareOps hardware_ops(const Problem& p, const Arithmetic& a) {
  HardwareOps ops;
  ops.scores = unit_of(a.scores, p.dtype, p.dtype);
  ops.values = unit_of(a.values, DType(a.p_format), p.dtype);
  ops.argument = a.argument;
  ops.exponent_factor = a.scaled == Tristate::no ? scale_of(p) * log2_e : log2_e;
  ops.score_unit = a.scaled == Tristate::no ? scale_of(p) : 1;
  if (p.softcap != 0) ops.softcap_factor = float(2 * 1.4426950408889634 / double(p.softcap));
  ops.p_format = DType(a.p_format);
  ops.p_scale_log2 = a.p_scale_log2;
  ops.output_format = output_dtype(p);
  return ops;
}

std::string unpredictable(const Problem& p, const Arithmetic& a) {
  if (p.dtype == DType::fp32) return "fp32 inputs have no tensor core here";
  const struct {
    const char* word;
    bool declared, modelled;
  } fields[] = {
      {"tile", a.tile_m != 0 && a.tile_n != 0, fits_instructions(p, a.tile_n)},
      {"order", a.order != TileOrder::unknown, a.order == TileOrder::ascending},
      {"chip", a.chip != Chip::unknown, a.chip == Chip::sm_90},
      {"p", a.p_format >= 0, a.p_format != int(DType::fp32)},
      {"scores", a.scores.kind != Accumulation::unknown,
       is_tensor_core(a.scores) && on_hopper(unit_of(a.scores, p.dtype, p.dtype))},
      {"values", a.values.kind != Accumulation::unknown,
       is_tensor_core(a.values) && on_hopper(unit_of(a.values, DType(a.p_format), p.dtype))},
      {"levels", a.two_level != Tristate::unknown, a.two_level == Tristate::no},
      {"exp", a.exponential != Exponential::unknown, a.exponential == Exponential::ex2_approx},
      {"arg", a.argument != Argument::unknown,
       a.argument == Argument::base2_fma || a.argument == Argument::base2_subtract},
      {"scaled", a.scaled != Tristate::unknown, a.scaled == Tristate::yes || scale_may_be_in_exponent(p)},
      {"tanh", p.softcap == 0 || a.tangent != Tangent::unknown, p.softcap == 0 || a.tangent == Tangent::accurate},
      {"s", a.score_format >= 0, a.score_format == int(DType::fp32)},
      {"prescaled", a.prescaled != Tristate::unknown, a.prescaled == Tristate::no},
      {"normalized", a.normalized != Normalization::unknown, a.normalized == Normalization::last},
      {"dropout", !p.dropout || a.dropout != DropoutFactor::unknown, !p.dropout || a.dropout == DropoutFactor::output},
      {"rowsum", a.row_sum_lanes != 0, a.row_sum_lanes == 4},
      {"owner", a.owner != RowSumOwner::unknown, true},
      {"splits", a.splits != 0, a.splits == 1},
      {"division", a.division != Division::unknown, a.division == Division::reciprocal},
      {"log", a.logarithm != Logarithm::unknown, true},
  };
  for (const auto& [word, declared, modelled] : fields)
    if (!declared) return "the arithmetic does not declare `" + std::string(word) + "=`";
  for (const auto& [word, declared, modelled] : fields)
    if (!modelled) return "the declared `" + std::string(word) + "=` has no model for this problem";
  return "";
}

Outputs predict(const Inputs& in, const Arithmetic& a, int threads) {
  const Problem& p = in.problem;
  if (const std::string reason = unpredictable(p, a); !reason.empty()) throw std::invalid_argument(reason);
  Problem forward = p;
  forward.direction = Direction::forward;
  Outputs out = make_outputs(forward);
  const HardwareOps ops = hardware_ops(p, a);
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t h = 0; h < p.heads; ++h) {
      const HeadIndex at = head_index(in, b, h);
      const Head<float> head = head_for(in, a, at);
      HeadOutputs<float> result(at.seq_q, p.value_dim);
      for_each_item((at.seq_q + a.tile_m - 1) / a.tile_m, threads, [&](int64_t tile) {
        attend_rows(ops, head, tile_at(tile * a.tile_m, a.tile_m, at.seq_q), a.tile_n, result);
      });
      store_rows(at, result, out);
    }
  return out;
}

}  // namespace flashproof
