// The engine: draw, execute, record, reduce; see campaign.h.
#include "fuzz/campaign.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include <sys/utsname.h>

#include "fuzz/build_info.h"
#include "fuzz/campaign_directory.h"
#include "fuzz/generate.h"
#include "fuzz/reduce.h"
#include "fuzz/steady_seconds.h"
#include "reference/errors.h"
#include "reference/threads.h"

namespace flashproof {
namespace {

namespace fs = std::filesystem;

constexpr int most_jobs = 1024;  // each has a process a kernel

std::string utc_time() {
  const std::time_t t = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&t));
  return text;
}

std::string machine_name() {
  utsname name{};
  uname(&name);
  return std::string(name.sysname) + " " + name.release + " " + name.machine + ", " +
         std::to_string(std::thread::hardware_concurrency()) + " cores";
}

std::vector<FileData> data_files(const std::vector<std::string>& paths) {
  std::vector<FileData> files;
  for (const std::string& path : paths) {
    if (!fs::exists(path)) throw UnavailableError("no such data file or folder: " + path);
    std::vector<std::string> found;
    if (fs::is_directory(path)) {
      for (const auto& entry : fs::directory_iterator(path))
        if (entry.path().extension() == ".safetensors") found.push_back(entry.path().string());
      std::sort(found.begin(), found.end());
    } else {
      found.push_back(path);
    }
    if (found.empty()) throw UnavailableError("no .safetensors file in " + path);
    for (const std::string& file : found) {
      files.push_back(FileData{file, "", 0, 0, 0});
      validate(files.back());
    }
  }
  return files;
}

/// Every case would be a finding; said once, before the campaign starts. A crash costs the cases that meet it.
void refuse_unreadable_arithmetic(const LoadedKernel& kernel) {
  const Problem problem;
  std::string reason;
  try {
    if (supports(kernel, problem, "", reason)) subject_of(kernel, problem, "");
  } catch (const BadDescription& bad) {
    if (bad.kind == "arithmetic") throw;
  }
}

std::vector<const LoadedKernel*> load_all(const std::vector<std::string>& names) {
  if (names.empty()) throw UsageError("no kernel to fuzz; `flashproof list kernels` shows what is there");
  std::vector<const LoadedKernel*> kernels;
  for (const std::string& name : names) {
    const LoadedKernel& kernel = load_kernel(name);
    require_device(kernel);
    parse_tunables(kernel);
    refuse_unreadable_arithmetic(kernel);
    kernels.push_back(&kernel);
  }
  return kernels;
}

Manifest manifest_of(const Settings& s) {
  const BuildInfo& build = build_info();
  Manifest m;
  m.seed = s.seed;
  m.cases = s.cases;
  m.seconds = s.seconds;
  m.work = s.work;
  m.kernels = s.kernels;
  for (const std::string& name : s.kernels) {
    const LoadedKernel& kernel = load_kernel(name);
    const Capabilities can(kernel);
    m.kernel_hashes.push_back(kernel.hash);
    m.kernel_features.push_back(can.features);
    m.kernel_dtypes.push_back(can.dtypes);
  }
  m.checks = s.checks;
  m.data = s.data;
  m.program_version = std::string(build.version) + " " + build.commit;
  m.compiler = std::string(build.compiler) + ", CUDA " + build.cuda;
  m.machine = machine_name();
  m.started = utc_time();
  return m;
}

/// The checks of a drawn case. `repeat` and `relations` take two or three runs more each, together more than half of
/// what the others take: where no check is named, a case has one of the two, by its data seed.
std::vector<std::string> checks_of(const Settings& settings, const Case& c) {
  if (!settings.checks.empty()) return settings.checks;
  const std::string left_out = c.recipe.seed % 2 == 0 ? "repeat" : "relations";
  std::vector<std::string> ids;
  for (const Check& check : all_checks())
    if (check.id != left_out) ids.push_back(check.id);
  return ids;
}

/// Workers of one engine thread, one a kernel, started when first needed.
class WorkerSet {
 public:
  explicit WorkerSet(const Limits& limits) : limits_(limits) {}
  Worker& of(const std::string& kernel) {
    std::unique_ptr<Worker>& worker = workers_[kernel];
    if (!worker) worker = std::make_unique<Worker>(kernel, limits_);
    return *worker;
  }

 private:
  Limits limits_;
  std::map<std::string, std::unique_ptr<Worker>> workers_;
};

/// The running state that engine threads share; every member below `mutex` is guarded by it.
struct Engine {
  const Settings& settings;
  const std::atomic<bool>& interrupt;
  std::vector<const LoadedKernel*> kernels;
  Range range;
  CampaignDirectory& directory;
  double deadline;  ///< for drawing new cases; infinity without a time budget
  std::mutex mutex;
  std::set<int64_t> done;  ///< indices that have a record
  int64_t next = 0;
  Summary summary;
  std::vector<Record> failures;
  std::string storage_error;
  std::string internal_error;
  bool stop = false;

