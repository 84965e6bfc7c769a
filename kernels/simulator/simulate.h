// A kernel on the simulated multiprocessor: the text that runs on the GPU, compiled by the host compiler.
//
// Blocks run one after another. Every access to memory and every meeting of threads is checked while they run; the
// first violation ends the run (fault.h says which there are). The seed draws the order of blocks, warps and lanes and
// the moment at which asynchronous copies arrive; the same seed gives the same run, and the same message, again.
#pragma once
#include <array>
#include <functional>
#include <vector>

#include "kernels/hardware/tensor_core.h"
#include "kernels/simulator/fault.h"
#include "kernels/simulator/global_memory.h"

namespace flashproof {

struct SimulatedLaunch {
  std::array<int, 3> grid{1, 1, 1};  ///< blocks along x, y, z
  int threads = 32;                  ///< of a block: a multiple of 32, at most 1024
  uint32 shared_bytes = 0;           ///< dynamic shared memory of a block, at most 232448 (compute capability 9.0)
  uint64 seed = 1;
  std::vector<GlobalRegion> regions;        ///< all of the global memory that the kernel may touch
  Architecture chip = Architecture::sm_90;  ///< whose tensor core it has
};

/// Runs `body` once for every thread of every block; within it the instructions of kernels/ptx.cuh act on the simulated
/// multiprocessor. Throws SimulatedFault for a violation, std::invalid_argument for a launch that a GPU would refuse,
/// and what `body` throws. Several threads of the program may simulate at the same time; a body must not simulate.
void simulate(const SimulatedLaunch&, const std::function<void()>& body);

}  // namespace flashproof
