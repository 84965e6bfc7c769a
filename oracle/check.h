// A check is two pure functions: plan(case) says which runs it needs, judge(case, results) says what they show. The
// oracle never loads or calls a kernel; fuzz/runner does.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/flashproof_kernel.h"
#include "kernels/hardware/certificate.h"
#include "oracle/verdict.h"
#include "reference/arithmetic.h"
#include "reference/case.h"

namespace flashproof {

/// The GPU that a kernel runs on, and what was measured of it.
struct GpuStanding {
  GpuCode code;
  const Certificate* certificate = nullptr;  ///< kept by whoever made the Subject
  std::string without;                       ///< why there is none
};

/// What is known of the kernel that produced a result.
struct Subject {
  std::string name;
  std::string config;
  uint64_t features = 0;
  flashproof_conventions conventions = FLASHPROOF_DEFAULT_CONVENTIONS;
  std::string arithmetic;  ///< as declared for this problem and config; "" unknown
  const char* where_to_declare = "declare it in flashproof_kernel.arithmetic";  ///< the arithmetic, for its author
  std::optional<GpuStanding> gpu = {};  ///< none: the host runs it, by the models themselves, or what does is not known
};

/// How the runner lays a case out around the logical data; never visible to a correct kernel.
struct Placement {
  bool nan_outside =
      true;  ///< padding, unused page slots and stride gaps of inputs hold NaN; else ordinary finite noise
  bool largest_hidden =
      false;            ///< keys hidden from every row hold the largest finite values (NaN if the kernel bears it)
  uint64_t poison = 1;  ///< seed of output and workspace poison
  int call = 0;         ///< tells calls apart that are alike in everything: 0, 1, ... in the order they are made
  bool operator==(const Placement&) const = default;
};

/// Powers of two that inputs are multiplied with, after the case's edits (check `relations`).
struct Scaling {
  int q = 0, v = 0, d_o = 0;
  bool operator==(const Scaling&) const = default;
};

/// What the runner spoils in the flashproof_problem of an otherwise legal call, before it asks supports() (check
/// `reject`).
enum class IllegalMutation {
  none,
  head_dim_zero,
  kv_heads_not_dividing,  ///< kv_heads = heads + 1
  unknown_dtype,          ///< dtype = 99
  scale_nan,
  window_below_open,  ///< window_left = -7
  dropout_rate_one,
};
constexpr int illegal_mutation_count = 7;
const char* name_of(IllegalMutation);
void apply(IllegalMutation, flashproof_problem&);

struct Run {
  Case c;
  Placement placement;
  IllegalMutation mutation = IllegalMutation::none;
  Scaling scaling = {};
  bool operator==(const Run&) const = default;
};

/// The data of a run: the case's, times the powers of two, rounded where the format has no such number.
Inputs make_inputs(const Run&, const TokenMaker& = {});

enum class RunStatus { ok, rejected, error, crash, timeout };

struct MemoryReport {
  std::string red_zone;       ///< first buffer written outside its bounds, with the offset; "" = none
  std::string input_changed;  ///< first input that was written; "" = none
  std::string unwritten;      ///< first output element still holding poison; "" = none
  std::string
      tail_touched;  ///< first element past the used length that was written (convention: untouched) or not zeroed
};

struct RunResult {
  RunStatus status = RunStatus::ok;
  std::string message;  ///< of a rejection, an error, a signal
  Outputs outputs;      ///< logical (packed), valid when status is ok
  MemoryReport memory;
  double seconds = 0;  ///< of the kernel's calls
};

struct Check {
  const char* id;         ///< "bound", "bits", "readout", "exact_inputs", "isolation", "repeat", "relations", "reject"
  const char* guarantee;  ///< one line for reports
  bool (*applies)(const Case&, const Subject&);
  std::vector<Run> (*plan)(const Case&, const Subject&);
  /// A verdict with an empty `check` says that these results leave nothing to judge: no pass, and not counted.
  Verdict (*judge)(const Case&, const Subject&, std::span<const Run>, std::span<const RunResult>);
  /// What a user would have to bring for it to apply, where it does not; "" where nothing helps. nullptr: never.
  std::string (*missing)(const Case&, const Subject&) = nullptr;
  /// Why it is not for this case, for who asks for it alone; "" where it applies or lacks something. nullptr: no words.
  std::string (*unfit)(const Case&, const Subject&) = nullptr;
};

/// All checks, in the order they run.
std::span<const Check> all_checks();

/// Which wrong answers `bound` would reject on this case, by at most 8 of its query rows (for reports): zeros, mean of
/// V, previous output (of the next seed), mask off by one (rows whose keys end at a mask's edge), one key dropped,
/// scale 1 % off, base-2 L.
std::vector<Imposter> power_of(const Case&, const Subject&);

/// A verdict for results that are not ok (crash, timeout, error, rejection of a legal problem); nullptr-like empty
/// `check` if all are ok.
Verdict judge_status(const char* check, std::span<const RunResult>);

}  // namespace flashproof
