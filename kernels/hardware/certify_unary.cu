// Unary functions on every input: the instruction and its model in one thread, compared there; on random numbers the
// arithmetic that kernels take to be IEEE 754's, and on every input the logarithm, compared on the host.
#include <cmath>
#include <mutex>

#include "kernels/hardware/certify_device.h"
#include "kernels/hardware/convert.h"
#include "kernels/hardware/ex2.h"
#include "kernels/hardware/natural_log.h"
#include "kernels/ptx.cuh"
#include "reference/philox.h"
#include "reference/threads.h"

namespace flashproof::certify_device {
namespace {

enum class Function { ex2, to_bf16, to_fp16, to_e4m3, to_e5m2 };

/// A conversion takes a pair: x and -x.
template <class To>
FLASHPROOF_HD uint32 converted_pair(float x) {
  const int bits = format_of(To::dtype).bits;
  return convert_rn(To::dtype, x, bits == 8) | convert_rn(To::dtype, -x, bits == 8) << bits;
}

FLASHPROOF_HD uint32 by_model(Function function, float x) {
  switch (function) {
    case Function::ex2:
      return __builtin_bit_cast(uint32, ex2_approx(x));
    case Function::to_bf16:
      return converted_pair<Bf16>(x);
    case Function::to_fp16:
      return converted_pair<Fp16>(x);
    case Function::to_e4m3:
      return converted_pair<E4m3>(x);
    case Function::to_e5m2:
      return converted_pair<E5m2>(x);
  }
  return 0;
}

template <Function function>
__device__ uint32 by_machine(float x) {
  if constexpr (function == Function::ex2) return __float_as_uint(ex2(x));
  if constexpr (function == Function::to_bf16) return pack_pair<Bf16>(x, -x);
  if constexpr (function == Function::to_fp16) return pack_pair<Fp16>(x, -x);
#if __CUDA_ARCH__ >= 890
  if constexpr (function == Function::to_e4m3) return pack_pair<E4m3>(x, -x);
  if constexpr (function == Function::to_e5m2) return pack_pair<E5m2>(x, -x);
#endif
  return 0;
}

/// Every so many inputs one result goes to the host; coprime to powers of two, so that all bits vary.
constexpr uint64 sample_stride = 257, all_inputs = 1ul << 32;
constexpr uint64 sample_size = (all_inputs - 1) / sample_stride + 1;

template <Function function>
__global__ void compare_function(Tally* tally, uint32* sample) {
  for (uint64 input = blockIdx.x * uint64(blockDim.x) + threadIdx.x; input < all_inputs;
       input += uint64(gridDim.x) * blockDim.x) {
    const float x = __uint_as_float(uint32(input));
    const uint32 result = by_machine<function>(x);
    if (result != by_model(function, x)) count_mismatch(tally, input);
    if (input % sample_stride == 0) sample[input / sample_stride] = result;
  }
}

template <Function function>
__global__ void evaluate(uint32 bits, uint32* result) {
  *result = by_machine<function>(__uint_as_float(bits));
}

template <Function function>
ModelCheck check_function(const Chip& chip, const Progress& progress, const std::string& name, bool needs_fp8) {
  ModelCheck check;
  check.model = name, check.data = "all 2^32 inputs", check.assembler = chip.assembler;
  if (needs_fp8 && !chip.has_fp8) {
    check.skipped = "the instruction wants sm_89, and machine code or PTX for it";
    return check;
  }
  progress(name);
  DeviceArray<Tally> tally(1);
  DeviceArray<uint32> sample(sample_size);
  compare_function<function><<<16 * chip.multiprocessors, 256>>>(tally.data(), sample.data());
  finish(name);
  const Tally found = tally.read()[0];
  check.inputs = all_inputs;
  check.mismatches = found.mismatches;
  const std::vector<uint32> results = sample.read();
  check.sample = results.size();
  for (uint64 n = 0; n < results.size(); ++n)
    check.host_mismatches += results[n] != by_model(function, __builtin_bit_cast(float, uint32(n * sample_stride)));
  if (found.mismatches > 0) {
    const uint32 input = uint32(~found.first_complement);
    DeviceArray<uint32> result(1);
    evaluate<function><<<1, 1>>>(input, result.data());
    finish(name);
    check.counterexample = "x " + hexadecimal(input) + ": GPU " + hexadecimal(result.read()[0]) + ", model " +
                           hexadecimal(by_model(function, __builtin_bit_cast(float, input)));
  }
  return check;
}

// ---- arithmetic

enum class Operation : int { add, multiply, fused, divide, maximum };
constexpr int operation_count = 5;  // in the order of arithmetic_models
struct Arguments {
  float x, y, z;
};

/// Any bits, or (every other) numbers within 16 binades of 1, so that sums meet.
FLASHPROOF_HD Arguments arguments_of(uint64 n) {
  Philox w = philox4x32_10({uint32(n), uint32(n >> 32), 0, 0}, 0x61726974u, 0);
  if (w.word[3] % 2 == 0)
    for (int i = 0; i < 3; ++i) w.word[i] = (w.word[i] & 0x807fffffu) | (111 + (w.word[i] >> 23) % 32) << 23;
  return {__builtin_bit_cast(float, w.word[0]), __builtin_bit_cast(float, w.word[1]),
          __builtin_bit_cast(float, w.word[2])};
}

__global__ void compute(Operation operation, uint64 count, uint32* results) {
  for (uint64 n = blockIdx.x * uint64(blockDim.x) + threadIdx.x; n < count; n += uint64(gridDim.x) * blockDim.x) {
    const Arguments a = arguments_of(n);
    float result = 0;
    switch (operation) {
      case Operation::add:
        result = a.x + a.y;
        break;
      case Operation::multiply:
        result = a.x * a.y;
        break;
      case Operation::fused:
        result = fused(a.x, a.y, a.z);
        break;
      case Operation::divide:
        result = divide(a.x, a.y);
        break;
      case Operation::maximum:
        result = maximum(a.x, a.y);
        break;
    }
    results[n] = __float_as_uint(result);
  }
}

/// IEEE 754 on the host; the maximum of a number and NaN is the number, of zeros +0 where one is; every NaN is
/// 0x7fffffff.
uint32 expected(Operation operation, const Arguments& a) {
  float result = 0;
  switch (operation) {
    case Operation::add:
      result = a.x + a.y;
      break;
    case Operation::multiply:
      result = a.x * a.y;
      break;
    case Operation::fused:
      result = std::fma(a.x, a.y, a.z);
      break;
    case Operation::divide:
      result = a.x / a.y;
      break;
    case Operation::maximum:
      if (a.x != a.x || a.y != a.y)
        result = a.x != a.x ? a.y : a.x;
      else
        result = a.x > a.y || (a.x == a.y && !std::signbit(a.x)) ? a.x : a.y;
      break;
  }
  return result != result ? 0x7fffffffu : __builtin_bit_cast(uint32, result);
}

ModelCheck check_operation(const Chip& chip, const Progress& progress, Operation operation) {
  const std::string name = arithmetic_models[int(operation)];
  progress(name);
  constexpr uint64 count = 1ul << 22;
  DeviceArray<uint32> results(count);
  compute<<<16 * chip.multiprocessors, 256>>>(operation, count, results.data());
  finish(name);
  ModelCheck check;
  check.model = name, check.data = "random numbers", check.assembler = chip.assembler, check.sample = count;
  const std::vector<uint32> found = results.read();
  for (uint64 n = 0; n < count; ++n) {
    const Arguments a = arguments_of(n);
    if (found[n] == expected(operation, a)) continue;
    if (check.host_mismatches++ == 0)
      check.counterexample = "x " + hexadecimal(__builtin_bit_cast(uint32, a.x)) + " y " +
                             hexadecimal(__builtin_bit_cast(uint32, a.y)) + " z " +
                             hexadecimal(__builtin_bit_cast(uint32, a.z)) + ": GPU " + hexadecimal(found[n]) +
                             ", host " + hexadecimal(expected(operation, a));
  }
  return check;
}

// ---- the logarithm: one source for both, so the host's is what to compare with

constexpr uint64 logarithms_a_chunk = 1ul << 26, logarithms_an_item = 1ul << 20;

__global__ void take_logarithms(uint32 first, uint32* results) {
  for (uint64 n = blockIdx.x * uint64(blockDim.x) + threadIdx.x; n < logarithms_a_chunk;
       n += uint64(gridDim.x) * blockDim.x)
    results[n] = __float_as_uint(natural_log(__uint_as_float(first + uint32(n))));
}

ModelCheck check_natural_log(const Chip& chip, const Progress& progress) {
  progress(natural_log_model);
  ModelCheck check;
  check.model = natural_log_model, check.data = "all 2^32 inputs", check.assembler = chip.assembler;
  DeviceArray<uint32> results(logarithms_a_chunk);
  std::mutex mutex;
  uint64 least = all_inputs;
  const auto count = [&](uint64 input, uint32 result, uint32 expected) {
    const std::lock_guard lock(mutex);
    ++check.host_mismatches;
    if (input > least) return;
    least = input;
    check.counterexample =
        "x " + hexadecimal(uint32(input)) + ": GPU " + hexadecimal(result) + ", host " + hexadecimal(expected);
  };
  for (uint64 first = 0; first < all_inputs; first += logarithms_a_chunk) {
    take_logarithms<<<16 * chip.multiprocessors, 256>>>(uint32(first), results.data());
    finish(natural_log_model);
    const std::vector<uint32> found = results.read();
    for_each_item(logarithms_a_chunk / logarithms_an_item, 0, [&](int64 item) {
      for (uint64 n = item * logarithms_an_item; n < (item + 1) * logarithms_an_item; ++n) {
        const uint32 expected = __builtin_bit_cast(uint32, natural_log(__builtin_bit_cast(float, uint32(first + n))));
        if (found[n] != expected) count(first + n, found[n], expected);
      }
    });
  }
  check.sample = all_inputs;
  return check;
}

}  // namespace

std::vector<ModelCheck> check_unary(const Chip& chip, const Progress& progress) {
  return {check_function<Function::ex2>(chip, progress, ex2_model, false),
          check_function<Function::to_bf16>(chip, progress, conversion_model(DType::bf16), false),
          check_function<Function::to_fp16>(chip, progress, conversion_model(DType::fp16), false),
          check_function<Function::to_e4m3>(chip, progress, conversion_model(DType::e4m3), true),
          check_function<Function::to_e5m2>(chip, progress, conversion_model(DType::e5m2), true)};
}

std::vector<ModelCheck> check_arithmetic(const Chip& chip, const Progress& progress) {
  std::vector<ModelCheck> checks;
  for (int n = 0; n < operation_count; ++n) checks.push_back(check_operation(chip, progress, Operation(n)));
  checks.push_back(check_natural_log(chip, progress));
  return checks;
}

}  // namespace flashproof::certify_device
