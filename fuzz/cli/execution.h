// One case on one kernel with all that was run and returned: what `check`, `replay` and `reduce` show and dump.
#pragma once
#include <string>
#include <vector>

#include "fuzz/execute.h"
#include "fuzz/json_text.h"

namespace flashproof {

struct Execution {
  Job job;
  Subject subject;
  std::string replay;  ///< the line that shows this again
  Judgement judgement;
  std::vector<Run> runs;
  std::vector<RunResult> results;
};

/// Runs the job in a worker, or in this process for a debugger; what takes more than 3 s says on stderr how far it is.
/// UnavailableError when the kernel's device is not here.
Execution execute_keeping(const LoadedKernel&, const Job&, const Limits&, bool in_process);

/// Adds to the verdict of `bound` which wrong answers it would have rejected.
void add_power(Execution&);

/// 16 hexadecimal digits of SHA-256 over the bits of every output of every run: equal for replays that agree bit for
/// bit; "" where nothing ran.
std::string output_hash(const Execution&);

/// The verdicts for a person, ending with the line that replays them.
std::string page_of(const Execution&);
/// What a verb does at its end: dumps into the folder ("": does not), prints the page or the JSON, gives the exit code.
int finish(const Execution&, const std::string& dump_folder, bool json);
JsonText json_of(const Execution&);

}  // namespace flashproof
