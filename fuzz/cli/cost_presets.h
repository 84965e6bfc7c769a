// The two examples of `cost --preset`: why attention needs no matrix of scores, and the published figures, counted
// again.
#pragma once

namespace flashproof {

/// 32768 tokens, 32 heads, bf16: the scores against the numbers a row that replace them; extra memory over the length.
int cost_lesson(bool json);
/// FlashAttention's Figure 2 (2205.14135): the passes of Algorithms 0, 1, 3 and 4, line by line, beside the published
/// bytes and operations, and the ratio of traffic over the length.
int cost_gpt2_medium(bool json);

}  // namespace flashproof
