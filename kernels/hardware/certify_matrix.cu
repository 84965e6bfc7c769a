// Matrix instructions on drawn operands (certify_data.h), in batches: operands are drawn into memory, the instruction
// makes its outputs, and one thread an output compares it with the model. The first outputs go to the host too, where
// multiply_add_tile must give the same bits.
//
// Three kernels, of which the one with the instruction alone is compiled for each: drawing and the model are large.
#include <algorithm>

#include "kernels/hardware/certify_data.h"
#include "kernels/hardware/certify_device.h"
#include "kernels/hardware/certify_mma.cuh"
#include "kernels/hardware/certify_wgmma.cuh"
#include "kernels/loaded_kernel.h"

namespace flashproof::certify_device {
namespace {

// ---- rules

/// A unit; for fp8 by way of fp16 how its two groups come together.
struct Rule {
  enum Groups { as_modelled, second_first, onto_accumulator } groups = as_modelled;
  MatrixUnit unit;
};

__device__ float by_rule(const Rule& rule, const uint32* a, const uint32* b, float c) {
  if (rule.groups == Rule::as_modelled) return fused_step(rule.unit, a, b, c);
  const int run = rule.unit.run;
  uint32 x[32], y[32];
  if (rule.groups == Rule::second_first) {
    for (int k = 0; k < 32; ++k) x[k] = a[k ^ run], y[k] = b[k ^ run];
    return fused_step(rule.unit, x, y, c);
  }
  for (int n = 0; n < 32; ++n) {
    const int k = product_at(rule.unit, n);
    x[n] = encode(DType::fp16, decode(rule.unit.a, a[k]));
    y[n] = encode(DType::fp16, decode(rule.unit.b, b[k]));
  }
  MatrixUnit fp16 = rule.unit;
  fp16.a = fp16.b = DType::fp16;
  fp16.run = 0;
  return fused_step(fp16, x + 16, y + 16, fused_step(fp16, x, y, c));
}

struct NamedRule {
  std::string name;
  Rule rule;
};

/// What the literature says otherwise, and the neighbours of the model.
std::vector<NamedRule> other_rules(const MatrixUnit& unit) {
  const auto with = [&](auto change) {
    Rule rule{Rule::as_modelled, unit};
    change(rule.unit);
    return rule;
  };
  std::vector<NamedRule> rules = {{"one alignment bit more", with([](MatrixUnit& u) { ++u.align_bits; })},
                                  {"one alignment bit less", with([](MatrixUnit& u) { --u.align_bits; })}};
  if (unit.run == 0) {
    rules.push_back({"E at least -126", with([](MatrixUnit& u) { u.least_exponent = -126; })});
    rules.push_back({"E of any size", with([](MatrixUnit& u) { u.least_exponent = -1000; })});
    return rules;
  }
  for (int run : {1, 2, 4, 8, 16}) {
    const Rule rule = with([run](MatrixUnit& u) { u.run = run; });
    const std::string name = "groups of alternating runs of " + std::to_string(run);
    if (run != unit.run) rules.push_back({name, rule});
    rules.push_back({name + ", the second first", {Rule::second_first, rule.unit}});
    rules.push_back({name + ", both onto the accumulator", {Rule::onto_accumulator, rule.unit}});
  }
  rules.push_back({"one step of fp8 with 13 bits", {Rule::as_modelled, {unit.a, unit.b, 32, 13, 13, 0}}});
  rules.push_back({"two steps of fp8 with 13 bits", {Rule::as_modelled, {unit.a, unit.b, 16, 13, 13, 0}}});
  return rules;
}

// ---- comparison

/// Operands of instructions first, first + 1, ... of the family.
__global__ void draw(Operands s, DType a, DType b, OperandFamily family, uint64 first, uint64 count) {
  const int lines = s.rows + columns, elements = lines * s.products + s.rows * columns;  // of an instruction
  for (uint64 i = blockIdx.x * uint64(blockDim.x) + threadIdx.x; i < count * elements;
       i += uint64(gridDim.x) * blockDim.x) {
    const uint64 n = i / elements;
    int at = int(i % elements);
    if (at < s.rows * s.products) {
      const Place place = {first + n, Operand::a, at / s.products, at % s.products};
      s.a[n * s.rows * s.products + at] = draw_operand(a, family, place, s.products);
    } else if (at < lines * s.products) {
      at -= s.rows * s.products;
      const Place place = {first + n, Operand::b, at / s.products, at % s.products};
      s.b[n * columns * s.products + at] = draw_operand(b, family, place, s.products);
    } else {
      at -= lines * s.products;
      s.c[n * s.rows * columns + at] = draw_accumulator(family, {first + n, Operand::c, at / columns, at % columns});
    }
  }
}

template <class Instruction>
__global__ void __launch_bounds__(Instruction::threads) carry_out_compiled(CarryOut work) {
  carry_out<Instruction>(work);
}

__global__ void compare(Operands s, Rule rule, uint64 count, Tally* tally) {
  for (uint64 i = blockIdx.x * uint64(blockDim.x) + threadIdx.x; i < count * s.rows * columns;
       i += uint64(gridDim.x) * blockDim.x) {
    const uint64 n = i / (s.rows * columns);
    const int r = int(i / columns % s.rows), k = int(i % columns);
    const float model = by_rule(rule, s.row(n, r), s.column(n, k), s.c[i]);
    if (__float_as_uint(s.d[i]) != __float_as_uint(model)) count_mismatch(tally, i);
  }
}

/// The code that carries an instruction out: the program's, or one compiled at run time.
struct Code {
  std::string assembler;
  const LaunchableKernel* run_time = nullptr;
};

template <class Instruction>
std::string name_of_instruction() {
  return matrix_models(Instruction::instruction, Instruction::FormatA::dtype,
                       Instruction::FormatB::dtype)[Instruction::place];
}

constexpr uint64 outputs_a_batch = 1ul << 21, batches_a_family = 16, outputs_on_host = 1ul << 15;

std::string bits_text(float x) { return hexadecimal(__builtin_bit_cast(uint32, x)); }

/// A batch of one instruction.
template <class Instruction>
class Batch {
 public:
  static constexpr int rows = Instruction::rows, products = Instruction::products, outputs = rows * columns;
  static constexpr uint64 count = outputs_a_batch / outputs;

