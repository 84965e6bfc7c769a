// The fp16 kernels of sim:flash2.
#include "kernels/simulator/flash2_table.h"

template std::span<const flashproof::flash2::SimulatedKernel>
flashproof::flash2::simulated_kernels<flashproof::DType::fp16>();
