// Signal and exit handlers that know whether their thread is in a plug-in, and a clock; see plug_in_code.h.
#include "fuzz/plug_in_code.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

namespace flashproof {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int watched_signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
constexpr auto longest_stay = std::chrono::seconds(60);

/// Written out on entry: a handler may not compose text.
struct Place {
  char text[512] = "";
  bool inside = false;
};
thread_local Place here;
struct sigaction previous[NSIG];

std::mutex mutex;
/// Threads that are inside, guarded by `mutex`; never destroyed, as the clock's thread outlives main.
auto& entered = *new std::map<const Place*, Clock::time_point>;

[[noreturn]] void end_program(const Place& place, const char* what) {
  for (const char* part : {"flashproof: not available: plug-in ", place.text, what, "\n"})
    if (write(2, part, std::strlen(part)) < 0) break;
  _exit(69);
}

void on_signal(int signal) {
  if (here.inside) end_program(here, " crashed");
  sigaction(signal, &previous[signal], nullptr);
  raise(signal);
}

void on_exit() {
  if (here.inside) end_program(here, " ended the program");
}

void watch_the_clock() {
  for (;; std::this_thread::sleep_for(std::chrono::seconds(1))) {
    const std::lock_guard lock(mutex);
    for (const auto& [place, since] : entered)
      if (Clock::now() - since > longest_stay) end_program(*place, " did not return within 60 s");
  }
}

void start_watching() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  for (int signal : watched_signals) sigaction(signal, &action, &previous[signal]);
  std::atexit(on_exit);
  std::thread(watch_the_clock).detach();
}

}  // namespace

PlugInCode::PlugInCode(const std::string& path, const char* function) : watched_(!path.empty()) {
  if (!watched_) return;
  static std::once_flag once;
  std::call_once(once, start_watching);
  std::snprintf(here.text, sizeof here.text, "%s: its code (%s)", path.c_str(), function);
  const std::lock_guard lock(mutex);
  entered[&here] = Clock::now();
  here.inside = true;
}

PlugInCode::~PlugInCode() {
  if (!watched_) return;
  const std::lock_guard lock(mutex);
  entered.erase(&here);
  here.inside = false;
}

}  // namespace flashproof
