// `gen` and `verify`: a case as files, any program in the middle.
//
// Each check is planned into runs (oracle/check.h). One run lies in DIR itself, several in DIR/run-000, DIR/run-001,
// ... The metadata of each inputs.safetensors holds all that `verify` needs to plan the same runs again.
#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "fuzz/campaign_directory.h"
#include "fuzz/case_files.h"
#include "fuzz/cli/dump.h"
#include "fuzz/cli/options.h"
#include "fuzz/cli/verbs.h"
#include "reference/errors.h"

namespace flashproof {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::vector<std::string> words, checks;
  std::string directory, arithmetic, conventions, dump;
  bool json = false;
};

/// A program behind files takes whatever it is given, so it has every feature; what it declares are words.
Subject subject_of(const Options& o) {
  parse_arithmetic(o.arithmetic);
  return {"files", "", ~uint64_t(0), parse_conventions(o.conventions), o.arithmetic, "pass it with --arithmetic"};
}

/// The runs of the wanted checks, in order.
struct PlannedCheck {
  const Check* check;
  std::vector<Run> runs;
};
std::vector<PlannedCheck> plan(const Case& c, const Subject& subject, const std::vector<std::string>& ids) {
  std::vector<PlannedCheck> planned;
  for (const Check& check : all_checks())
    if (std::find(ids.begin(), ids.end(), check.id) != ids.end() && check.applies(c, subject))
      planned.push_back({&check, check.plan(c, subject)});
  return planned;
}

size_t runs_of(const std::vector<PlannedCheck>& planned) {
  size_t count = 0;
  for (const PlannedCheck& p : planned) count += p.runs.size();
  return count;
}

std::string folder_of_run(const std::string& directory, size_t run, size_t count) {
  return count == 1 ? directory : fmt::format("{}/run-{:03}", directory, run);
}

/// Illegal input and broken memory cannot be shown in files, so `reject` is not offered.
void validate_checks(const std::vector<std::string>& ids) {
  validate_check_ids(ids);
  if (std::find(ids.begin(), ids.end(), "reject") != ids.end())
    throw UsageError("the check `reject` needs a kernel that can refuse; it cannot go through files");
}

/// Outputs and runs of an earlier case would be taken for this one's.
void refuse_used_folder(const std::string& path) {
  std::error_code not_there;
  const fs::directory_iterator first(path, not_there);
  if (!not_there && first != fs::directory_iterator())
    throw UsageError(path + " is not empty; name a new folder with -o, or remove this one first");
}

int gen(const Options& o) {
  const Case c = case_of_words(o.words);
  validate_checks(o.checks);
  refuse_used_folder(o.directory);
  const Subject subject = subject_of(o);
  const std::vector<PlannedCheck> planned = plan(c, subject, o.checks);
  const size_t count = runs_of(planned);
  if (count == 0) throw UsageError("none of the checks " + joined(o.checks, ",") + " applies to this case");
  size_t number = 0;
  for (const PlannedCheck& p : planned)
    for (const Run& run : p.runs) {
      const std::string folder = folder_of_run(o.directory, number++, count);
      std::error_code error;
      fs::create_directories(folder, error);
      if (error) throw UnavailableError("cannot create " + folder + ": " + error.message());
      const SafeTensors inputs = input_file(make_inputs(run), run.placement.nan_outside,
                                            {{"case", print(c)},
                                             {"run", print(run.c)},
                                             {"checks", joined(o.checks, ",")},
                                             {"arithmetic", o.arithmetic},
                                             {"conventions", o.conventions}});
      write_safetensors(folder + "/inputs.safetensors", inputs);
      write_file(folder + "/case.json", problem_json(run.c));
      write_file(folder + "/README.txt", instructions(run.c, inputs, subject.conventions, count));
    }
  if (o.json)
    fmt::print("{}\n", json_object({{"directory", o.directory}, {"case", print(c)}, {"runs", count}}).text());
  else
    fmt::print(
        "{} run{} of {} in {}\nwrite outputs.safetensors into {} as README.txt there says, then: ./flashproof verify "
        "{}\n",
        count, count == 1 ? "" : "s", joined(o.checks, ", "), o.directory, count == 1 ? "it" : "each run-... folder",
        shell_word(o.directory));
  return 0;
}

