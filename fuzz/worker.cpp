// The worker's side: reads requests, calls the kernel, answers.
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <new>
#include <thread>

#include "fuzz/call_kernel.h"
#include "fuzz/runner.h"
#include "fuzz/worker_protocol.h"
#include "reference/errors.h"
#include "reference/threads.h"

namespace flashproof {
namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr bool address_space_is_reserved = true;  // AddressSanitizer maps terabytes
#else
constexpr bool address_space_is_reserved = false;
#endif

void limit(int resource, rlim_t value) {
  const rlimit limits{value, value};
  setrlimit(resource, &limits);
}

/// Ends this process when the engine is gone, even from inside a kernel that hangs.
void end_with_the_engine(int input) {
  std::thread([input] {
    pollfd engine{input, POLLRDHUP, 0};
    while (poll(&engine, 1, -1) < 0 && errno == EINTR) {
    }
    _exit(0);
  }).detach();
}

void send(int output, Tag tag, std::string_view payload) {
  const std::string bytes = framed(tag, payload);
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t count = write(output, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno != EINTR) _exit(0);  // the engine is gone
    if (count > 0) done += count;
  }
}

/// False at the end of input.
bool receive(int input, Frame& frame) {
  static std::string bytes;
  char block[1 << 16];
  while (!take_frame(bytes, frame)) {
    const ssize_t count = read(input, block, sizeof block);
    if (count == 0 || (count < 0 && errno != EINTR)) return false;
    if (count > 0) bytes.append(block, count);
  }
  return true;
}

void answer(const LoadedKernel& kernel, Question question, const Request& request, int output) {
  send(output, Tag::kernel_begins, "");
  const RunResult result = ask_here(kernel, question, request.run.c.problem, request.config);
  send(output, Tag::kernel_ends, "");
  send(output, Tag::result, encode(result));
}

/// False when this process can run nothing more.
bool answer(const std::string& name, const Frame& frame, int output) {
  const LoadedKernel& kernel = load_kernel(name);
  const Request request = decode_request(frame.payload);
  if (frame.tag != Tag::request) {
    answer(kernel, frame.tag == Tag::ask_supports ? Question::supports : Question::arithmetic, request, output);
    return true;
  }
  default_threads = request.threads;
  const bool on_host = kernel.table->memory == FLASHPROOF_HOST;  // a CUDA context maps more than any limit
  if (request.memory_bytes > 0 && on_host && !address_space_is_reserved) limit(RLIMIT_AS, request.memory_bytes);
  const CallOutcome outcome = call_kernel(kernel, request.run, request.config, [output](bool begins) {
    send(output, begins ? Tag::kernel_begins : Tag::kernel_ends, "");
  });
  send(output, outcome.device_lost ? Tag::last_result : Tag::result, encode(outcome.result));
  return !outcome.device_lost;
}

}  // namespace

int serve_runs(const std::string& kernel, int input, int output) {
  limit(RLIMIT_CORE, 0);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // what a kernel prints is not lost when it crashes
  end_with_the_engine(input);
  send(output, Tag::ready, "");
  Frame frame;
  while (receive(input, frame)) {
    try {
      if (!answer(kernel, frame, output)) break;
    } catch (const UsageError& error) {
      send(output, Tag::usage_error, error.what());
    } catch (const UnavailableError& error) {
      send(output, Tag::unavailable, error.what());
    } catch (const std::bad_alloc&) {
      // Whether this case or what earlier ones leaked took the memory, a fresh process tells.
      std::fputs("out of memory\n", stderr);
      _exit(1);
    } catch (const std::exception& error) {
      send(output, Tag::internal_error, error.what());
    }
  }
  return 0;
}

}  // namespace flashproof
