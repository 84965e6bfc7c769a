// The bits that a kernel of known Arithmetic must give: FlashAttention 2's forward (reference/flash2.h) run with the
// chip's own operations (oracle/hardware_ops.h). With the kernel it shares the models of kernels/hardware, number
// formats and Philox; no other line.
#pragma once
#include <string>

#include "reference/arithmetic.h"
#include "reference/inputs.h"

namespace flashproof {

/// "" where O and L of the problem can be predicted to the bit from this arithmetic; else which word of it is missing,
/// or stands for something that has no model here.
std::string unpredictable(const Problem&, const Arithmetic&);

/// O and L to the bit; the gradients are left empty. NaN stands for every NaN. Rows without keys have O = 0 and L =
/// -infinity, or their sink. `threads`: 0 is all cores (reference/threads.h). Throws std::invalid_argument where the
/// problem is unpredictable. Time: about 0.35 ns a multiply-add and 37 ns a score, with softcap and ALiBi 45 (CPU time
/// on one core of a Xeon with AVX-512, 512 rows of 2048 keys in head dims 32 and 128, bf16 and e4m3; medians of 7).
Outputs predict(const Inputs&, const Arithmetic&, int threads = 0);

}  // namespace flashproof
