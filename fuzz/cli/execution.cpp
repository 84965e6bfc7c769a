// See execution.h.
#include "fuzz/cli/execution.h"

#include <fmt/format.h>

#include "fuzz/record.h"
#include "fuzz/sha256.h"
#include "reference/errors.h"

namespace flashproof {
namespace {

std::string check_for_replay(const Job& job, const Judgement& judgement) {
  if (const Verdict* failure = judgement.failure()) return failure->check;
  return job.checks.size() == 1 ? job.checks.front() : "";
}

/// The imposters that a verdict would have let pass and those it would have rejected.
std::string power_of(const Verdict& verdict) {
  std::string rejected, passed;
  for (const Imposter& imposter : verdict.power) {
    std::string& list = imposter.rejected ? rejected : passed;
    list += (list.empty() ? "" : ", ") + imposter.name;
  }
  std::string text;
  if (!rejected.empty()) text += "      would reject   " + rejected + "\n";
  if (!passed.empty()) text += "      would pass     " + passed + "\n";
  return text;
}

std::string page_of(const Verdict& verdict) {
  std::string page = fmt::format("  {:<13} {:<13}", verdict.check, name_of(verdict.status));
  if (!verdict.ratios.empty()) page += fmt::format(" error / bound {:.4g}", verdict.ratio);
  if (verdict.where.index >= 0) page += " at " + print(verdict.where);
  if (verdict.judged > 0) page += fmt::format("  ({} elements)", verdict.judged);
  if (verdict.undecided > 0) page += fmt::format(", {} undecided", verdict.undecided);
  page += '\n';
  if (!verdict.why.empty() && verdict.status != Status::pass) page += "      " + verdict.why + "\n";
  if (verdict.ratios.size() > 1) {
    page += "      by output     ";
    for (const OutputRatio& ratio : verdict.ratios)
      page += fmt::format(" {} {:.4g}", name_of(ratio.output), ratio.ratio);
    page += '\n';
  }
  if (!verdict.assumed.empty()) page += "      assumed        " + verdict.assumed + "\n";
  return page + power_of(verdict);
}

}  // namespace

void add_power(Execution& e) {
  for (Verdict& verdict : e.judgement.verdicts)
    if (verdict.check == "bound") verdict.power = power_of(e.job.c, e.subject);
}

Execution execute_keeping(const LoadedKernel& kernel, const Job& job, const Limits& limits, bool in_process) {
  std::string reason;
  if (!device_available(kernel, reason))
    throw UnavailableError("kernel " + kernel.name + " cannot run here: " + reason);
  Execution e{job, subject_of(kernel, job.c.problem, job.config), "", {}, {}, {}};
  Worker worker(kernel.name, limits);
  const RunOnce run_once = [&](const Run& run, const std::string& config) {
    e.runs.push_back(run);
    e.results.push_back(in_process ? run_in_process(kernel, run, config) : worker.run(run, config));
    return e.results.back();
  };
  e.judgement = execute(run_once, kernel, job);
  add_power(e);
  e.replay = replay_line(kernel, job, check_for_replay(job, e.judgement));
  return e;
}

std::string output_hash(const Execution& e) {
  std::string bytes;
  for (const RunResult& result : e.results) {
    bytes += std::to_string(int(result.status));
    if (result.status != RunStatus::ok) continue;
    for (int id = 0; id < output_count; ++id) {
      const Tensor& tensor = tensor_of(result.outputs, OutputId(id));
      bytes.append(tensor.bytes.begin(), tensor.bytes.end());
    }
  }
  return sha256(bytes).substr(0, 16);
}

std::string page_of(const Execution& e) {
  std::string page = fmt::format("{}: {} on {}{}\n", name_of(e.judgement.status()), print(e.job.c), e.subject.name,
                                 e.job.config.empty() ? "" : " with " + e.job.config);
  if (!e.judgement.rejected.empty()) page += "  the kernel does not take this problem: " + e.judgement.rejected + "\n";
  for (const Verdict& verdict : e.judgement.verdicts) page += page_of(verdict);
  page += "arithmetic    " +
          (e.subject.arithmetic.empty() ? "unknown: the bound takes the worst case" : e.subject.arithmetic) + "\n";
  page += fmt::format("output bits   {} ({} runs)   case {}\n", output_hash(e), e.runs.size(), case_id(e.job.c));
  return page + "replay        " + e.replay + "\n";
}

JsonText json_of(const Execution& e) {
  std::vector<JsonText> verdicts;
  for (const Verdict& verdict : e.judgement.verdicts) verdicts.push_back(JsonText::raw(print(verdict)));
  return json_object({{"case", print(e.job.c)},
                      {"id", case_id(e.job.c)},
                      {"kernel", e.subject.name},
                      {"config", e.job.config},
                      {"arithmetic", e.subject.arithmetic},
                      {"status", name_of(e.judgement.status())},
                      {"rejected", e.judgement.rejected},
                      {"verdicts", json_array(verdicts)},
                      {"runs", e.runs.size()},
                      {"output_bits", output_hash(e)},
                      {"kernel_seconds", e.judgement.kernel_seconds},
                      {"oracle_seconds", e.judgement.oracle_seconds},
                      {"replay", e.replay}});
}

}  // namespace flashproof
