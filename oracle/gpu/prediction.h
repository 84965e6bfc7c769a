// The prediction of oracle/bits.h by groups of rows (row_group.h), which a GPU carries out in ordinary instructions.
#pragma once
#include <string>
#include <vector>

#include "oracle/gpu/row_group.h"
#include "reference/arithmetic.h"
#include "reference/inputs.h"

namespace flashproof {

/// What the heads share, for an Arithmetic that `unpredictable` lets pass (oracle/bits.h).
PredictionShape prediction_shape(const Problem&, const Arithmetic&);

/// The arrays of a prediction, in memory of those who compute. q, k, v and bias are the inputs' bytes.
struct PredictionArrays {
  const unsigned char *q = nullptr, *k = nullptr, *v = nullptr, *bias = nullptr;
  DecodedOperand *decoded_q = nullptr, *decoded_k = nullptr, *decoded_v = nullptr;
  uint32 *o = nullptr, *lse = nullptr;  ///< encoded: [total_q, H, dv], [total_q, H]
};
/// How many operands decoded_q, decoded_k and decoded_v have.
struct OperandCounts {
  int64_t q, k, v;
};
OperandCounts operand_counts(const Inputs&, const PredictionShape&);

/// One a query head, entry by entry: task b H + h. They refer to the arrays.
std::vector<HeadTask> head_tasks(const Inputs&, const Arithmetic&, const PredictionArrays&);

/// O and L from their encodings, in the order of PredictionArrays.
Outputs outputs_of_bits(const Problem&, const std::vector<uint32>& o, const std::vector<uint32>& lse);

/// `predict` (oracle/bits.h) by groups of rows, each by one thread of the host: the GPU's functions where there is no
/// GPU. Time: about 2.5 ns a multiply-add, on each core.
Outputs predict_by_groups(const Inputs&, const Arithmetic&, int threads = 0);

/// Whether predict_on_gpu can predict this: the program was built with CUDA, there is a GPU, and a group's state fits
/// into the shared memory of a block. "", or why not.
std::string gpu_lacks(const Problem&, const Arithmetic&);

/// `predict` by the first CUDA device. Throws UnavailableError where gpu_lacks says why or its memory is too small,
/// std::runtime_error when it fails.
Outputs predict_on_gpu(const Inputs&, const Arithmetic&);

}  // namespace flashproof
