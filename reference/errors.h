// The kinds of error that a user meets; the command line turns each into its exit code.
#pragma once
#include <stdexcept>
#include <string>

namespace flashproof {

/// The user's words were wrong: a flag, a problem text, a file's content. Exit code 64.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Something needed is not there: a GPU, a plug-in, a file, space on the disk. Exit code 69.
struct UnavailableError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace flashproof