  explicit Batch(const Chip& chip)
      : blocks_(16 * chip.multiprocessors),
        a_(count * rows * products),
        b_(count * columns * products),
        c_(count * outputs),
        d_(count * outputs) {}

  void run(OperandFamily family, uint64 number, const Code& code) {
    draw<<<blocks_, 256>>>(operands(), Instruction::FormatA::dtype, Instruction::FormatB::dtype, family, number * count,
                           count);
    const CarryOut work = {operands(), count};
    if (code.run_time)
      launch_kernel(*code.run_time, {unsigned(blocks_), 1, 1}, Instruction::threads, &work, nullptr);
    else
      carry_out_compiled<Instruction><<<blocks_, Instruction::threads>>>(work);
    finish(name_of_instruction<Instruction>());
  }

  Tally compare_with(const Rule& rule) {
    DeviceArray<Tally> tally(1);
    compare<<<blocks_, 256>>>(operands(), rule, count, tally.data());
    finish(name_of_instruction<Instruction>());
    return tally.read()[0];
  }

  /// Outputs of the first instructions for which multiply_add_tile gives other bits.
  uint64 mismatches_on_host(const MatrixUnit& unit) const {
    const std::vector<uint32> a_bits = a_.read(), b_bits = b_.read();
    const std::vector<float> c = c_.read(), d = d_.read();
    uint64 mismatches = 0;
    for (uint64 n = 0; n < outputs_on_host / outputs; ++n) {
      float a[rows * products], b[products * columns], sum[outputs];
      for (int i = 0; i < rows * products; ++i) a[i] = float(decode(unit.a, a_bits[n * rows * products + i]));
      for (int i = 0; i < columns * products; ++i)
        b[i % products * columns + i / products] = float(decode(unit.b, b_bits[n * columns * products + i]));
      std::copy_n(&c[n * outputs], outputs, sum);
      multiply_add_tile(unit, rows, columns, products, a, products, 1, b, columns, sum, columns);
      for (int i = 0; i < outputs; ++i)
        mismatches += __builtin_bit_cast(uint32, sum[i]) != __builtin_bit_cast(uint32, d[n * outputs + i]);
    }
    return mismatches;
  }

  /// Operands and both results of one output.
  std::string text_of(uint64 output, const MatrixUnit& unit) const {
    const std::vector<uint32> a = a_.read(), b = b_.read();
    const uint32* row = &a[output / columns * products];
    const uint32* column = &b[(output / outputs * columns + output % columns) * products];
    const float c = c_.read()[output], d = d_.read()[output];
    return "a" + elements_text(row) + "; b" + elements_text(column) + "; c " + bits_text(c) + ": GPU " + bits_text(d) +
           ", model " + bits_text(fused_step(unit, row, column, c));
  }

