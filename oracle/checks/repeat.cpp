// Check `repeat`: what a kernel promises not to matter changes no bit.
//
// Three runs: the case; the case with one thing changed; the first call once more, so that the calls in between are its
// history. What changes is chosen by the data seed among what the kernel's convention `deterministic` promises:
//   workspace   other content of the workspace (and other poison in the outputs)              DETERMINISTIC_CALL
//   layout      other strides, other axis order                                               DETERMINISTIC_LAYOUT
//   batch       one entry without the others; an only entry with another behind it            DETERMINISTIC_BATCH
// O, L, dQ, dK and dV must be the same bits (all NaN count as one), dsink and dbias too where the batch stays. A kernel
// that promises nothing is not judged: each of its runs must keep its bound, which is the check `bound`.
#include <cmath>

#include "oracle/checks/checks.h"
#include "oracle/checks/related_case.h"

namespace flashproof {
namespace {

enum Change { change_workspace, change_layout, change_batch, change_count };

/// The entry that keeps its data when the batch around it changes. Dropout counts entries: there it keeps its number.
int64_t kept_entry(const Case& c) { return c.problem.dropout ? 0 : int64_t(choose(c, 0, uint64_t(c.problem.batch))); }

Change change_of(const Case& c, const Subject& subject) {
  std::vector<Change> promised = {change_workspace};
  if (subject.conventions.deterministic >= FLASHPROOF_DETERMINISTIC_LAYOUT &&
      subject.features & FLASHPROOF_FEATURE_STRIDES)
    promised.push_back(change_layout);
  if (subject.conventions.deterministic >= FLASHPROOF_DETERMINISTIC_BATCH) promised.push_back(change_batch);
  return promised[choose(c, 1, promised.size())];
}

Case with_other_layout(const Case& c) {
  Case other = c;
  Problem& p = other.problem;
  const bool dense = p.q.packed.empty() && p.k.packed.empty() && !p.paging;
  if (dense) p.layout.heads_first = !p.layout.heads_first;
  p.layout.row_gap = p.layout.row_gap == 0 ? 8 : 0;  // 8: rows stay multiples of 16 bytes in 16-bit formats
  return other;
}

Run changed_run(const Case& c, Change change) {
  switch (change) {
    case change_layout:
      return {.c = with_other_layout(c), .placement = {}};
    case change_batch:
      return {.c = c.problem.batch > 1 ? entry_alone(c, kept_entry(c)) : with_neighbour(c), .placement = {}};
    default:
      return {.c = c, .placement = {.poison = 3}};
  }
}

bool applies(const Case&, const Subject& subject) {
  return subject.conventions.deterministic != FLASHPROOF_DETERMINISTIC_NO;
}

std::vector<Run> plan(const Case& c, const Subject& subject) {
  return {Run{.c = c, .placement = {}}, changed_run(c, change_of(c, subject)), Run{.c = c, .placement = {.call = 1}}};
}

/// Elements of an output: from `begin` on, `count` of them.
struct Stretch {
  int64_t begin, count;
};

/// Entry b's part of an output of [tokens, heads, width]; all of dsink and dbias.
Stretch part_of_entry(const Problem& p, OutputId id, const Tensor& tensor, int64_t b) {
  if (id == OutputId::dsink || id == OutputId::dbias) return {0, tensor.size()};
  const Packing packing = packing_of(p);
  const bool keys = id == OutputId::dk || id == OutputId::dv;
  const std::vector<int64_t>& begins = keys ? packing.k_begin : packing.q_begin;
  const int64_t token = begins.back() == 0 ? 0 : tensor.size() / begins.back();
  return {begins[b] * token, (begins[b + 1] - begins[b]) * token};
}

/// Same bits from first[at] on and from second[0] on.
void compare(Verdict& v, const Case& c, OutputId id, const Tensor& first, Stretch at, const Tensor& second,
             const std::vector<uint8_t>& undefined, const char* kind, const std::string& what) {
  const bool of_rows = id == OutputId::o || id == OutputId::lse;
  const int64_t width = id == OutputId::o ? c.problem.value_dim : 1;
  for (int64_t n = 0; n < at.count; ++n) {
    const int64_t index = at.begin + n;
    if (of_rows && !undefined.empty() && undefined[index / width]) continue;
    ++v.judged;
    const double x = first.at(index), y = second.at(n);
    if (first.bits(index) == second.bits(n) || (std::isnan(x) && std::isnan(y)) || v.status == Status::fail) continue;
    const Where where = locate(c.problem, id, index);
    fail_at(v, where, kind, print(where) + " is " + number_text(x) + ", and " + number_text(y) + " " + what);
  }
}

Verdict judge(const Case& c, const Subject& subject, std::span<const Run> runs, std::span<const RunResult> results) {
  const Change change = change_of(c, subject);
  const bool refused = results[1].status == RunStatus::rejected;  // the kernel may not take that layout or batch
  for (const size_t n : {0, 1, 2})
    if (n != 1 || !refused)
      if (Verdict status = judge_status("repeat", results.subspan(n, 1)); !status.check.empty()) return status;
  Verdict v;
  v.check = "repeat";
  v.assumed = undefined_conventions(subject);
  for (size_t n : {1, 2}) judge_memory(v, results[n].memory);

  constexpr const char* kinds[change_count] = {"workspace", "layout", "batch"};
  const bool batch = change == change_batch;
  const int64_t entry = batch && c.problem.batch > 1 ? kept_entry(c) : 0;
  const std::string what[change_count] = {
      "with another content of the workspace",
      "with the strides of `layout=" + std::string(runs[1].c.problem.layout.heads_first ? "bhsd" : "bshd") +
          " gap=" + std::to_string(runs[1].c.problem.layout.row_gap) + "`",
      c.problem.batch > 1 ? "with its entry alone in the batch" : "with another entry in the batch"};
  const std::vector<uint8_t> undefined = undefined_rows(c, subject);
  for (int n = 0; n < output_count; ++n) {
    const OutputId id = OutputId(n);
    if (!is_judged(subject, c.problem, id)) continue;
    const Tensor& first = tensor_of(results[0].outputs, id);
    compare(v, c, id, first, {0, first.size()}, tensor_of(results[2].outputs, id), undefined, "same-call",
            "when the same call is made again");
    if (refused || (batch && (id == OutputId::dsink || id == OutputId::dbias))) continue;
    const Stretch part = batch ? part_of_entry(c.problem, id, first, entry) : Stretch{0, first.size()};
    compare(v, c, id, first, part, tensor_of(results[1].outputs, id), undefined, kinds[change], what[change]);
  }
  return unless_vacuous(v);
}

}  // namespace

const Check repeat_check = {"repeat",
                            "exact: what the kernel declares not to matter (call, layout, batch) changes no bit",
                            applies, plan, judge};

}  // namespace flashproof
