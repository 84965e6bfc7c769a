// One call of a kernel, as flashproof_kernel.h states it, on the buffers of memory_plan.h.
#include "fuzz/call_kernel.h"

#include <array>
#include <cfenv>
#include <chrono>
#include <cmath>
#include <optional>
#include <tuple>
#include <utility>

#include "fuzz/device_memory.h"
#include "fuzz/memory_plan.h"
#include "fuzz/runner.h"
#include "oracle/gpu/tokens.h"
#include "oracle/value.h"

namespace flashproof {
namespace {

constexpr size_t message_bytes = 1024;

/// Enters the kernel's code and keeps what it says.
struct Caller {
  const LoadedKernel& kernel;
  const std::function<void(bool)>& inside;
  CallOutcome outcome = {};

  /// False when the kernel rejects, fails, throws or loses the device; the outcome says which. The floating-point
  /// environment is restored: a kernel that changes rounding or flushing must not change what is computed after it.
  template <class Code>
  bool call(const Code& code) {
    RunResult& result = outcome.result;
    std::array<char, message_bytes> message{};
    std::string thrown, device_error;
    int status = FLASHPROOF_ERROR;
    std::fenv_t environment;
    std::fegetenv(&environment);
    inside(true);
    const auto start = std::chrono::steady_clock::now();
    try {
      status = code(message.data(), message.size() - 1);
    } catch (const std::exception& error) {
      thrown = std::string("threw an exception: ") + error.what();
    } catch (...) {
      thrown = "threw an exception";
    }
    device_error = synchronize(flashproof_memory(kernel.table->memory));
    result.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    inside(false);
    std::fesetenv(&environment);

    if (!device_error.empty()) {
      outcome.device_lost = true;
      result.status = RunStatus::crash;
      result.message = "crashed: " + device_error;
    } else if (!thrown.empty()) {
      result.status = RunStatus::error;
      result.message = thrown;
    } else if (status != FLASHPROOF_OK) {
      result.status = status == FLASHPROOF_REJECTED ? RunStatus::rejected : RunStatus::error;
      result.message = message.data();
      if (status != FLASHPROOF_REJECTED && status != FLASHPROOF_ERROR)
        result.message =
            "returned status " + std::to_string(status) + ", which the ABI does not have; " + result.message;
    }
    return result.status == RunStatus::ok;
  }
};

/// The data of a case, and its exact O and L once a backward alone has asked for them.
struct CaseData {
  Case c;
  Scaling scaling;
  Inputs in;
  std::optional<std::pair<Tensor, Tensor>> exact_forward;
};

/// Checks run one case several times over, and making its data costs more than running a kernel of ours: the last
/// case's are kept. Where the kernel runs on the GPU, that makes the large tensors.
CaseData& data_of(const LoadedKernel& kernel, const Run& run) {
  static thread_local std::optional<CaseData> last;
  if (!last || !(last->c == run.c && last->scaling == run.scaling))
    last = CaseData{run.c,
                    run.scaling,
                    make_inputs(run, kernel.table->memory == FLASHPROOF_CUDA ? tokens_by_gpu() : TokenMaker{}),
                    {}};
  return *last;
}

/// The exact O and L, correctly rounded, in the kernel's conventions.
void exact_forward(CaseData& data, const MemoryPlan& plan, Tensor& o, Tensor& lse) {
  if (!data.exact_forward) {
    correctly_rounded_forward(data.in, o, lse);
    data.exact_forward.emplace(o, lse);
  }
  std::tie(o, lse) = *data.exact_forward;
  const flashproof_conventions& conventions = plan.conventions;
  for (int64_t row = 0; row < lse.size(); ++row) {
    if (plan.row_without_keys[row]) {
      if (conventions.empty_lse == FLASHPROOF_EMPTY_LSE_PLUS_INFINITY) lse.set_bits(row, infinity_bits(DType::fp32));
      if (conventions.empty_lse == FLASHPROOF_EMPTY_LSE_ZERO) lse.set_bits(row, 0);
    } else if (conventions.lse_base == FLASHPROOF_LSE_BASE_2 && std::isfinite(lse.at(row))) {
      constexpr double log2_e = 0x1.71547652b82fep+0;
      const Enclosure exact = enclose(data.in, OutputId::lse, row, ulp(DType::fp32, lse.at(row)) * 0x1p-20);
      lse.set_bits(row, encode(DType::fp32, exact.mid * log2_e));
    }
  }
}

}  // namespace

CallOutcome call_kernel(const LoadedKernel& kernel, const Run& run, const std::string& config,
                        const std::function<void(bool)>& inside) {
  require_memory_for(run.c.problem);  // in a worker, its limit
  CaseData& data = data_of(kernel, run);
  const Problem& p = run.c.problem;
  flashproof_problem abi = abi_problem(p);
  apply(run.mutation, abi);
  const flashproof_kernel& table = *kernel.table;
  const char* settings = config.c_str();
  void* stream = stream_of(flashproof_memory(table.memory));
  Caller caller{kernel, inside};
  RunResult& result = caller.outcome.result;

  size_t workspace = 0;
  if (!caller.call([&](char* text, size_t size) {
        const flashproof_status status = table.supports(&abi, settings, text, size);
        if (status == FLASHPROOF_OK && table.workspace_size) workspace = table.workspace_size(&abi, settings);
        return status;
      }))
    return caller.outcome;
  const auto refuse = [&](RunStatus status, const std::string& why) {
    result.status = status;
    result.message = why;
    return caller.outcome;
  };
  if (has_backward(p) && table.backward == nullptr) return refuse(RunStatus::rejected, "the kernel has no backward");
  if (workspace > size_t(memory_budget()))
    return refuse(RunStatus::error, "asks for a workspace of " + std::to_string(workspace) + " bytes");

  MemoryPlan plan = plan_memory(data.in, run.placement, table, workspace);
  apply(run.mutation, plan.problem);
  if (p.direction == Direction::backward_exact) {
    Tensor o, lse;
    exact_forward(data, plan, o, lse);
    give_forward(plan, o, lse, run.placement);
  } else {
    const flashproof_call call = forward_call(plan);
    if (!caller.call([&](char* text, size_t size) { return table.forward(&call, settings, stream, text, size); }))
      return caller.outcome;
    read_back(plan);
    inspect(plan, p, false, result.memory);
    keep_forward(plan);
  }
  if (has_backward(p)) {
    poison_workspace(plan, run.placement.poison + 1);
    const flashproof_call call = backward_call(plan);
    if (!caller.call([&](char* text, size_t size) { return table.backward(&call, settings, stream, text, size); }))
      return caller.outcome;
    read_back(plan);
    inspect(plan, p, true, result.memory);
  }
  result.outputs = make_outputs(p);
  gather(plan, has_backward(p), result.outputs);
  return caller.outcome;
}

RunResult run_in_process(const LoadedKernel& kernel, const Run& run, const std::string& config) {
  return call_kernel(kernel, run, config, [](bool) {}).result;
}

}  // namespace flashproof
