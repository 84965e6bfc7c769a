// The observer that writes down an algorithm's steps, and the table of algorithms by name; see trace.h.
#include "reference/trace.h"

#include "reference/errors.h"
#include "reference/flash1.h"
#include "reference/flash3.h"
#include "reference/flash_decoding.h"
#include "reference/nearest_word.h"
#include "reference/online_softmax.h"
#include "reference/standard.h"

namespace flashproof {
namespace {

/// Exact operations that write down what they are told.
struct RecordingOps : ExactOps<double> {
  std::vector<TraceStep>* steps;

  void observe(const Step<double>& step, const double* accumulator) const {
    TraceStep seen{step.phase, step.keys.begin, step.keys.end, step.maximum, step.sum, step.rescale, {}};
    if (accumulator != nullptr) seen.output = accumulator[0] / step.divisor;
    steps->push_back(seen);
  }
};

/// q = 1 and k_j = s_j with scale 1 have the scores s_j.
Head<double> head_with_scores(const std::vector<double>& scores, const std::vector<double>& values) {
  const int64 n = int64(scores.size());
  Head<double> head;
  head.rule.seq_q = 1;
  head.rule.seq_k = n;
  head.q = Matrix<double>(1, 1);
  head.q.row(0)[0] = 1;
  head.k = Matrix<double>(n, 1);
  head.v = Matrix<double>(n, 1);
  head.k.data = scores;
  head.v.data = values;
  head.k_t = transpose(head.k);
  head.v_t = transpose(head.v);
  return head;
}

constexpr std::string_view names[] = {"standard", "online_softmax", "rabe_staats",   "flash1",
                                      "flash2",   "flash3",         "flash_decoding"};

}  // namespace

std::vector<std::string> traced_algorithms() { return {std::begin(names), std::end(names)}; }

std::vector<TraceStep> trace(std::string_view algorithm, const std::vector<double>& scores,
                             const std::vector<double>& values, int64 tile) {
  if (scores.empty()) throw UsageError("trace needs at least one score, as in --scores 2,1,0.5,3");
  if (scores.size() != values.size())
    throw UsageError("trace needs one value a score: " + std::to_string(scores.size()) + " scores, " +
                     std::to_string(values.size()) + " values");
  if (tile < 1) throw UsageError("a tile holds at least 1 key, not " + std::to_string(tile));
  std::vector<TraceStep> steps;
  RecordingOps ops;
  ops.steps = &steps;
  const Head<double> head = head_with_scores(scores, values);
  const int64 parts = (head.seq_k() + tile - 1) / tile;
  if (algorithm == "standard")
    standard_forward(ops, head);
  else if (algorithm == "online_softmax")
    online_softmax_forward(ops, head, {1, tile});
  else if (algorithm == "rabe_staats")
    rabe_staats_forward(ops, head, {1, tile});
  else if (algorithm == "flash1")
    flash1_forward(ops, head, {1, tile});
  else if (algorithm == "flash2")
    flash2_forward(ops, head, {1, tile});
  else if (algorithm == "flash3")
    flash3_forward(ops, head, {1, tile}, false);
  else if (algorithm == "flash_decoding")
    flash_decoding_forward(ops, head, {1, tile}, parts);
  else
    throw UsageError("`" + std::string(algorithm) + "` is no algorithm; did you mean " +
                     nearest_word(std::string(algorithm), traced_algorithms()) + "?");
  return steps;
}

}  // namespace flashproof
