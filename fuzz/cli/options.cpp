// See options.h.
#include "fuzz/cli/options.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>

#include "fuzz/mutant_manifest.h"
#include "kernels/run_time_compiler.h"
#include "reference/errors.h"

namespace flashproof {
namespace {

std::atomic<bool> interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free);  // it is set from a signal handler

void note_interrupt(int signal) {
  interrupted = true;
  std::signal(signal, SIG_DFL);
}

}  // namespace

/// Only what asks for the flag is asked to end by it: a signal ends the other verbs at once.
const std::atomic<bool>& interrupt_flag() {
  static std::once_flag once;
  std::call_once(once, handle_interrupts);
  return interrupted;
}
void handle_interrupts() {
  for (int signal : {SIGINT, SIGTERM}) std::signal(signal, note_interrupt);
}

Case case_of_words(const std::vector<std::string>& words) { return parse_case(joined(words)); }

std::string joined(const std::vector<std::string>& words, const char* between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

std::string read_text(const std::string& path) {
  if (std::filesystem::is_directory(path)) throw UnavailableError("cannot read " + path + ": it is a folder");
  std::ifstream in(path, std::ios::binary);
  if (!in) throw UnavailableError("cannot read " + path + ": " + std::strerror(errno));
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

int exit_code(Status status) { return status == Status::pass ? 0 : status == Status::fail ? 1 : 2; }

std::string program_folder() { return std::filesystem::read_symlink("/proc/self/exe").parent_path().string(); }

std::string demo_plugin_path() {
  const std::string folder = program_folder() + "/mutants";
  if (!std::filesystem::exists(folder + "/manifest.json")) return "";
  for (const Mutant& mutant : read_mutants(folder))
    if (mutant.demo && std::filesystem::exists(mutant.library)) return mutant.library;
  return "";
}

void tell_of_missing_compiler(const std::vector<std::string>& kernels) {
  std::string reason;
  if (std::find(kernels.begin(), kernels.end(), "gpu:flash2") == kernels.end() ||
      !run_time_compiler(compiler_places(), reason).empty())
    return;
  std::fprintf(stderr, "flashproof: gpu:flash2 runs with the tiles compiled ahead of time alone: %s\n", reason.c_str());
}

TemporaryFolder::TemporaryFolder() : path_((std::filesystem::temp_directory_path() / "flashproof-XXXXXX").string()) {
  if (mkdtemp(path_.data()) == nullptr)
    throw UnavailableError("cannot create a folder like " + path_ + ": " + std::strerror(errno));
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string utc_stamp() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%dT%H%M%SZ", std::gmtime(&now));
  return text;
}

}  // namespace flashproof
