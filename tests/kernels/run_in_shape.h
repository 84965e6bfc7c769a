// FlashAttention 2 of any TileConfig on the simulated multiprocessor, whether a table has it or not.
#pragma once
#include "kernels/flash2_forward.cuh"
#include "kernels/flash2_host.h"
#include "kernels/simulator/simulate.h"

namespace flashproof::test {

/// A contiguous tensor.
inline GlobalRegion region_of(const flashproof_tensor& t, const char* name, bool writable) {
  const int64_t elements = t.rank == 4 ? t.shape[0] * t.stride[0] : t.shape[0] * t.shape[1] * t.shape[2];
  return {t.data, elements * format_of(DType(t.dtype)).bits / 8, name, writable};
}

/// Of tensors the call has q, k, v, o and lse alone. Throws SimulatedFault.
template <TileConfig config>
void run_in_shape(const flashproof_call& c) {
  const flash2::Call call = flash2::call_of(c);
  const flash2::Grid grid = flash2::grid_of(*c.problem, config);
  simulate({{int(grid.tiles), int(grid.heads), int(grid.entries)},
            thread_count(config),
            uint32(shared_bytes(config)),
            1,
            {region_of(c.q, "q", false), region_of(c.k, "k", false), region_of(c.v, "v", false),
             region_of(c.o, "o", true), region_of(c.lse, "lse", true)}},
           [&] { flash2::forward<config>(call); });
}

}  // namespace flashproof::test
