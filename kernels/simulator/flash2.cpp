// sim:flash2: FlashAttention 2 forward, the text of kernels/flash2_forward.cuh, on the simulated multiprocessor.
//
// The config says which tile, and with `schedule=N` in which order blocks, warps and copies take their turns; what the
// machine finds wrong is an ERROR, with the kernel's line and the seed. The kernel may touch the call's tensors, from
// the first element of each to its last, and nothing else.
#include <algorithm>
#include <vector>

#include "kernels/builtin.h"
#include "kernels/cpu/call_view.h"
#include "kernels/flash2_host.h"
#include "kernels/simulator/flash2_kernels.h"
#include "kernels/simulator/simulate.h"

namespace flashproof::flash2 {
namespace {

std::span<const SimulatedKernel> kernels_of(int32_t dtype) {
  switch (dtype) {
    case FLASHPROOF_BF16:
      return simulated_kernels<DType::bf16>();
    case FLASHPROOF_FP16:
      return simulated_kernels<DType::fp16>();
    case FLASHPROOF_E4M3:
      return simulated_kernels<DType::e4m3>();
    default:
      return simulated_kernels<DType::e5m2>();
  }
}

std::vector<TileConfig> configs_of(int32_t dtype) {
  std::vector<TileConfig> configs;
  for (const SimulatedKernel& each : kernels_of(dtype)) configs.push_back(each.config);
  return configs;
}

/// Every tile that is compiled, and every schedule that a config may name.
const char* tunables() {
  static const std::string text = [] {
    std::vector<TileConfig> configs;
    for (int32_t dtype : {FLASHPROOF_BF16, FLASHPROOF_FP16, FLASHPROOF_E4M3, FLASHPROOF_E5M2})
      for (const TileConfig& each : configs_of(dtype)) configs.push_back(each);
    return "tile=" + tile_values(configs) + " schedule=0:" + std::to_string(most_schedule) + ":1";
  }();
  return text.c_str();
}

int chosen(const flashproof_problem& p, const Config& config) {
  check_problem(p);
  return choose(configs_of(p.dtype), p, config);
}

flashproof_status supports(const flashproof_problem* p, const char* config, char* message, size_t size) {
  return guarded(message, size, [&] { chosen(*p, parse_config(config, true)); });
}

const char* arithmetic(const flashproof_problem* p, const char* config) {
  return text_unless_thrown([&] {
    return arithmetic_text(*p, configs_of(p->dtype)[size_t(chosen(*p, parse_config(config, true)))], "sm_90");
  });
}

/// From the tensor's first element to its last; nothing where it is absent or empty.
void add_region(const flashproof_tensor& t, const char* name, bool writable, std::vector<GlobalRegion>& regions) {
  int64_t first = 0, last = 0;
  for (int axis = 0; axis < t.rank; ++axis) {
    if (t.shape[axis] == 0) return;
    const int64_t reach = (t.shape[axis] - 1) * t.stride[axis];
    (reach < 0 ? first : last) += reach;
  }
  const int64_t bytes = t.dtype == FLASHPROOF_INT32 ? 4 : format_of(DType(t.dtype)).bits / 8;
  if (t.data != nullptr)
    regions.push_back({static_cast<const char*>(t.data) + first * bytes, (last - first + 1) * bytes, name, writable});
}

void add_region(const flashproof_integers& integers, const char* name, std::vector<GlobalRegion>& regions) {
  if (integers.data != nullptr) regions.push_back({integers.data, 4 * integers.length, name, false});
}

std::vector<GlobalRegion> regions_of(const flashproof_call& c) {
  std::vector<GlobalRegion> regions;
  add_region(c.q, "q", false, regions), add_region(c.k, "k", false, regions), add_region(c.v, "v", false, regions);
  add_region(c.o, "o", true, regions), add_region(c.lse, "lse", true, regions);
  add_region(c.bias, "bias", false, regions), add_region(c.slopes, "slopes", false, regions);
  add_region(c.sink, "sink", false, regions), add_region(c.q_descale, "q_descale", false, regions);
  add_region(c.k_descale, "k_descale", false, regions), add_region(c.v_descale, "v_descale", false, regions);
  add_region(c.cu_seqlens_q, "cu_seqlens_q", regions), add_region(c.cu_seqlens_k, "cu_seqlens_k", regions);
  add_region(c.seqused_q, "seqused_q", regions), add_region(c.seqused_k, "seqused_k", regions);
  add_region(c.page_table, "page_table", regions);
  return regions;
}

/// Lengths and pages that contradict the problem are refused here: the arrays that the kernel reads are host memory,
/// too.
void check_integers(flashproof_call call) {
  for (flashproof_integers* each :
       {&call.cu_seqlens_q, &call.cu_seqlens_k, &call.seqused_q, &call.seqused_k, &call.page_table})
    each->host = each->data;
  view_call(call);
}

flashproof_status forward(const flashproof_call* call, const char* config_text, void*, char* message, size_t size) {
  return guarded(message, size, [&] {
    const flashproof_problem& p = *call->problem;
    const Config config = parse_config(config_text, true);
    const int declared = chosen(p, config);
    check_integers(*call);
    const Call c = call_of(*call);
    const std::vector<TileConfig> configs = configs_of(p.dtype);
    const SimulatedKernel& kernel = kernels_of(p.dtype)[size_t(choose_for_call(configs, declared, c, p, config))];
    const Grid grid = grid_of(p, kernel.config);
    if (grid.tiles == 0) return;
    simulate({{int(grid.tiles), int(grid.heads), int(grid.entries)},
              thread_count(kernel.config),
              uint32(shared_bytes(kernel.config)),
              config.schedule,
              regions_of(*call)},
             [&] { kernel.body(c); });
  });
}

}  // namespace
}  // namespace flashproof::flash2

namespace flashproof {

const flashproof_kernel* sim_flash2_kernel() {
  static const flashproof_kernel kernel = [] {
    flashproof_kernel k = flash2::describe("sim_flash2", FLASHPROOF_HOST);
    k.tunables = flash2::tunables();
    k.arithmetic = flash2::arithmetic;
    k.supports = flash2::supports;
    k.forward = flash2::forward;
    return k;
  }();
  return &kernel;
}

}  // namespace flashproof
