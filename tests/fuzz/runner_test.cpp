// How a kernel is run: each fault of a plug-in gives exactly its finding, a right kernel gives none in any layout, and
// no crash, hang or kill costs more than one run.
#include "fuzz/runner.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <thread>

#include "fuzz/device_memory.h"
#include "fuzz/generate.h"
#include "oracle/value.h"
#include "reference/errors.h"
#include "reference/sha256.h"

namespace flashproof {
namespace {

using namespace std::chrono_literals;

#ifdef __SANITIZE_ADDRESS__
constexpr bool sanitized = true;  // a crash is then AddressSanitizer's report and an exit
#else
constexpr bool sanitized = false;
#endif

const std::string plugins = FLASHPROOF_TEST_PLUGINS;
const std::string faulty = plugins + "/faulty.so";

Run run_of(const std::string& text, const Placement& placement = {}) { return {parse_case(text), placement, {}}; }

std::string findings(const MemoryReport& report) {
  return report.red_zone + report.input_changed + report.unwritten + report.tail_touched;
}

template <class Error, class Code>
std::string message_of(const Code& code) {
  try {
    code();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// ---- the library

TEST(KernelLibrary, SaysWhyAPlugInCannotBeUsed) {
  const std::pair<const char*, const char*> reasons[] = {
      {"/unusable_0.so", "does not export flashproof_kernel_entry"},
      {"/unusable_1.so", "does not know this program's ABI 1"},
      {"/unusable_2.so", "is of ABI 2, this program of 1"},
      {"/unusable_3.so", "its table has 128 bytes, not 136"},
      {"/unusable_4.so", "lacks the function `forward`"},
      {"/unusable_5.so", "lacks the function `supports`"},
      {"/unusable_9.so", "its name is 'un usable'"},
      {"/unusable_10.so", "its convention lse_base is 3, not of 0 to 2"},
      {"/none.so", "no such file"},
  };
  static_assert(sizeof(flashproof_kernel) == 136);
  for (const auto& [file, reason] : reasons) {
    const std::string message = message_of<UnavailableError>([&] { load_kernel(plugins + file); });
    EXPECT_TRUE(contains(message, reason) && contains(message, file)) << message;
  }
  const std::string text_file = FLASHPROOF_TEST_DATA "/fuzz/plugins/faulty.c";
  const std::string message = message_of<UnavailableError>([&] { load_kernel(text_file); });
  EXPECT_TRUE(contains(message, "invalid ELF header")) << message;
}

TEST(KernelLibrary, NamesTheNearestBuiltInKernel) {
  const std::string message = message_of<UsageError>([] { load_kernel("cpu:flsh2"); });
  EXPECT_TRUE(contains(message, "'cpu:flsh2'") && contains(message, "did you mean 'cpu:flash2'?")) << message;
  for (const std::string& name : builtin_kernels()) EXPECT_EQ(load_kernel(name).name, name);
}

TEST(KernelLibrary, KnowsAPlugInByItsContent) {
  const LoadedKernel& kernel = load_kernel(faulty);
  EXPECT_EQ(kernel.hash, sha256_of_file(faulty));
  EXPECT_EQ(&kernel, &load_kernel(faulty));
}

TEST(KernelLibrary, OffersOnlyWhatTheTableAllows) {
  const LoadedKernel& kernel = load_kernel(faulty);
  const std::pair<const char*, const char*> rejected[] = {
      {"bf16 causal q3 k2", "causal, causal or window with Sk < Sq"},
      {"bf16 h4/2", "grouped heads"},
      {"fp16", "does not take fp16"},
      {"bf16 d68", "above the kernel's 64"},
      {"bf16 d6", "not a multiple of the kernel's 4"},
      {"bf16 seqq=[3] seqk=[4]", "packed"},
      {"bf16 k64 pages=shuffle(1,16)", "paged"},
  };
  for (const auto& [text, expected] : rejected) {
    std::string reason;
    EXPECT_FALSE(supports(kernel, parse_problem(text), "", reason)) << text;
    EXPECT_TRUE(contains(reason, expected)) << reason;
  }
  std::string reason;
  EXPECT_TRUE(supports(kernel, parse_problem("bf16 b2 q5 k7 d8 usedq=[3,5] gap=3 bwd"), "", reason)) << reason;
  EXPECT_FALSE(supports(kernel, parse_problem("bf16"), "reject", reason));
  EXPECT_EQ(reason, "not today");
}

// ---- faults, each with exactly its finding

struct Fault {
  const char* config;
  std::string MemoryReport::*kind;
  const char* finding;
  const char* text = "bf16 b2 h2 q5 k6 d8 gap=3";
};

TEST(Runner, ReportsEachFaultAsItsFinding) {
  const std::string used = "bf16 b2 h2 q5 k6 d8 usedq=[5,3]";
  const Fault faults[] = {
      {"past_end", &MemoryReport::red_zone, "o: written 0 elements past its end", "bf16 b2 h2 q5 k6 d8"},
      {"before_start", &MemoryReport::red_zone, "o: written 3 elements before its start"},
      {"workspace_past_end", &MemoryReport::red_zone, "workspace: written 0 elements past its end"},
      {"gap", &MemoryReport::red_zone, "o: element 8 in the gap between rows was written"},
      {"tail", &MemoryReport::tail_touched, "o: element 64 past the used length was written",
       "bf16 b2 h2 q5 k6 d8 usedq=[3,5]"},
      {"input", &MemoryReport::input_changed, "k: element 0 was written"},
      {"lengths", &MemoryReport::input_changed, "seqused_q: element 0 was written", used.c_str()},
      {"unwritten", &MemoryReport::unwritten, "O[b=0 i=4 h=0 c=7] was not written"},
      {"unwritten_dv", &MemoryReport::unwritten, "dV[b=0 j=0 h=0 c=0] was not written", "bf16 b2 h2 q5 k6 d8 bwd"},
      {"input_o", &MemoryReport::input_changed, "o: element 0 was written", "fp32 b2 h2 q5 k6 d8 bwd"},
  };
  for (const Fault& fault : faults) {
    const RunResult result = run_in_process(load_kernel(faulty), run_of(fault.text), fault.config);
    ASSERT_EQ(result.status, RunStatus::ok) << result.message;
    EXPECT_EQ(result.memory.*fault.kind, fault.finding);
    EXPECT_EQ(findings(result.memory), fault.finding) << "and nothing else";
    EXPECT_EQ(findings(run_in_process(load_kernel(faulty), run_of(fault.text), "").memory), "") << "without the fault";
  }
}

TEST(Runner, SaysHowARunEnded) {
  Worker worker(faulty, {.seconds = 1});
  const struct {
    const char* config;
    RunStatus status;
    const char* message;
    const char* text = "bf16 q5 k6 d8";
  } ends[] = {
      {"crash", RunStatus::crash, "crashed: SIGSEGV"},
      {"last_words", RunStatus::crash, "crashed: SIGABRT; its last output:\ncannot go on\n"},
      {"leave", RunStatus::crash, "exited with code 3"},
      {"hang", RunStatus::timeout, "did not finish within 1 s (--timeout)"},
      {"crash_in_backward", RunStatus::crash, "crashed: SIGFPE", "bf16 q5 k6 d8 bwd"},
      {"error", RunStatus::error, "tensor cores are tired"},
      {"reject", RunStatus::rejected, "not today"},
      {"absurd_status", RunStatus::error, "returned status 7, which the ABI does not have; "},
      {"absurd_workspace", RunStatus::error, "asks for a workspace of 9223372036854775807 bytes"},
      {"chatter", RunStatus::ok, ""},
  };
  for (const auto& end : ends) {
    const RunResult result = worker.run(run_of(end.text), end.config);
    EXPECT_EQ(result.status, end.status) << end.config;
    if (result.status != RunStatus::crash || !sanitized) {
      EXPECT_EQ(result.message, end.message);
    }
    const RunResult next = worker.run(run_of(end.text), "");
    EXPECT_EQ(next.status, RunStatus::ok) << "after " << end.config << ": " << next.message;
    EXPECT_EQ(findings(next.memory), "");
  }
}

TEST(Runner, KeepsTheTimeOfAKernelThatNeverStopsPrinting) {
  Worker worker(faulty, {.seconds = 1});
  const RunResult result = worker.run(run_of("bf16 q5 k6 d8"), "babble");
  EXPECT_EQ(result.status, RunStatus::timeout);
  EXPECT_TRUE(contains(result.message, "did not finish within 1 s (--timeout); its last output:\n"))
      << result.message.substr(0, 80);
  EXPECT_EQ(worker.run(run_of("bf16 q5 k6 d8"), "").status, RunStatus::ok);
}

TEST(Runner, LimitsTheMemoryOfAKernel) {
  if (sanitized) GTEST_SKIP() << "AddressSanitizer maps more than any limit";
  Worker worker(faulty, {.seconds = 20, .memory_bytes = 512l << 20});
  const RunResult result = worker.run(run_of("bf16 q5 k6 d8"), "memory");
  EXPECT_EQ(result.status, RunStatus::error);
  EXPECT_LT(std::atoi(result.message.c_str()), 512) << "MiB taken";
  const RunResult next = worker.run(run_of("bf16 b8 h8 q512 k512 d64"), "");
  EXPECT_EQ(next.status, RunStatus::ok) << "what one run leaked, the next does not miss: " << next.message;
}

TEST(Runner, RefusesWhatMemoryCannotHold) {
  Worker worker(faulty, {});
  const auto large = run_of("fp32 b1 h1 q1000000000 usedq=[1] k2 d64");
  EXPECT_TRUE(contains(message_of<UnavailableError>([&] { worker.run(large, ""); }), "GiB of memory"));
  EXPECT_EQ(worker.run(run_of("bf16 q5 k6 d8"), "").status, RunStatus::ok);
}

TEST(Runner, PassesOnWhatIsNotTheKernelsFault) {
  Worker worker("cpu:none", {});
  EXPECT_TRUE(
      contains(message_of<UsageError>([&] { worker.run(run_of("bf16"), ""); }), "there is no kernel 'cpu:none'"));
  Worker absent(plugins + "/none.so", {});
  EXPECT_TRUE(contains(message_of<UnavailableError>([&] { absent.run(run_of("bf16"), ""); }), "no such file"));
  setenv("FLASHPROOF_PROGRAM", "/bin/false", 1);
  Worker no_worker(faulty, {});
  const std::string message = message_of<std::runtime_error>([&] { no_worker.run(run_of("bf16"), ""); });
  unsetenv("FLASHPROOF_PROGRAM");
  EXPECT_EQ(message, "the worker program did not start: exited with code 1");
}

TEST(Runner, ReportsADeviceThatIsNotThere) {
  std::string reason;
  if (cuda_available(reason)) GTEST_SKIP() << "a GPU is here";
  EXPECT_FALSE(reason.empty());
  EXPECT_THROW(stream_of(FLASHPROOF_CUDA), UnavailableError);
}

// ---- kills

bool runs(pid_t process) {  // not gone, and not waiting to be reaped
  std::ifstream stat("/proc/" + std::to_string(process) + "/stat");
  std::string number, name, state;
  return stat >> number >> name >> state && state != "Z";
}

bool ends_within(pid_t process, std::chrono::seconds time) {
  for (const auto end = std::chrono::steady_clock::now() + time; std::chrono::steady_clock::now() < end;) {
    if (!runs(process)) return true;
    std::this_thread::sleep_for(10ms);
  }
  return false;
}

TEST(Runner, SurvivesTheDeathOfItsWorker) {
  Worker worker(faulty, {.seconds = 60});
  ASSERT_EQ(worker.run(run_of("bf16 q5 k6 d8"), "").status, RunStatus::ok);
  const pid_t process = worker.process();
  std::thread killer([process] {
    std::this_thread::sleep_for(300ms);
    kill(process, SIGKILL);
  });
  const RunResult killed = worker.run(run_of("bf16 q5 k6 d8"), "hang");
  killer.join();
  EXPECT_EQ(killed.status, RunStatus::crash);
  EXPECT_EQ(killed.message, "crashed: SIGKILL");
  ASSERT_EQ(worker.run(run_of("bf16 q5 k6 d8"), "").status, RunStatus::ok);

  kill(worker.process(), SIGKILL);  // between runs: nobody's fault, and not noticed
  ASSERT_TRUE(ends_within(worker.process(), 5s));
  EXPECT_EQ(worker.run(run_of("bf16 q5 k6 d8"), "").status, RunStatus::ok);
}

TEST(Runner, TakesNoAnswerOfAnotherCase) {
  Worker worker(faulty, {.seconds = 5});
  EXPECT_EQ(worker.run(run_of("bf16 q5 k6 d8"), "answer_twice").status, RunStatus::ok);
  std::this_thread::sleep_for(300ms);  // the kernel's second process has answered, too
  const RunResult next = worker.run(run_of("bf16 q7 k6 d8"), "");
  EXPECT_EQ(next.status, RunStatus::crash);
  EXPECT_NE(next.message.find("not those of the case"), std::string::npos) << next.message;
  EXPECT_EQ(worker.run(run_of("bf16 q7 k6 d8"), "").status, RunStatus::ok);
}

TEST(Runner, TakesALimitOfAnyLength) {
  Worker worker(faulty, {.seconds = 1e300});
  EXPECT_EQ(worker.run(run_of("bf16 q5 k6 d8"), "").status, RunStatus::ok);
}

TEST(Runner, LeavesNoWorkerBehindAKilledEngine) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t engine = fork();
  if (engine == 0) {
    Worker worker(faulty, {.seconds = 60});
    worker.run(run_of("bf16 q5 k6 d8"), "");
    const pid_t process = worker.process();
    if (write(ends[1], &process, sizeof process) == sizeof process) worker.run(run_of("bf16 q5 k6 d8"), "hang");
    _exit(0);
  }
  pid_t worker = -1;
  ASSERT_EQ(read(ends[0], &worker, sizeof worker), ssize_t(sizeof worker));
  std::this_thread::sleep_for(300ms);  // until the worker hangs in the kernel
  EXPECT_TRUE(runs(worker));
  kill(engine, SIGKILL);
  waitpid(engine, nullptr, 0);
  EXPECT_TRUE(ends_within(worker, 5s));
  close(ends[0]);
  close(ends[1]);
}

// ---- right kernels

/// The same logical data in each way to lay it out that the lengths allow.
std::vector<std::string> layouts_of(const std::string& rest, int64_t q, int64_t k) {
  const std::string nq = std::to_string(q), nk = std::to_string(k), wide_q = std::to_string(q + 3);
  const std::string wide_k = std::to_string(k + 5), both_q = "[" + nq + "," + nq + "]",
                    both_k = "[" + nk + "," + nk + "]";
  const std::string dense = rest + " q" + nq + " k" + nk;
  return {
      dense,
      dense + " gap=5",
      dense + " layout=bhsd",
      dense + " layout=bhsd gap=8",
      rest + " seqq=" + both_q + " seqk=" + both_k,
      rest + " q" + nq + " seqk=" + both_k + " gap=1",
      rest + " q" + wide_q + " usedq=" + both_q + " k" + wide_k + " usedk=" + both_k,
      rest + " q" + wide_q + " usedq=" + both_q + " k" + wide_k + " usedk=" + both_k + " layout=bhsd",
      rest + " seqq=[" + wide_q + "," + nq + "] usedq=" + both_q + " seqk=[" + nk + "," + wide_k + "] usedk=" + both_k,
      dense + " pages=shuffle(3,4)",
      rest + " q" + nq + " k" + wide_k + " usedk=" + both_k + " pages=shuffle(9,1) gap=2",
  };
}

TEST(Runner, GivesTheSameBitsInEveryLayout) {
  const std::string problems[] = {"bf16 b2 h4/2 d8 causal", "fp16 b2 h2 d12/8 window=2,1 bwd",
                                  "fp32 b2 h4/1 d8 alibi sink bwd", "bf16 b2 h2 d8 bias=bhqk causal bwd"};
  for (const char* kernel : {"cpu:standard", "cpu:flash2", "cpu:decode"})
    for (const std::string& problem : problems)
      for (const auto& [q, k] : {std::pair{5, 9}, {1, 17}, {7, 3}, {4, 4}, {3, 0}}) {
        const LoadedKernel& loaded = load_kernel(kernel);
        std::string reason;
        if (!supports(loaded, parse_problem(problem), "", reason)) continue;
        Outputs first;
        for (const std::string& text : layouts_of(problem, q, k))
          for (const Placement& placement :
               {Placement{}, Placement{.nan_outside = false, .largest_hidden = true, .poison = 2}}) {
            const RunResult result = run_in_process(loaded, run_of(text, placement), "");
            ASSERT_EQ(result.status, RunStatus::ok) << kernel << " " << text << ": " << result.message;
            EXPECT_EQ(findings(result.memory), "") << kernel << " " << text;
            if (first.o.shape.empty()) first = result.outputs;
            for (int id = 0; id < output_count; ++id)
              EXPECT_EQ(tensor_of(result.outputs, OutputId(id)), tensor_of(first, OutputId(id)))
                  << kernel << " " << text << " " << name_of(OutputId(id));
          }
      }
}

TEST(Runner, FindsNothingInRightKernelsOnRandomCases) {
  for (const std::string& name : builtin_kernels()) {
    const LoadedKernel& kernel = load_kernel(name);
    std::string absent;
    if (!device_available(kernel, absent)) continue;
    int ran = 0;
    for (uint64_t index = 0; index < 150; ++index) {
      const Drawn drawn = generate(kernel, Range{.work = 1e5, .files = {}}, 11, index);
      std::string reason;
      if (!supports(kernel, drawn.c.problem, drawn.config, reason)) continue;
      const RunResult result = run_in_process(kernel, {drawn.c, {.poison = index}, {}}, drawn.config);
      ASSERT_EQ(result.status, RunStatus::ok) << print(drawn.c) << ": " << result.message;
      EXPECT_EQ(findings(result.memory), "") << print(drawn.c);
      ++ran;
    }
    EXPECT_GT(ran, 100) << name;
  }
}

TEST(Runner, GivesTheSameInAWorkerAsInThisProcess) {
  Worker worker("cpu:flash2", {});
  for (const char* text :
       {"bf16 b2 h2 q5 k9 d8 causal", "fp32 h2 q3 k4 d8 sink bias=bhqk bwd", "fp16 seqq=[0,3] seqk=[2,0] d8"}) {
    const RunResult there = worker.run(run_of(text), "tile_m=16"),
                    here = run_in_process(load_kernel("cpu:flash2"), run_of(text), "tile_m=16");
    EXPECT_EQ(there.status, RunStatus::ok) << there.message;
    for (int id = 0; id < output_count; ++id)
      EXPECT_EQ(tensor_of(there.outputs, OutputId(id)), tensor_of(here.outputs, OutputId(id))) << text;
  }
}

// ---- backward alone

TEST(Runner, GivesABackwardAloneTheExactForward) {
  const auto exact = run_of("bf16 b2 h2 q5 usedq=[3,5] k6 d8 bwd=exact");
  const Inputs inputs = make_inputs(exact.c);
  Outputs expected = make_outputs(inputs.problem);
  correctly_rounded_forward(inputs, expected.o, expected.lse);
  for (const auto& [kernel, config] : {std::pair<std::string, const char*>{"cpu:flash2", ""}, {faulty, "crash"}}) {
    const RunResult result = run_in_process(load_kernel(kernel), exact, config);  // whose forward would crash
    ASSERT_EQ(result.status, RunStatus::ok) << result.message;
    EXPECT_EQ(findings(result.memory), "");
    EXPECT_EQ(result.outputs.o, expected.o);
    EXPECT_EQ(result.outputs.lse, expected.lse);
  }
}

std::vector<float> seen_lse;  // by the backward below

TEST(Runner, GivesTheExactLInTheKernelsConventions) {
  flashproof_kernel table = {};
  table.struct_size = sizeof table, table.abi = FLASHPROOF_ABI;
  table.conventions = FLASHPROOF_DEFAULT_CONVENTIONS;
  table.conventions.lse_base = FLASHPROOF_LSE_BASE_2;
  table.conventions.empty_lse = FLASHPROOF_EMPTY_LSE_PLUS_INFINITY;
  table.supports = [](const flashproof_problem*, const char*, char*, size_t) { return FLASHPROOF_OK; };
  table.backward = [](const flashproof_call* c, const char*, void*, char*, size_t) {
    const auto* lse = static_cast<const float*>(c->lse.data);
    seen_lse.assign(lse, lse + c->lse.shape[2]);
    return FLASHPROOF_OK;
  };
  const auto exact = run_of("bf16 h1 q4 k2 d8 causal bwd=exact");  // rows 0 and 1 see no key, row 2 one
  const RunResult result = run_in_process({"base 2", "", "", &table}, exact, "");
  ASSERT_EQ(result.status, RunStatus::ok) << result.message;
  EXPECT_EQ(result.memory.unwritten, "dQ[b=0 i=0 h=0 c=0] was not written");
  const Inputs inputs = make_inputs(exact.c);
  ASSERT_EQ(seen_lse.size(), 4u);
  for (int row : {0, 1}) EXPECT_EQ(seen_lse[row], INFINITY);
  for (int row : {2, 3}) {
    const double base_2 = enclose(inputs, OutputId::lse, row, 1e-12).mid / std::log(2.0);
    EXPECT_EQ(seen_lse[row], float(base_2));
  }
}

}  // namespace
}  // namespace flashproof

/// Workers are this program again.
int main(int count, char** words) {
  if (count == 4 && std::string(words[1]) == "worker") return flashproof::serve_runs(words[3], 3, 4);
  testing::InitGoogleTest(&count, words);
  return RUN_ALL_TESTS();
}
