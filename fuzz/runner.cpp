// The engine's side: starts workers, sends runs, waits with a deadline, and tells a kernel's crash from a fault of
// ours.
#include "fuzz/runner.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <stdexcept>

#include "fuzz/worker_protocol.h"
#include "reference/errors.h"
#include "reference/inputs.h"
#include "reference/threads.h"

extern char** environ;

namespace flashproof {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kept_output = 4096;  // bytes of what a worker printed last, for the message of a crash
constexpr int drained_at_once = 64;   // blocks: a kernel that never stops printing must not keep us from its limit
constexpr double preparation_seconds = 600;  // data and exact O, L are our work: a limit against our own hangs only
constexpr double longest_limit = 1e9;        // seconds: what a clock can add to now
constexpr int worker_input = 3, worker_output = 4;

std::runtime_error system_error(const char* what) {
  return std::runtime_error(std::string(what) + ": " + std::strerror(errno));
}

/// A copy of the descriptor that dup2 to the worker's numbers cannot hit.
int moved_up(int descriptor) {
  const int copy = fcntl(descriptor, F_DUPFD_CLOEXEC, 16);
  close(descriptor);
  if (copy < 0) throw system_error("cannot start a worker");
  return copy;
}

/// A program whose main() does not know the verb `worker` would start itself without end: a worker starts none.
constexpr const char* worker_mark = "FLASHPROOF_IS_WORKER";

std::vector<char*> worker_environment() {
  static char mark[] = "FLASHPROOF_IS_WORKER=1";
  std::vector<char*> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) variables.push_back(*variable);
  variables.push_back(mark);
  variables.push_back(nullptr);
  return variables;
}

/// The worker program with the socket as input and output and the pipe as stdout and stderr; in its own process group,
/// so that an interrupt on the terminal reaches the engine alone.
int spawn(const std::string& kernel, int socket, int log) {
  if (std::getenv(worker_mark) != nullptr)
    throw std::runtime_error(
        "a worker may not start workers: let main() serve the verb `worker`, or name flashproof in FLASHPROOF_PROGRAM");
  const char* program = std::getenv("FLASHPROOF_PROGRAM");
  if (program == nullptr) program = "/proc/self/exe";
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, log, 1);
  posix_spawn_file_actions_adddup2(&files, log, 2);
  posix_spawn_file_actions_adddup2(&files, socket, worker_input);
  posix_spawn_file_actions_adddup2(&files, socket, worker_output);
  posix_spawn_file_actions_addclosefrom_np(&files, worker_output + 1);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, standard;
  sigemptyset(&none);
  sigemptyset(&standard);
  for (int signal : {SIGINT, SIGTERM, SIGPIPE, SIGHUP}) sigaddset(&standard, signal);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &standard);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::string words[] = {"flashproof", "worker", "--kernel", kernel};
  char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(), nullptr};
  pid_t process = -1;
  const int error = posix_spawn(&process, program, &files, &attributes, arguments, worker_environment().data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (error != 0)
    throw std::runtime_error(std::string("cannot start the worker ") + program + ": " + std::strerror(error));
  return process;
}

std::string how_it_ended(int status) {
  if (!WIFSIGNALED(status)) return "exited with code " + std::to_string(WEXITSTATUS(status));
  const char* name = sigabbrev_np(WTERMSIG(status));
  return "crashed: SIG" + (name ? std::string(name) : std::to_string(WTERMSIG(status)));
}

/// A kernel that writes through our memory or forks may have sent anything: what is judged must have the case's shapes.
void require_outputs_of(const Problem& p, const RunResult& result) {
  if (result.status != RunStatus::ok) return;
  const Outputs wanted = make_outputs(p);
  for (int id = 0; id < output_count; ++id) {
    const Tensor &got = tensor_of(result.outputs, OutputId(id)), &want = tensor_of(wanted, OutputId(id));
    if (got.dtype != want.dtype || got.shape != want.shape || got.bytes.size() != want.bytes.size())
      throw TornMessage("its outputs are not those of the case");
  }
}

[[noreturn]] void rethrow(const Frame& frame) {
  if (frame.tag == Tag::usage_error) throw UsageError(frame.payload);
  if (frame.tag == Tag::unavailable) throw UnavailableError(frame.payload);
  throw std::runtime_error("worker: " + frame.payload);
}

}  // namespace

struct Worker::State {
  std::string kernel;
  Limits limits;
  pid_t process = -1;
  int socket = -1, log = -1;
  std::string received, printed;
  bool ready = false;       ///< the process is a worker
  bool kernel_ran = false;  ///< in the current run the kernel's code was entered
  std::string end;          ///< how the last process ended

  enum class Received { frame, closed, late };

  void start();
  void stop();
  void drain_log();
  void send_all(const std::string& bytes);
  Received receive(Frame& frame, Clock::time_point deadline);
  std::optional<RunResult> exchange(const Problem* problem, const std::string& request);
  RunResult exchange_or_restart(const Problem* problem, const std::string& request);
  RunResult ended(RunStatus status, const std::string& message);
  std::string with_output(const std::string& message) const;
};

void Worker::State::start() {
  int sockets[2], logs[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) throw system_error("cannot start a worker");
  if (pipe2(logs, O_CLOEXEC) != 0) throw system_error("cannot start a worker");
  socket = sockets[0], log = logs[0];
  fcntl(log, F_SETFL, O_NONBLOCK);
  received.clear(), printed.clear();
  ready = false;
  const int worker_socket = moved_up(sockets[1]), worker_log = moved_up(logs[1]);
  process = spawn(kernel, worker_socket, worker_log);
  close(worker_socket);
  close(worker_log);
}

