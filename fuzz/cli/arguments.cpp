// See arguments.h.
#include "fuzz/cli/arguments.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <list>

#include <CLI/CLI.hpp>

#include "reference/errors.h"
#include "reference/nearest_word.h"

namespace flashproof {

struct Verb::State {
  CLI::App* app = nullptr;
  std::string example;
  std::function<int()> run;
};

struct CommandLine::State {
  CLI::App app;
  std::list<Verb::State> verbs;
};

namespace {

constexpr const char* exit_codes =
    "Exit codes: 0 pass, 1 finding, 2 inconclusive, 64 wrong usage, 69 something needed is not there, 70 internal "
    "error,\n"
    "77 skipped, 130 interrupted (resumable).";

/// The help of a verb: the example, then what CLI11 makes of the flags.
struct HelpWithExample : CLI::Formatter {
  std::string example;
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    return "Example: flashproof " + example + "\n\n" + CLI::Formatter::make_help(app, name, mode);
  }
};

std::vector<std::string> names_of(const std::list<Verb::State>& verbs) {
  std::vector<std::string> names;
  for (const Verb::State& verb : verbs)
    if (!verb.app->get_group().empty()) names.push_back(verb.app->get_name());
  return names;
}

std::vector<std::string> flags_of(const CLI::App& app) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  return flags;
}

std::string hint(const std::string& word, const std::vector<std::string>& right) {
  const std::string nearest = nearest_word(word, right);
  return nearest.empty() ? "" : "; did you mean `" + nearest + "`?";
}

/// A whole number of at least 0.
template <class Integer>
Integer parse_whole(const std::string& text) {
  Integer number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || (std::is_signed_v<Integer> && number < 0))
    throw UsageError("`" + text + "` is no whole number" +
                     (error == std::errc::result_out_of_range ? " that fits" : ""));
  return number;
}

/// What was wrong with a verb's words, in one sentence.
std::string fault(const CLI::ParseError& error, const Verb::State& verb) {
  std::vector<std::string> extra = verb.app->remaining();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) && !extra.empty()) {
    const std::string word = extra.front().substr(0, extra.front().find('='));
    if (word.rfind('-', 0) == 0)
      return "`" + verb.app->get_name() + "` has no flag `" + word + "`" + hint(word, flags_of(*verb.app));
    return "`" + verb.app->get_name() + "` has no use for the word `" + extra.front() + "`";
  }
  return "`" + verb.app->get_name() + "`: " + error.what();
}

}  // namespace

Verb::Verb(State& state) : state_(state) {}

Verb& Verb::parsed(const char* names, const char* help, const char* type,
                   const std::function<void(const std::string&)>& parse) {
  const std::string name = names;
  const auto named = [name, parse](const std::string& text) {
    try {
      parse(text);
    } catch (const UsageError& error) {
      throw UsageError(name + ": " + error.what());
    }
  };
  state_.app->add_option_function<std::string>(names, named, help)->type_name(type);
  return *this;
}

Verb& Verb::flag(const char* names, bool& target, const char* help) {
  state_.app->add_flag(names, target, help);
  return *this;
}
Verb& Verb::option(const char* names, std::string& target, const char* help) {
  state_.app->add_option(names, target, help);
  return *this;
}
Verb& Verb::option(const char* names, int64_t& target, const char* help) {
  return parsed(names, help, "NUMBER", [&target](const std::string& text) { target = parse_whole<int64_t>(text); });
}
Verb& Verb::option(const char* names, uint64_t& target, const char* help) {
  return parsed(names, help, "NUMBER", [&target](const std::string& text) { target = parse_whole<uint64_t>(text); });
}
Verb& Verb::option(const char* names, int& target, const char* help) {
  return parsed(names, help, "NUMBER", [&target](const std::string& text) { target = parse_whole<int>(text); });
}
Verb& Verb::number(const char* names, double& target, const char* help) {
  return parsed(names, help, "NUMBER", [&target](const std::string& text) {
    char* end = nullptr;
    target = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != 0 || !(target > 0) || !std::isfinite(target))
      throw UsageError("`" + text + "` is no number above 0");
  });
}
Verb& Verb::duration(const char* names, double& seconds, const char* help) {
  return parsed(names, help, "TIME", [&seconds](const std::string& text) { seconds = parse_duration(text); });
}
Verb& Verb::positive_duration(const char* names, double& seconds, const char* help) {
  return parsed(names, help, "TIME", [&seconds](const std::string& text) {
    seconds = parse_duration(text);
    if (seconds == 0) throw UsageError("`" + text + "` is no time above 0");
  });
}
Verb& Verb::list(const char* name, std::vector<std::string>& target, const char* help) {
  parsed(name, help, "A,B", [&target](const std::string& text) {
    target.clear();
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find(',', begin), text.size());
      target.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
  });
  // A flag given twice is one list. CLI11's own vectors would take the positional words that follow, too.
  state_.app->get_option(name)->multi_option_policy(CLI::MultiOptionPolicy::Join)->delimiter(',');
  return *this;
}
Verb& Verb::word(const char* name, std::string& target, bool required, const char* help) {
  state_.app->add_option(name, target, help)->required(required)->type_name("");
  return *this;
}
Verb& Verb::words(const char* name, std::vector<std::string>& target, bool required, const char* help) {
  state_.app->add_option(name, target, help)->required(required)->type_name("");
  return *this;
}
Verb& Verb::required(const char* name) {
  state_.app->get_option(name)->required();
  return *this;
}
Verb& Verb::hidden() {
  state_.app->group("");
  return *this;
}

