// Check `readout`: the mask, read out of the kernel bit by bit.
//
// With q = 0 every visible key of a row has the same weight 1/n, and V is one-hot: key j has 1 in channel j - a
// value_dim of call a and 0 elsewhere. So that channel of O_i is positive exactly when row i sees key j, in any correct
// kernel whatever its arithmetic: 1/n is far above the least number of every output format. ceil(Sk / value_dim) calls
// show all keys.
#include <algorithm>
#include <cmath>

#include "oracle/checks/checks.h"
#include "reference/arithmetic.h"

namespace flashproof {
namespace {

/// Calls of one verdict. Longer sequences are read in the first, the last and evenly spaced chunks of keys.
constexpr int64_t most_runs = 6;

std::vector<int64_t> chunks_of(const Problem& p) {
  const int64_t chunks = (max_used_length(p.k, p.batch) + p.value_dim - 1) / p.value_dim,
                runs = std::min(chunks, most_runs);
  std::vector<int64_t> chosen;
  for (int64_t n = 0; n < runs; ++n) chosen.push_back(runs == 1 ? 0 : n * (chunks - 1) / (runs - 1));
  return chosen;
}

bool applies(const Case& c, const Subject& subject) {
  if (chunks_of(c.problem).empty()) return false;
  const Arithmetic arithmetic = parse_arithmetic(subject.arithmetic);
  if (arithmetic.normalized == Normalization::last || arithmetic.normalized == Normalization::each_tile) return true;
  // P that is normalised first may underflow: 1/n must be at least the least number of P's format, in units of P.
  const Format format = format_of(arithmetic.p_format < 0 ? c.problem.dtype : DType(arithmetic.p_format));
  const double least = std::ldexp(1, format.emin - format.precision + 1 - arithmetic.p_scale_log2);
  return double(max_used_length(c.problem.k, c.problem.batch)) * least <= 1;
}

std::vector<Run> plan(const Case& c, const Subject&) {
  std::vector<Run> runs;
  for (int64_t chunk : chunks_of(c.problem)) {
    runs.push_back({.c = neutral_case(c, Family::readout, false), .placement = {}});
    runs.back().c.recipe.a = double(chunk);
  }
  return runs;
}

/// One element of O: channel `at.channel` of call `chunk`.
void judge_element(Verdict& v, const Problem& p, const Packing& packing, int64_t chunk, const Where& at, double o) {
  const int64_t j = chunk * p.value_dim + at.channel, seq_k = packing.seq_k(at.b);
  const bool seen = j < seq_k && visible(p.mask, packing.seq_q(at.b), seq_k, at.position, j);
  ++v.judged;
  if (seen ? o > 0 && o <= 1 : o == 0) return;
  if (v.status == Status::fail) return;
  const std::string key = "key " + std::to_string(j) + " of row i=" + std::to_string(at.position) +
                          " (b=" + std::to_string(at.b) + " h=" + std::to_string(at.head) + ")";
  if (!std::isfinite(o))
    fail_at(v, at, "nan", print(at) + " is not finite with q = 0 and one-hot V");
  else if (seen)
    fail_at(v, at, "missing-key", key + " is visible and has no weight: " + print(at) + " is " + number_text(o));
  else
    fail_at(v, at, "hidden-key",
            key + (j < seq_k ? " is hidden" : " does not exist") + " and has weight: " + print(at) + " is " +
                number_text(o));
}

Verdict judge(const Case&, const Subject& subject, std::span<const Run> runs, std::span<const RunResult> results) {
  if (Verdict status = judge_status("readout", results); !status.check.empty()) return status;
  Verdict v;
  v.check = "readout";
  v.assumed = undefined_conventions(subject);
  for (size_t n = 0; n < runs.size(); ++n) {
    const Problem& p = runs[n].c.problem;
    const Packing packing = packing_of(p);
    judge_memory(v, results[n].memory);
    const Tensor& o = results[n].outputs.o;
    for (int64_t row = 0; row < o.size() / p.value_dim; ++row) {
      const Where at = locate(p, OutputId::o, row * p.value_dim);
      const KeyRange keys = visible_keys(p.mask, packing.seq_q(at.b), packing.seq_k(at.b), at.position);
      if (keys.begin >= keys.end && !empty_o_defined(subject)) continue;
      for (int64_t c = 0; c < p.value_dim; ++c) {
        Where element = at;
        element.channel = c;
        element.index = row * p.value_dim + c;
        judge_element(v, p, packing, int64_t(runs[n].c.recipe.a), element, o.at(element.index));
      }
    }
  }
  const int64_t all =
      runs.empty() ? 0
                   : (max_used_length(runs[0].c.problem.k, runs[0].c.problem.batch) + runs[0].c.problem.value_dim - 1) /
                         runs[0].c.problem.value_dim;
  if (all > int64_t(runs.size()))
    v.assumed += (v.assumed.empty() ? "" : "; ") + std::to_string(runs.size()) + " of " + std::to_string(all) +
                 " chunks of keys read";
  return unless_vacuous(v);
}

}  // namespace

const Check readout_check = {"readout", "exact: each row gives weight to the keys it sees and to no other", applies,
                             plan, judge};

}  // namespace flashproof