/// What `gen` wrote down; flags of `verify` go before it.
Case read_metadata(Options& o) {
  const std::string single = o.directory + "/inputs.safetensors", several = o.directory + "/run-000/inputs.safetensors";
  if (!fs::exists(single) && !fs::exists(several))
    throw UnavailableError(o.directory + " holds no inputs.safetensors; write one first: flashproof gen CASE -o " +
                           shell_word(o.directory));
  auto metadata = read_safetensors(fs::exists(single) ? single : several).metadata;
  if (metadata.count("case") == 0)
    throw UsageError(o.directory + ": inputs.safetensors was not written by `gen`: it names no case");
  if (o.arithmetic.empty()) o.arithmetic = metadata["arithmetic"];
  if (o.conventions.empty()) o.conventions = metadata["conventions"];
  for (std::string left = metadata["checks"]; !left.empty();) {
    const size_t comma = std::min(left.find(','), left.size());
    o.checks.push_back(left.substr(0, comma));
    left.erase(0, comma + 1);
  }
  return parse_case(metadata["case"]);
}

RunResult read_result(const Run& run, const Subject& subject, const std::string& folder) {
  const auto of_run = read_safetensors(folder + "/inputs.safetensors").metadata;
  if (of_run.count("run") == 0 || of_run.at("run") != print(run.c))
    throw UsageError(
        folder + " is not the run that is now planned; run `gen` again with the same --arithmetic and --conventions");
  const std::string path = folder + "/outputs.safetensors";
  if (!fs::exists(path))
    throw UnavailableError("there is no " + path + "; " + folder + "/README.txt says what to write");
  const SafeTensors file = read_safetensors(path);
  RunResult result;
  try {
    result.outputs = outputs_of_file(run.c.problem, subject.conventions, file);
  } catch (const UsageError& error) {
    throw UsageError(path + ": " + error.what());
  }
  return result;
}

int verify(Options o) {
  const Case c = read_metadata(o);
  const Subject subject = subject_of(o);
  const std::vector<PlannedCheck> planned = plan(c, subject, o.checks);
  const size_t count = runs_of(planned);
  Execution e{Job{c, "", o.checks}, subject, "./flashproof verify " + shell_word(o.directory), {}, {}, {}};
  for (const PlannedCheck& p : planned) {
    std::vector<RunResult> results;
    for (const Run& run : p.runs) {
      results.push_back(read_result(run, subject, folder_of_run(o.directory, e.runs.size(), count)));
      e.runs.push_back(run);
      e.results.push_back(results.back());
    }
    e.judgement.verdicts.push_back(p.check->judge(c, subject, p.runs, results));
  }
  add_power(e);
  return finish(e, o.dump, o.json);
}

}  // namespace

void add_gen(CommandLine& line) {
  auto o = std::make_shared<Options>();
  o->checks = {"bound"};
  line.verb("gen", "a case as files, for programs that cannot be loaded", "gen 'bf16 h8 q512 k512 d128 causal' -o case",
            [o] { return gen(*o); })
      .words("CASE", o->words, true, "the case's text (reference/README.md)")
      .option("-o,--out", o->directory, "folder for inputs.safetensors, case.json and README.txt")
      .list("--check", o->checks, "the checks to write runs for (bound)")
      .option("--arithmetic", o->arithmetic, "what the program computes with (reference/README.md); unknown without")
      .option("--conventions", o->conventions, "where it differs, e.g. lse=base2,empty_o=undefined")
      .flag("--json", o->json, "one JSON object on stdout")
      .required("--out");
}

void add_verify(CommandLine& line) {
  auto o = std::make_shared<Options>();
  line.verb("verify", "judges the outputs that a program wrote for `gen`'s inputs",
            "verify case --arithmetic 'scores=fp32-any p=bf16'", [o] { return verify(*o); })
      .word("DIR", o->directory, true, "the folder that `gen` wrote")
      .option("--arithmetic", o->arithmetic, "what the program computes with; as in `gen` without")
      .option("--conventions", o->conventions, "where it differs; as in `gen` without")
      .option("--dump", o->dump, "write inputs, output bits, exact values and bounds into this folder")
      .flag("--json", o->json, "one JSON object on stdout");
}

}  // namespace flashproof