CommandLine::CommandLine(const std::string& version) : state_(std::make_unique<State>()) {
  CLI::App& app = state_->app;
  app.name("flashproof");
  app.description(
      "Example: flashproof fuzz\n\nTells whether an attention kernel is right, how right, and why that can be "
      "believed.");
  app.footer(exit_codes);
  app.set_version_flag("--version", version);
  app.require_subcommand(1);
}

CommandLine::~CommandLine() = default;

Verb CommandLine::verb(const char* name, const char* summary, const char* example, std::function<int()> run) {
  CLI::App* app = state_->app.add_subcommand(name, summary);
  auto formatter = std::make_shared<HelpWithExample>();
  formatter->example = example;
  app->formatter(formatter);
  state_->verbs.push_back({app, example, std::move(run)});
  return Verb(state_->verbs.back());
}

int CommandLine::run(int count, char** words) {
  const std::string first = count > 1 ? words[1] : "";
  if (first.empty()) {
    std::fputs(state_->app.help().c_str(), stdout);
    return 0;
  }
  Verb::State* verb = nullptr;
  for (Verb::State& candidate : state_->verbs)
    if (candidate.app->get_name() == first) verb = &candidate;
  if (verb == nullptr && first[0] == '-' && first != "--help" && first != "-h" && first != "--version")
    throw UsageError("there is no flag `" + first + "` before a verb" + hint(first, {"--help", "--version"}) +
                     "\n  example: flashproof fuzz --for 60s");
  if (verb == nullptr && first[0] != '-')
    throw UsageError("there is no verb `" + first + "`" + hint(first, names_of(state_->verbs)) +
                     "\n  example: flashproof fuzz --for 60s\n  `flashproof --help` lists all verbs");
  try {
    state_->app.parse(count, words);
  } catch (const CLI::Success& done) {
    return state_->app.exit(done);
  } catch (const CLI::ParseError& error) {
    if (verb == nullptr) throw UsageError(std::string(error.what()) + "\n  example: flashproof fuzz --for 60s");
    throw UsageError(fault(error, *verb) + "\n  example: flashproof " + verb->example);
  } catch (const UsageError& error) {
    throw UsageError(std::string(error.what()) + "\n  example: flashproof " + verb->example);
  }
  return verb->run();
}

double parse_duration(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  const std::string unit = end;
  const double scale = unit == "h" ? 3600 : unit == "m" ? 60 : unit == "s" || unit.empty() ? 1 : 0;
  if (end == text.c_str() || scale == 0 || !std::isfinite(number) || number < 0)
    throw UsageError("`" + text + "` is no time; write it as 90s, 10m or 2h");
  return number * scale;
}

std::string print_duration(double seconds) {
  char text[40];
  if (seconds < 99.95)
    std::snprintf(text, sizeof text, "%.1f s", seconds);
  else
    std::snprintf(text, sizeof text, "%d min %d s", int(seconds) / 60, int(seconds) % 60);
  return text;
}

}  // namespace flashproof
