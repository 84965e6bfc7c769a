// Trained transformers' Q, K and V (safetensors files) against the bounds, and what rounding P to e4m3 does to each
// head.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "oracle/verdict.h"

namespace flashproof {

/// One layer: tensors Q [H, Sq, d], K and V [Hk, Sk, d]; the mask and the scale are those of its metadata.
struct ActivationFile {
  std::string path, name;
  int64_t heads = 0, kv_heads = 0, seq_q = 0, seq_k = 0, head_dim = 0;
  bool causal = false;
  float scale = 0;  ///< 0: 1/sqrt(d)
};
/// Every *.safetensors file of the folder, by name. UnavailableError for a folder without any; UsageError for a file
/// without Q, K and V of such shapes.
std::vector<ActivationFile> activation_files(const std::string& directory);

/// Largest error / bound of one output, forward and backward, of the check `bound`: over the files, and over N(0, 1)
/// data of the same shapes.
struct BoundRow {
  std::string kernel, dtype;
  OutputId output = OutputId::o;
  double activations = 0, normal = 0;
  std::string file;  ///< of `activations`
  int64_t cases = 0;
};
struct BoundTable {
  std::vector<BoundRow> rows;
  /// "KERNEL DTYPE FILE: reason": what a kernel does not take, and verdicts that are no pass.
  std::vector<std::string> skipped, not_passed;
  bool failed = false;  ///< one of these verdicts is a failure
};
/// dtypes bf16 (as stored), fp16 and e4m3. For e4m3 each head's Q, K and V are divided by t = max |x| / 448 (q by that
/// of its group of heads) and t is the descale, so that the format's range is used. `scratch` is a folder for these
/// files.
BoundTable bound_table(const std::vector<ActivationFile>&, const std::vector<std::string>& kernels,
                       const std::string& scratch, int threads,
                       const std::function<void(int64_t done, int64_t all)>& progress);

/// How P is rounded before P V; everything else is fp32.
enum class PRounding : int { bf16, e4m3_scaled, e4m3 };
constexpr int p_rounding_count = 3;
const char* name_of(PRounding);

/// O with a rounded P (FlashAttention 3's order of tiles, 64 x 64) against exact attention on the same numbers.
struct HeadRow {
  std::string file;
  int64_t head = 0;
  double column = 0;  ///< the largest share of all attention that one key gets
  int64_t key = 0;    ///< that key
  double size = 0;    ///< root mean square of O
  double rmse[p_rounding_count] = {};
  double worst[p_rounding_count] = {};  ///< largest |O^ - O| / |O| of a row, Euclidean norms
};
/// All heads of the files, the largest column first.
std::vector<HeadRow> head_table(const std::vector<ActivationFile>&, int threads,
                                const std::function<void(int64_t done, int64_t all)>& progress);

/// What the scale 2^8 is worth: RMSE of P in e4m3 without it over that with it; medians over the quarter of the heads
/// with the largest columns, and over the rest.
struct ScaleWorth {
  double sinks = 1, others = 1;
};
/// `rows` as head_table gives them, at least two.
ScaleWorth scale_worth(const std::vector<HeadRow>& rows);

/// Spearman's rank correlation over the heads of column and rmse / size.
double rank_correlation(const std::vector<HeadRow>&, PRounding);

}  // namespace flashproof
