// A flashproof_call as heads of fp32 numbers: addresses by strides, packing and pages; decoding and encoding of rows.
//
// Only elements of the logical tensors are read or written: query rows below Sq, keys below Sk, and of pages those
// alone.
#pragma once
#include <cstdint>
#include <vector>

#include "kernels/rejected.h"
#include "reference/head.h"

namespace flashproof {

struct CallView {
  const flashproof_call& call;
  const flashproof_problem& problem;
  std::vector<int64_t> seq_q, seq_k;        ///< used lengths Sq, Sk by entry
  std::vector<int64_t> q_begin, k_begin;    ///< packed: first token of the entry; dense: 0
  std::vector<int64_t> key_gradient_begin;  ///< paged: where the entry's dk and dv start, else k_begin
};

/// Throws Rejected for lengths, page tables or tensors that contradict the problem.
CallView view_call(const flashproof_call&);

/// The rule of entry b, query head h: scale, masks and modifiers, with this head's slice of the bias.
ScoreRule<float> load_rule(const CallView&, int64_t b, int64_t h);
/// K and V of entry b, kv head, with their transposes, into head.
void load_keys(const CallView&, int64_t b, int64_t kv_head, Head<float>& head);
/// Q, and dO where the call has it, with the rule of query head h; rows that see no key become zeros.
void load_queries(const CallView&, int64_t b, int64_t h, Head<float>& head);
/// O and L as they were stored.
HeadOutputs<float> load_outputs(const CallView&, int64_t b, int64_t h);

void store_outputs(const CallView&, int64_t b, int64_t h, const HeadOutputs<float>&);
void store_query_gradient(const CallView&, int64_t b, int64_t h, const Matrix<float>& dq);
void store_key_gradients(const CallView&, int64_t b, int64_t kv_head, const Matrix<float>& dk, const Matrix<float>& dv);

/// Sums of dbias and dsink over the heads, and where they go.
struct SharedGradients {
  std::vector<float> dbias;  ///< [1|B, 1|H, 1|Sq, 1|Sk] like the bias
  std::vector<float> dsink;  ///< [H]
};
SharedGradients start_shared_gradients(const CallView&);
/// Adds one head's dbias (with the strides of its rule) to the sum over the broadcast axes.
void add_bias_gradient(const CallView&, int64_t b, int64_t h, const ScoreRule<float>&, const std::vector<float>& dbias,
                       SharedGradients& shared);
void store_shared_gradients(const CallView&, const SharedGradients&);

}  // namespace flashproof