  /// The next index without a record, or -1 when the campaign is over.
  int64_t take() {
    const std::lock_guard lock(mutex);
    if (stop || interrupt || now() > deadline) return -1;
    while (done.count(next)) ++next;
    if (settings.cases > 0 && next >= settings.cases) return -1;
    return next++;
  }

  void store(const Record& record) {
    const std::lock_guard lock(mutex);
    if (!storage_error.empty()) return;
    try {
      directory.append(record);
    } catch (const UnavailableError& error) {
      storage_error = error.what();
      stop = true;
      return;
    }
    add(summary, record);
    if (record.status() == Status::fail) failures.push_back(record);
    if (settings.max_findings > 0 && int64_t(summary.findings.size()) >= settings.max_findings) stop = true;
  }

  /// One engine thread.
  void work() {
    default_threads = 1;
    WorkerSet workers(settings.limits);
    for (int64_t index = take(); index >= 0; index = take()) {
      const LoadedKernel& kernel = *kernels[size_t(index) % kernels.size()];
      try {
        const Drawn drawn = generate(kernel, range, settings.seed, uint64_t(index));
        const Job job{drawn.c, drawn.config, checks_of(settings, drawn.c)};
        const Judgement judgement = execute(workers.of(kernel.name), kernel, job);
        // A case whose run the interruption may have cut short has no record and runs again on resume.
        if (interrupt) return;
        Record record = record_of(kernel, job, judgement);
        record.index = index;
        record.tile_m = drawn.tile.m, record.tile_n = drawn.tile.n;
        store(record);
      } catch (const std::exception& error) {
        const std::lock_guard lock(mutex);
        if (internal_error.empty())
          internal_error = "case " + std::to_string(index) + " of seed " + std::to_string(settings.seed) + " on " +
                           kernel.name + ": " + error.what();
        stop = true;
      }
    }
  }
};

void load_earlier_records(Engine& engine, const std::string& directory) {
  for (const Record& record : read_records(directory)) {
    if (!engine.done.insert(record.index).second) continue;
    add(engine.summary, record);
    if (record.status() == Status::fail) engine.failures.push_back(record);
  }
}

void run_threads(Engine& engine, int jobs, const ShowProgress& progress, double start) {
  std::vector<std::thread> threads;
  std::atomic<int> running = jobs;
  for (int t = 0; t < jobs; ++t)
    threads.emplace_back([&] {
      engine.work();
      --running;
    });
  for (double shown = 0; running > 0; std::this_thread::sleep_for(std::chrono::milliseconds(50))) {
    if (!progress || now() - shown < 0.5) continue;
    shown = now();
    Summary snapshot;
    {
      const std::lock_guard lock(engine.mutex);
      engine.summary.cells = engine.summary.coverage.summary(capabilities_of(engine.summary.manifest));
      snapshot = engine.summary;
    }
    progress(snapshot, now() - start, false);
  }
  for (std::thread& thread : threads) thread.join();
}

StopReason reason_of(const Engine& engine) {
  if (!engine.storage_error.empty()) return StopReason::storage;
  if (!engine.internal_error.empty()) return StopReason::internal;
  if (engine.interrupt) return StopReason::interrupted;
  if (engine.stop) return StopReason::findings;
  return now() > engine.deadline ? StopReason::time_over : StopReason::cases_done;
}

/// The settings of a resumed campaign are those of its manifest; only the budget is the caller's.
Settings with_manifest(Settings settings, const Manifest& manifest) {
  settings.kernels = manifest.kernels;
  settings.checks = manifest.checks;
  settings.data = manifest.data;
  settings.seed = manifest.seed;
  settings.work = manifest.work;
  for (size_t k = 0; k < manifest.kernels.size(); ++k)
    if (load_kernel(manifest.kernels[k]).hash != manifest.kernel_hashes[k])
      throw UsageError("kernel " + manifest.kernels[k] +
                       " is not the one this campaign was started with (its hash differs); " +
                       "start a new campaign with another --out");
  return settings;
}

struct Failure {
  const Record* record;
  const Verdict* verdict;
};

/// The one with the largest ratio and the smallest one; of equals the first of the campaign, whatever order they came
/// in.
const Failure& worst_of(const std::vector<Failure>& failures) {
  return *std::max_element(failures.begin(), failures.end(), [](const Failure& a, const Failure& b) {
    return std::pair(a.verdict->ratio, -a.record->index) < std::pair(b.verdict->ratio, -b.record->index);
  });
}
const Failure& smallest_of(const std::vector<Failure>& failures) {
  const auto size = [](const Failure& f) { return std::pair(size_of(parse_case(f.record->text)), f.record->index); };
  return *std::min_element(failures.begin(), failures.end(),
                           [&](const Failure& a, const Failure& b) { return size(a) < size(b); });
}

void write_worst(const std::string& path, const Failure& worst) {
  const Record& record = *worst.record;
  const Job job{parse_case(record.text), record.config, {worst.verdict->check}};
  write_file(path, print(witness_of(load_kernel(record.kernel), job, *worst.verdict)));
}