 private:
  Operands operands() { return {rows, products, a_.data(), b_.data(), c_.data(), d_.data()}; }
  static std::string elements_text(const uint32* bits) {
    std::string text;
    for (int k = 0; k < products; ++k) {
      text += ' ';
      text += hexadecimal(bits[k]).substr(products == 32 ? 8 : 6);
    }
    return text;
  }

  int blocks_;
  DeviceArray<uint32> a_, b_;
  DeviceArray<float> c_, d_;
};

template <class Instruction>
ModelCheck check_family(Batch<Instruction>& batch, const Code& code, const MatrixUnit& unit, OperandFamily family) {
  ModelCheck check;
  check.model = name_of_instruction<Instruction>(), check.data = name_of(family), check.assembler = code.assembler;
  check.sample = outputs_on_host;
  for (uint64 number = 0; number < batches_a_family; ++number) {
    batch.run(family, number, code);
    const Tally tally = batch.compare_with({Rule::as_modelled, unit});
    if (number == 0) check.host_mismatches = batch.mismatches_on_host(unit);
    if (tally.mismatches > 0 && check.mismatches == 0)
      check.counterexample = batch.text_of(~tally.first_complement, unit);
    check.inputs += outputs_a_batch;
    check.mismatches += tally.mismatches;
  }
  return check;
}

/// The other rules on one batch of each family.
template <class Instruction>
std::vector<Alternative> try_other_rules(Batch<Instruction>& batch, const Code& code, const MatrixUnit& unit) {
  std::vector<Alternative> alternatives;
  const std::vector<NamedRule> rules = other_rules(unit);
  for (const NamedRule& rule : rules)
    alternatives.push_back({name_of_instruction<Instruction>(), code.assembler, rule.name, 0, 0});
  for (int family = 0; family < operand_family_count; ++family) {
    batch.run(OperandFamily(family), 0, code);
    for (size_t n = 0; n < rules.size(); ++n) {
      alternatives[n].inputs += outputs_a_batch;
      alternatives[n].mismatches += batch.compare_with(rules[n].rule).mismatches;
    }
  }
  return alternatives;
}

struct Results {
  std::vector<ModelCheck> checks;
  std::vector<Alternative> alternatives;
};

template <class Instruction>
void check_families(const Chip& chip, const Code& code, const Progress& progress, const MatrixUnit& unit,
                    Results& results) {
  const std::string name = name_of_instruction<Instruction>() + " by " + code.assembler;
  Batch<Instruction> batch(chip);
  bool differs = false;
  for (int family = 0; family < operand_family_count; ++family) {
    progress(name + ", " + name_of(OperandFamily(family)));
    results.checks.push_back(check_family(batch, code, unit, OperandFamily(family)));
    differs = differs || results.checks.back().mismatches > 0;
  }
  if (!differs) return;
  progress(name + ", other rules");
  for (const Alternative& alternative : try_other_rules(batch, code, unit)) results.alternatives.push_back(alternative);
}

template <class Instruction>
ModelCheck skipped_check(const std::string& assembler, const std::string& reason) {
  ModelCheck check;
  check.model = name_of_instruction<Instruction>(), check.assembler = assembler, check.skipped = reason;
  return check;
}

/// The instruction by the compiler at run time, where there is one.
template <class A, class B>
void check_at_run_time(const Chip& chip, const Progress& progress, const MatrixUnit& unit, Results& results) {
  if (chip.run_time_assembler.empty()) return;
  LaunchableKernel kernel;
  try {
    kernel = load_kernel(compile_kernel(mma_sync_text(A::dtype, B::dtype, device_architecture())), 0);
  } catch (const std::runtime_error& error) {
    results.checks.push_back(skipped_check<MmaSync<A, B>>(chip.run_time_assembler, error.what()));
    return;
  }
  check_families<MmaSync<A, B>>(chip, {chip.run_time_assembler, &kernel}, progress, unit, results);
}

template <class Instruction>
void check_instruction(const Chip& chip, const Progress& progress, Results& results) {
  using A = typename Instruction::FormatA;
  using B = typename Instruction::FormatB;
  const MatrixUnit unit = matrix_unit(chip.architecture, Instruction::instruction, A::dtype, B::dtype);
  const bool wgmma = Instruction::instruction == MatrixInstruction::wgmma;
  const char* reason = unit.products == 0 ? "the chip has no such instruction"
                       : (wgmma && !chip.has_wgmma) || (Instruction::products == 32 && !chip.has_fp8)
                           ? "not in the machine code that this program has for the chip"
                           : "";
  if (*reason == 0)
    check_families<Instruction>(chip, {chip.assembler}, progress, unit, results);
  else
    results.checks.push_back(skipped_check<Instruction>(chip.assembler, reason));
  if constexpr (Instruction::instruction == MatrixInstruction::mma_sync && Instruction::products == 32)
    if (unit.products != 0) check_at_run_time<A, B>(chip, progress, unit, results);
}

// ---- chains over equal keys

template <class Instruction>
__global__ void __launch_bounds__(Instruction::threads) accumulate_equal_keys(int steps, float* sum) {
  __shared__ uint32 p[Instruction::rows * 32], v[columns * 32];
  for (int i = thread_index(); i < Instruction::rows * 32; i += Instruction::threads) p[i] = 0x78;  // 2^8
  for (int i = thread_index(); i < columns * 32; i += Instruction::threads) v[i] = 0x38;            // 1
  block_barrier();
  float c[4] = {};
  for (int step = 0; step < steps; ++step) Instruction::run(c, p, v);
  if (thread_index() == 0) *sum = c[0];
}

template <class Instruction>
void run_chain(const Chip& chip, const Progress& progress, std::vector<ChainPoint>& points) {
  const MatrixUnit unit = matrix_unit(chip.architecture, Instruction::instruction, DType::e4m3, DType::e4m3);
  for (int64 keys : {16384, 32768, 65536, 131072}) {
    progress(name_of_instruction<Instruction>() + ", " + std::to_string(keys) + " equal keys");
    const std::vector<float> p(keys, 0x1p8f), v(keys, 1);
    float predicted = 0;
    multiply_add_tile(unit, 1, 1, keys, p.data(), keys, 1, v.data(), 1, &predicted, 1);
    DeviceArray<float> sum(1);
    accumulate_equal_keys<Instruction><<<1, Instruction::threads>>>(int(keys / 32), sum.data());
    finish(name_of_instruction<Instruction>());
    const float right = 0x1p8f * float(keys);
    points.push_back({name_of_instruction<Instruction>(), keys, predicted / right, sum.read()[0] / right});
  }
}

}  // namespace

std::vector<ModelCheck> check_matrix(const Chip& chip, const Progress& progress,
                                     std::vector<Alternative>& alternatives) {
  Results results;
  check_instruction<MmaSync<Bf16, Bf16>>(chip, progress, results);
  check_instruction<MmaSync<Fp16, Fp16>>(chip, progress, results);
  check_instruction<MmaSync<E4m3, E4m3>>(chip, progress, results);
  check_instruction<MmaSync<E4m3, E5m2>>(chip, progress, results);
  check_instruction<MmaSync<E5m2, E4m3>>(chip, progress, results);
  check_instruction<MmaSync<E5m2, E5m2>>(chip, progress, results);
  check_instruction<Wgmma<Bf16, Bf16, false>>(chip, progress, results);
  check_instruction<Wgmma<Bf16, Bf16, true>>(chip, progress, results);
  check_instruction<Wgmma<Fp16, Fp16, false>>(chip, progress, results);
  check_instruction<Wgmma<Fp16, Fp16, true>>(chip, progress, results);
  check_instruction<Wgmma<E4m3, E4m3, false>>(chip, progress, results);
  check_instruction<Wgmma<E4m3, E4m3, true>>(chip, progress, results);
  check_instruction<Wgmma<E4m3, E5m2, false>>(chip, progress, results);
  check_instruction<Wgmma<E4m3, E5m2, true>>(chip, progress, results);
  check_instruction<Wgmma<E5m2, E4m3, false>>(chip, progress, results);
  check_instruction<Wgmma<E5m2, E4m3, true>>(chip, progress, results);
  check_instruction<Wgmma<E5m2, E5m2, false>>(chip, progress, results);
  check_instruction<Wgmma<E5m2, E5m2, true>>(chip, progress, results);
  alternatives = results.alternatives;
  return results.checks;
}

std::vector<ChainPoint> run_chains(const Chip& chip, const Progress& progress) {
  std::vector<ChainPoint> points;
  if (chip.has_wgmma) run_chain<Wgmma<E4m3, E4m3, false>>(chip, progress, points);
  if (chip.has_fp8 && chip.architecture != Architecture::sm_80) run_chain<MmaSync<E4m3, E4m3>>(chip, progress, points);
  return points;
}

}  // namespace flashproof::certify_device