/// Ends the process with all that it started; `end` says how it ended, which for one that has ended is by itself.
void Worker::State::stop() {
  if (process > 0) {
    kill(-process, SIGKILL);
    int status = 0;
    while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
    }
    end = how_it_ended(status);
    drain_log();
  }
  if (socket >= 0) close(socket);
  if (log >= 0) close(log);
  process = -1, socket = -1, log = -1;
}

void Worker::State::drain_log() {
  char block[1 << 12];
  for (int blocks = 0; log >= 0 && blocks < drained_at_once; ++blocks) {
    const ssize_t count = read(log, block, sizeof block);
    if (count < 0) return;
    if (count == 0) {
      close(log);
      log = -1;
      return;
    }
    printed.append(block, count);
    if (printed.size() > kept_output) printed.erase(0, printed.size() - kept_output);
  }
}

/// What cannot be sent will show as the closed connection that it is.
void Worker::State::send_all(const std::string& bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t count = ::send(socket, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (count < 0 && errno != EINTR) return;
    if (count > 0) done += count;
  }
}

Worker::State::Received Worker::State::receive(Frame& frame, Clock::time_point deadline) {
  while (!take_frame(received, frame)) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return Received::late;
    pollfd ends[2] = {{socket, POLLIN, 0}, {log, POLLIN, 0}};
    if (poll(ends, 2, int(std::min<int64_t>(left, 60'000))) < 0 && errno != EINTR) throw system_error("poll");
    if (ends[1].revents != 0) drain_log();
    if (ends[0].revents == 0) continue;
    char block[1 << 16];
    const ssize_t count = recv(socket, block, sizeof block, 0);
    if (count == 0 || (count < 0 && errno != EINTR)) return Received::closed;
    if (count > 0) received.append(block, count);
  }
  return Received::frame;
}

std::string Worker::State::with_output(const std::string& message) const {
  return printed.empty() ? message : message + "; its last output:\n" + printed;
}

RunResult Worker::State::ended(RunStatus status, const std::string& message) {
  RunResult result;
  result.status = status;
  result.message = with_output(message);
  return result;
}

/// One run of a problem, or one question (nullptr), in the present process; nothing when that process ended before it
/// entered the kernel.
std::optional<RunResult> Worker::State::exchange(const Problem* problem, const std::string& request) {
  const auto after = [](double seconds) {
    return Clock::now() + std::chrono::milliseconds(int64_t(std::min(seconds, longest_limit) * 1000));
  };
  drain_log();
  printed.clear();
  kernel_ran = false;
  send_all(request);
  bool inside = false;
  Clock::time_point deadline = after(preparation_seconds);
  try {
    for (Frame frame;;) {
      const Received got = receive(frame, deadline);
      if (got == Received::closed) {
        stop();
        if (!kernel_ran) return std::nullopt;
        return ended(RunStatus::crash, end);
      }
      if (got == Received::late) {
        stop();
        if (!inside) throw UnavailableError("a worker took more than 600 s outside the kernel; the case is too large");
        char message[64];
        std::snprintf(message, sizeof message, "did not finish within %g s (--timeout)", limits.seconds);
        return ended(RunStatus::timeout, message);
      }
      if (frame.tag == Tag::ready) {
        ready = true;
      } else if (frame.tag == Tag::kernel_begins || frame.tag == Tag::kernel_ends) {
        inside = frame.tag == Tag::kernel_begins;
        kernel_ran = true;
        deadline = after(inside ? limits.seconds : preparation_seconds);
      } else if (frame.tag == Tag::result || frame.tag == Tag::last_result) {
        RunResult result = decode_result(frame.payload);
        if (problem) require_outputs_of(*problem, result);
        if (frame.tag == Tag::last_result) stop();
        return result;
      } else {
        rethrow(frame);
      }
    }
  } catch (const TornMessage& torn) {
    stop();
    return ended(RunStatus::crash, std::string("crashed: the worker's answer is torn (") + torn.what() + ")");
  }
}

/// A process may have died between runs, or from what an earlier run did to it: a second one starts afresh.
RunResult Worker::State::exchange_or_restart(const Problem* problem, const std::string& request) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (process < 0) start();
    if (std::optional<RunResult> result = exchange(problem, request)) return *result;
  }
  throw std::runtime_error(
      (ready ? "a worker ended before it called the kernel: " : "the worker program did not start: ") +
      with_output(end));
}

Worker::Worker(const std::string& kernel, const Limits& limits) : state_(std::make_unique<State>()) {
  state_->kernel = kernel;
  state_->limits = limits;
}

Worker::~Worker() { state_->stop(); }

RunResult Worker::run(const Run& run, const std::string& config) {
  return state_->exchange_or_restart(
      &run.c.problem, framed(Tag::request, encode({run, config, state_->limits.memory_bytes, default_threads})));
}

RunResult Worker::ask(Question question, const Problem& problem, const std::string& config) {
  Run run;
  run.c.problem = problem;
  return state_->exchange_or_restart(nullptr,
                                     framed(question == Question::supports ? Tag::ask_supports : Tag::ask_arithmetic,
                                            encode({run, config, state_->limits.memory_bytes, default_threads})));
}

int Worker::process() const { return state_->process; }

}  // namespace flashproof