/// Reduces `small` and writes what is left, unless interrupted.
void write_smallest(const std::string& path, const std::string& bucket, const Failure& small, const RunJob& run,
                    double seconds, const std::atomic<bool>& interrupt) {
  const LoadedKernel& kernel = load_kernel(small.record->kernel);
  const std::string check = small.verdict->check;
  Verdict last = *small.verdict;
  const Interesting interesting = [&](const Case& c, const std::string& config) {
    if (interrupt) return false;
    const Judgement judgement = run(kernel.name, Job{c, config, {check}});
    const Verdict* verdict = failure_in(judgement, kernel, bucket);
    if (verdict) last = *verdict;
    return verdict != nullptr;
  };
  const Reduced reduced =
      reduce(parse_case(small.record->text), small.record->config, interesting, seconds, parse_tunables(kernel));
  Witness witness = witness_of(kernel, Job{reduced.c, reduced.config, {check}}, last);
  witness.reduce_seconds = reduced.seconds;
  witness.reduce_runs = reduced.runs;
  if (!interrupt) write_file(path, print(witness));
}

}  // namespace

const char* name_of(StopReason reason) {
  switch (reason) {
    case StopReason::cases_done:
      return "all cases done";
    case StopReason::time_over:
      return "time is over";
    case StopReason::interrupted:
      return "interrupted; add --resume to go on";
    case StopReason::findings:
      return "enough findings";
    case StopReason::storage:
      return "a record could not be written";
    case StopReason::internal:
      return "an internal error";
  }
  return "";
}

std::string write_witnesses(const std::string& directory, const std::vector<Record>& failures, const RunJob& run,
                            double seconds_a_bucket, const std::atomic<bool>& interrupt) {
  std::map<std::string, std::vector<Failure>> buckets;
  for (const Record& record : failures)
    for (const Verdict& verdict : record.verdicts)
      if (verdict.status == Status::fail)
        buckets[bucket_of(load_kernel(record.kernel), verdict)].push_back({&record, &verdict});
  std::string first_error;
  for (const auto& [bucket, list] : buckets) {
    if (interrupt) break;
    const std::string folder = (fs::path(directory) / "findings" / bucket).string();
    try {
      fs::create_directories(folder);
      write_worst(folder + "/worst.json", worst_of(list));
      if (fs::exists(folder + "/smallest.json")) continue;
      write_smallest(folder + "/smallest.json", bucket, smallest_of(list), run, seconds_a_bucket, interrupt);
    } catch (const std::exception& error) {
      if (first_error.empty()) first_error = "reduction failed: " + bucket + ": " + error.what();
    }
  }
  return first_error;
}

CampaignEnd run_campaign(const Settings& asked, const std::atomic<bool>& interrupt, const ShowProgress& progress) {
  const double start = now();
  Settings settings = asked;
  if (settings.jobs > most_jobs)
    throw UsageError("at most " + std::to_string(most_jobs) + " engine threads, not " + std::to_string(settings.jobs));
  if (!settings.resume) validate_check_ids(settings.checks);
  Manifest manifest = settings.resume ? read_manifest(settings.directory) : manifest_of(settings);
  if (settings.resume) settings = with_manifest(settings, manifest);
  const std::vector<const LoadedKernel*> kernels = load_all(settings.kernels);
  const Range range{settings.work, data_files(settings.data)};
  CampaignDirectory directory(settings.directory, manifest, settings.resume);

  const double infinity = std::numeric_limits<double>::infinity();
  const double deadline = settings.seconds > 0 ? start + 0.9 * settings.seconds : infinity;
  Engine engine{settings, interrupt, kernels, range, directory, deadline, {}, {}, 0, {}, {}, "", "", false};
  engine.summary.manifest = manifest;
  if (settings.resume) load_earlier_records(engine, settings.directory);

  const int cores = int(std::max(1u, std::thread::hardware_concurrency()));
  run_threads(engine, settings.jobs > 0 ? settings.jobs : cores, progress, start);

  CampaignEnd end;
  end.reason = reason_of(engine);
  end.storage_error = engine.storage_error;
  end.internal_error = engine.internal_error;
  if (!engine.failures.empty() && end.reason != StopReason::storage && end.reason != StopReason::interrupted) {
    if (progress) progress(engine.summary, now() - start, true);
    WorkerSet workers(settings.limits);
    const RunJob run = [&](const std::string& kernel, const Job& job) {
      return execute(workers.of(kernel), load_kernel(kernel), job);
    };
    const std::string error =
        write_witnesses(settings.directory, engine.failures, run, settings.reduce_seconds, interrupt);
    if (end.internal_error.empty()) end.internal_error = error;
  }
  end.summary = summarize(settings.directory);
  end.seconds = now() - start;
  return end;
}

int exit_code(const CampaignEnd& end) {
  if (end.reason == StopReason::storage) return 69;
  if (!end.summary.findings.empty()) return 1;
  if (!end.internal_error.empty()) return 70;
  if (end.reason == StopReason::interrupted) return 130;
  int64_t judged = 0;
  for (const auto& [name, count] : end.summary.kernels) judged += count.passed;
  return judged == 0 ? 2 : 0;
}

}  // namespace flashproof
