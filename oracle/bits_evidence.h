// On what a prediction of bits rests: the models of kernels/hardware that it computes with, and the certificate that
// the GPU at hand computes as they do.
#pragma once
#include <string>
#include <vector>

#include "oracle/check.h"

namespace flashproof {

/// The models behind O and L of a predictable problem (oracle/bits.h), named as in a certificate. Which instruction
/// multiplies the arithmetic does not say: all of Hopper's that have it.
std::vector<std::string> models_behind(const Problem&, const Arithmetic&);

/// "" where the GPU that runs the kernel is certified to compute these models, which are of sm_90, or none runs it; else
/// what is missing.
std::string uncertified(const Problem&, const Arithmetic&, const Subject&);

/// For a verdict's `assumed`: whose models, and what certifies them.
std::string evidence_text(const Subject&);

}  // namespace flashproof
