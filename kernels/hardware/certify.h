// The models of this folder against the GPU of this machine: every unary function over all 2^32 inputs, every matrix
// instruction over at least 10^8 outputs, and the chain of fp8 wgmma whose stagnation the model predicts.
#pragma once
#include <functional>
#include <string>

#include "kernels/hardware/certificate.h"
#include "kernels/run_time_compiler.h"

namespace flashproof {

/// `progress` is told each check's name before it starts. Throws UnavailableError without CUDA in the build, without a
/// device, and where no model is of its architecture.
Certificate certify(const std::function<void(const std::string&)>& progress);

/// mma.sync of two fp8 formats by the compiler at run time: a kernel whose parameter is a CarryOut (certify_mma.cuh).
KernelText mma_sync_text(DType a, DType b, const std::string& architecture);

}  // namespace flashproof
