// See execution.h.
#include "fuzz/cli/execution.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include "fuzz/cli/dump.h"
#include "fuzz/cli/options.h"
#include "fuzz/record.h"
#include "fuzz/steady_seconds.h"
#include "reference/errors.h"
#include "reference/sha256.h"

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

/// A line on stderr every 3 s while it lives, terminal or not: a long case shows that it is not stuck, and where.
class ProgressLine {
 public:
  ProgressLine() : start_(now()), clock_([this] { tell(); }) {}
  ~ProgressLine() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    end_.notify_one();
    clock_.join();
  }
  void kernel_runs(size_t run) { run_ = run, judging_ = false; }
  void judging() { judging_ = true; }

 private:
  void tell() {
    constexpr auto pause = std::chrono::seconds(3);
    std::unique_lock lock(mutex_);
    while (!end_.wait_for(lock, pause, [this] { return over_; }))
      fmt::print(stderr, "flashproof: {:.0f} s, {} run {}\n", now() - start_,
                 judging_ ? "exact values and bounds after" : "the kernel is in", run_.load());
  }

  double start_;
  std::atomic<size_t> run_ = 1;
  std::atomic<bool> judging_ = false;
  std::mutex mutex_;
  std::condition_variable end_;
  bool over_ = false;  ///< guarded by `mutex_`
  std::thread clock_;  ///< last: it reads the others
};

/// Notes why checks that were asked for are not for this case. A verdict without a run is of the kernel's description:
/// what it declares is not known then.
void add_unfit(Execution& e) {
  if (e.runs.empty() && !e.judgement.verdicts.empty()) return;
  const auto asked = [&e](const char* id) { return std::count(e.job.checks.begin(), e.job.checks.end(), id) > 0; };
  for (const Check& check : all_checks()) {
    if (check.unfit == nullptr || !asked(check.id) || !e.judgement.rejected.empty()) continue;
    const std::string reason = check.unfit(e.job.c, e.subject);
    if (!reason.empty()) e.judgement.unjudged.push_back({check.id, reason});
  }
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
    if (verdict.check == "bound" && verdict.judged > 0) verdict.power = power_of(e.job.c, e.subject);
}

Execution execute_keeping(const LoadedKernel& kernel, const Job& job, const Limits& limits, bool in_process) {
  require_device(kernel);
  Execution e{job, {}, "", {}, {}, {}};
  Worker worker(kernel.name, limits);
  ProgressLine progress;
  const RunOnce run_once = [&](const Run& run, const std::string& config) {
    e.runs.push_back(run);
    progress.kernel_runs(e.runs.size());
    e.results.push_back(in_process ? run_in_process(kernel, run, config) : worker.run(run, config));
    progress.judging();
    return e.results.back();
  };
  e.judgement = execute(run_once, kernel, job);
  e.subject = e.judgement.subject;
  add_unfit(e);
  add_power(e);
  e.replay = replay_line(kernel, job, check_for_replay(job, e.judgement));
  return e;
}

std::string output_hash(const Execution& e) {
  if (e.runs.empty()) return "";
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
  if (!e.judgement.rejected.empty()) page += "  " + e.judgement.rejected + "\n";
  for (const Verdict& verdict : e.judgement.verdicts) page += page_of(verdict);
  for (const Unjudged& check : e.judgement.unjudged)
    page += fmt::format("  {:<13} no verdict     {}\n", check.check, check.reason);
  if (e.judgement.rejected.empty() && e.judgement.verdicts.empty() && e.judgement.unjudged.empty())
    page += "  no check that was asked for has anything to judge in this case\n";
  if (!e.runs.empty())
    page += "arithmetic    " +
            (e.subject.arithmetic.empty() ? "unknown: the bound takes the worst case" : e.subject.arithmetic) + "\n";
  if (!e.runs.empty()) page += fmt::format("output bits   {} ({} runs)\n", output_hash(e), e.runs.size());
  return page + fmt::format("case          {}\nreplay        {}\n", case_id(e.job.c), e.replay);
}

int finish(const Execution& e, const std::string& dump_folder, bool json) {
  if (!dump_folder.empty()) dump(e, dump_folder);
  fmt::print("{}", json ? json_of(e).text() + "\n" : page_of(e));
  return exit_code(e.judgement.status());
}

JsonText json_of(const Execution& e) {
  std::vector<JsonText> verdicts;
  std::vector<JsonMember> unjudged;
  for (const Unjudged& check : e.judgement.unjudged) unjudged.push_back({check.check, check.reason});
  for (const Verdict& verdict : e.judgement.verdicts) verdicts.push_back(JsonText::raw(print(verdict)));
  return json_object({{"case", print(e.job.c)},
                      {"id", case_id(e.job.c)},
                      {"kernel", e.subject.name},
                      {"config", e.job.config},
                      {"arithmetic", e.subject.arithmetic},
                      {"status", name_of(e.judgement.status())},
                      {"rejected", e.judgement.rejected},
                      {"verdicts", json_array(verdicts)},
                      {"unjudged", json_object(unjudged)},
                      {"runs", e.runs.size()},
                      {"output_bits", output_hash(e)},
                      {"kernel_seconds", e.judgement.kernel_seconds},
                      {"oracle_seconds", e.judgement.oracle_seconds},
                      {"replay", e.replay}});
}

}  // namespace flashproof
