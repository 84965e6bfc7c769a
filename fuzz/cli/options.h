// What several verbs share: reading a case from words, SIGINT, and where the program's files are.
#pragma once
#include <atomic>
#include <string>
#include <vector>

#include "fuzz/execute.h"
#include "reference/case.h"

namespace flashproof {

/// Becomes true at the first SIGINT; the second one ends the program at once.
const std::atomic<bool>& interrupt_flag();
void handle_interrupts();

/// The case whose text was typed as one word or several.
Case case_of_words(const std::vector<std::string>& words);
/// Words put together with blanks.
std::string joined(const std::vector<std::string>& words, const char* between = " ");
/// The file's whole text. UnavailableError with the system's reason.
std::string read_text(const std::string& path);

/// Exit code of one judged case: 0 pass, 1 fail, 2 inconclusive or rejected (nothing was judged).
int exit_code(Status);

/// The folder of this program's file.
std::string program_folder();
/// The planted bug that `fuzz` shows its alarm on: the demo of the folder `mutants` beside the program. "" without one.
std::string demo_plugin_path();

/// Says on stderr, where there is no NVRTC, that a campaign draws the tiles of gpu:flash2 from those compiled ahead of
/// time.
void tell_of_missing_compiler(const std::vector<std::string>& kernels);

/// A new folder under the system's folder for temporary files, removed with all that is in it at the end.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// UTC as 20260131T235959Z, for names of folders.
std::string utc_stamp();

}  // namespace flashproof
