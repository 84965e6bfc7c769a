// Who makes a case's data and predicts its bits: this host's cores, or, where the case is large, the first GPU. The GPU
// predicts in ordinary instructions (gpu/row_group.h), not with what it is compared to.
//
// One large case in a hundred, by the hash of its text and so the same one in a replay, is done by both and compared.
#pragma once
#include <string>

#include "reference/arithmetic.h"
#include "reference/inputs.h"

namespace flashproof {

/// From this many multiply-adds on, hidden ones counted, a GPU is asked: one core takes 0.15 s for them in head dim 128,
/// 0.3 s in 32, where there are more scores (bits.h), where a GPU takes a few ms: an H200 15 ms for 4.3e9 (causal, head
/// dim 128), for which sixteen cores of its host take 246 (GpuPrediction.IsTheHostsOfALargeCase).
constexpr double least_products_for_gpu = 3e8;
double products_of(const Problem&);

/// What a GPU does in place of the host's cores. Tests put one in its place that errs.
struct GpuOracle {
  std::string (*lacks)(const Problem&, const Arithmetic&);  ///< "", or why this case is not for it
  Inputs (*inputs)(const Case&);
  Outputs (*predict)(const Inputs&, const Arithmetic&);
};
extern const GpuOracle cuda_oracle;  ///< the first CUDA device, where there is one

struct CasePrediction {
  Inputs in;
  Outputs outputs;  ///< O and L, as `predict` gives them
  bool on_gpu = false, compared = false;
  std::string difference;  ///< between GPU and host: "" or where. Then Flashproof errs, and the prediction says nothing
};
/// Data and prediction of a case that `unpredictable` lets pass (bits.h). A GPU whose memory is too small is none.
CasePrediction predict_case(const Case&, const Arithmetic&, const GpuOracle& = cuda_oracle);

/// Whether a large case is one of the hundredth that GPU and host both predict.
bool is_predicted_twice(const Case&);

}  // namespace flashproof
