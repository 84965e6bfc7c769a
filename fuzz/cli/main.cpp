// The program `flashproof`: verbs, and each kind of error as its exit code.
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>

#include "fuzz/build_info.h"
#include "fuzz/cli/verbs.h"
#include "reference/errors.h"

namespace {

std::string version() {
  const flashproof::BuildInfo& info = flashproof::build_info();
  return std::string("flashproof ") + info.version + " (commit " + info.commit + ", " + info.compiler + ", CUDA " +
         info.cuda + ", " + info.flags + ")";
}

int fail(int code, const char* kind, const std::exception& error) {
  std::fflush(stdout);
  std::fprintf(stderr, "flashproof: %s%s\n", kind, error.what());
  return code;
}

/// Whether any of what was printed did not arrive, as on a full disk.
bool output_lost() { return !std::cout.flush() || std::fflush(stdout) != 0 || std::ferror(stdout); }

}  // namespace

int main(int count, char** words) {
  using namespace flashproof;
  try {
    CommandLine line(version());
    for (const auto add : {add_fuzz,    add_check,    add_replay,  add_gate,   add_reduce, add_explain, add_bound,
                           add_gen,     add_verify,   add_trace,   add_cost,   add_list,   add_status,  add_report,
                           add_mutants, add_selftest, add_certify, add_doctor, add_bench,  add_worker})
      add(line);
    const int code = line.run(count, words);
    if (output_lost()) throw UnavailableError("could not write the output");
    return code;
  } catch (const UsageError& error) {
    return fail(64, "", error);
  } catch (const UnavailableError& error) {
    return fail(69, "not available: ", error);
  } catch (const std::bad_alloc& error) {
    return fail(69, "not available: there is too little memory for so large a case: ", error);
  } catch (const std::exception& error) {
    if (output_lost()) return fail(69, "not available: could not write the output: ", error);
    return fail(70, "internal error: ", error);
  }
}
