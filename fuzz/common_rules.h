// Two rules that kernels are usually tested with, to set beside Flashproof's checks on the same planted bugs.
//
//   allclose   |out - ref| <= atol + rtol |ref| everywhere: torch.testing.assert_close's defaults, rtol 1.6e-2 and
//              atol 1e-5 in bf16, 1e-3 and 1e-5 in fp16, 1.3e-6 and 1e-5 in fp32
//   twice      max |out - ref| <= 2 max |plain - ref|: FlashAttention's tests (tests/test_flash_attn.py), where `plain`
//              is attention with every intermediate result rounded to the output's format, as PyTorch computes it
//
// ref is the exact value rounded to the output's format. Both look at O, dQ, dK and dV on normal data at a few usual
// shapes.
#pragma once
#include <string>
#include <vector>

#include "fuzz/runner.h"

namespace flashproof {

/// What the rules say of one output of one case.
struct RuleVerdict {
  std::string text;  ///< of the case
  OutputId output;
  bool allclose = true, twice = true;  ///< whether the output passes
};

/// The usual cases that the kernel takes, each output judged; a crash or an error fails every output of its case.
std::vector<RuleVerdict> judge_by_common_rules(Worker&, const LoadedKernel&);

/// Plain attention in the output's format: O, and for a backward problem dQ, dK, dV. Shapes as in reference/inputs.h.
Outputs plain_attention(const Inputs&);

}  // namespace flashproof
