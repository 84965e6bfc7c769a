// FlashAttention 3's accuracy table (Shah et al., 2407.08608, section 4.3, Table 3), computed again.
//
// Entries of Q, K and V are N(0, 1) + N(0, 100) Bernoulli(0.001). The paper gives one RMSE a method against double
// precision, and does not say for how many keys, nor whether the double precision saw the numbers before or after their
// rounding to the format. So both are computed, for several lengths and seeds, and what the paper prints is held
// against the range.
#pragma once
#include <functional>
#include <string>
#include <vector>

namespace flashproof {

struct AccuracySettings {
  std::vector<int64_t> keys = {4096, 8192};
  int64_t rows = 512, head_dim = 128;
  int seeds = 5;  ///< 1, 2, ...
};

/// One method, number of keys and reference. Reference "unrounded": exact attention on the numbers drawn (as fp32);
/// "rounded": on the numbers that the method was given.
struct AccuracyRow {
  std::string format, method, reference;
  int64_t keys = 0;
  std::vector<double> rmse;  ///< by seed
  double published = 0;
  double median() const;
  double low() const;  ///< the least and the largest of the seeds
  double high() const;
  bool holds_published() const { return low() <= published && published <= high(); }
};

/// Runs on `threads` cores (0: all). `progress` is told how many of all runs are done, by one thread at a time.
std::vector<AccuracyRow> accuracy_table(const AccuracySettings&, int threads,
                                        const std::function<void(int64_t done, int64_t all)>& progress);

/// A method and a reference for which the published RMSE lies outside the range of the seeds for every number of keys.
struct NotReproduced {
  std::string format, method, reference;
  double published = 0, nearest = 0;  ///< the median that is nearest by ratio
  int64_t keys = 0;                   ///< of that median
};
std::vector<NotReproduced> not_reproduced(const std::vector<AccuracyRow>&);

}  // namespace flashproof
