// Who made machine code: what becomes of an instruction that the chip lacks (fp8 mma.sync on sm_90) is its choice.
#pragma once
#include <string>

namespace flashproof {

/// "580.65.06, CUDA 13.0": the driver's version, where the system says it, and that of the CUDA that it serves.
std::string driver_version();

/// Of a __global__ function's code for the device in use: "ptxas 13.0.88", which made the program, or "driver ...",
/// which has compiled it from PTX for an earlier chip. Throws std::runtime_error where no code is for the device.
std::string assembler_of(const void* function);

}  // namespace flashproof
