// Verbs, flags and positional words of the command line, over CLI11.
//
// A verb declares what it takes, each bound to a variable, and a function that runs it. CLI11 is seen by arguments.cpp
// alone: it takes six seconds to compile. Every wrong word ends as a UsageError with the nearest right one and an
// example.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace flashproof {

/// The words of one verb. Names are CLI11's: "--seed", or "-o,--out". Bound variables must outlive the run: keep them
/// in a shared_ptr that the verb's function owns.
class Verb {
 public:
  struct State;
  explicit Verb(State&);
  Verb& flag(const char* names, bool&, const char* help);
  Verb& option(const char* names, std::string&, const char* help);
  Verb& option(const char* names, int64_t&, const char* help);
  Verb& option(const char* names, uint64_t&, const char* help);
  Verb& option(const char* names, int&, const char* help);
  /// A time as "90s", "10m", "2h" or plain seconds.
  Verb& duration(const char* names, double& seconds, const char* help);
  /// Such a time above 0.
  Verb& positive_duration(const char* names, double& seconds, const char* help);
  Verb& number(const char* names, double&, const char* help);
  /// Words divided by commas, in one argument; or the flag several times.
  Verb& list(const char* name, std::vector<std::string>&, const char* help);
  Verb& word(const char* name, std::string&, bool required, const char* help);
  /// All remaining words; put it last.
  Verb& words(const char* name, std::vector<std::string>&, bool required, const char* help);
  /// The option named so far must be given.
  Verb& required(const char* name);
  /// Not shown in the help.
  Verb& hidden();

 private:
  Verb& parsed(const char* names, const char* help, const char* type,
               const std::function<void(const std::string&)>& parse);
  State& state_;
};

class CommandLine {
 public:
  explicit CommandLine(const std::string& version);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  /// `example` is the line that the help opens with, without the program's name.
  Verb verb(const char* name, const char* summary, const char* example, std::function<int()> run);
  /// Runs the verb named by the arguments and returns its exit code. Throws UsageError.
  int run(int count, char** words);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Seconds of "90s", "10m", "2h" or "90". Throws UsageError.
double parse_duration(const std::string& text);
/// "12.3 s", "4 min 10 s".
std::string print_duration(double seconds);

}  // namespace flashproof
