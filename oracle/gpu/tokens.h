// The elements of reference/tokens.h made by the first CUDA device, one a thread.
#pragma once
#include "reference/inputs.h"

namespace flashproof {

/// Makes tokens for make_inputs; nothing where there is no device or no build with CUDA, which leaves them to the host.
/// What it gives throws UnavailableError where the device's memory is too small, std::runtime_error where it fails.
TokenMaker tokens_by_gpu();

}  // namespace flashproof
