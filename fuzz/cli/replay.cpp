// `replay`: a case again, from its text, from a witness or record file, or from its id in a campaign.
#include <functional>

#include <fmt/format.h>

#include "fuzz/cli/dump.h"
#include "fuzz/cli/named_case.h"
#include "fuzz/cli/options.h"
#include "fuzz/cli/verbs.h"
#include "reference/errors.h"

namespace flashproof {
namespace {

struct Options {
  std::vector<std::string> words, checks;
  std::string kernel, on, config, campaign, dump;
  int64_t repeat = 1;
  Limits limits;
  bool in_process = false, json = false;
};

/// Shows the first run, and how many of the others differ from it.
int repeat(const std::function<Execution()>& run, const Options& o) {
  Status worst = Status::pass;
  std::string first_hash;
  int64_t different = 0, n = 0;
  std::vector<JsonText> json;
  for (; n < o.repeat && !interrupt_flag(); ++n) {
    const Execution e = run();
    const Status status = e.judgement.status();
    if (n == 0) first_hash = output_hash(e);
    if (n > 0 && (output_hash(e) != first_hash || status != worst)) ++different;
    if (n == 0 && !o.dump.empty()) dump(e, o.dump);
    if (n == 0 || status == Status::fail) worst = status;
    if (o.json)
      json.push_back(json_of(e));
    else if (n == 0)
      fmt::print("{}", page_of(e));
  }
  if (o.json)
    fmt::print("{}\n", json_array(json).text());
  else
    fmt::print("repeated      {} times, {} with other bits or another verdict\n", n, different);
  if (n < o.repeat) return 130;
  // A verdict that changes from run to run decides nothing.
  return different > 0 && worst != Status::fail ? 2 : exit_code(worst);
}

int replay(const Options& o) {
  validate_check_ids(o.checks);
  if (o.repeat < 1) throw UsageError("--repeat: a case runs at least 1 time, not " + std::to_string(o.repeat));
  NamedCase named = find_case(joined(o.words), o.campaign);
  if (!o.kernel.empty()) named.kernel = o.kernel;
  if (!o.on.empty()) named.kernel = o.on;
  if (named.kernel.empty())
    throw UsageError(
        "which kernel? A case's text names none\n  example: flashproof replay --kernel cpu:flash2 'bf16 q4 k8 d64'");
  if (!o.config.empty() || !o.on.empty()) named.config = o.config;
  if (!o.checks.empty()) named.checks = o.checks;

  const LoadedKernel& kernel = load_kernel(named.kernel);
  const Job job{parse_case(named.text), named.config, named.checks};
  const auto run = [&] { return execute_keeping(kernel, job, o.limits, o.in_process); };
  return o.repeat == 1 ? finish(run(), o.dump, o.json) : repeat(run, o);
}

}  // namespace

void add_replay(CommandLine& line) {
  auto o = std::make_shared<Options>();
  line.verb("replay", "a case again, bit for bit",
            "replay --kernel cpu:flash2 --check bound 'bf16 q3 k40 d64 causal seed=7'", [o] { return replay(*o); })
      .words("CASE", o->words, true, "the case's text, a witness or record file, or an id of the campaign")
      .option("--kernel", o->kernel, "the kernel; files and ids name their own")
      .option("--on", o->on, "another kernel than the one recorded, with its own config")
      .option("--config", o->config, "the kernel's tunables")
      .list("--check", o->checks, "only these checks")
      .option("--campaign", o->campaign,
              "the campaign in which to look for an id (the newest in ./flashproof-campaigns)")
      .option("--repeat", o->repeat, "run it so many times and count differences of bits and verdicts")
      .option("--dump", o->dump, "write inputs, output bits, exact values and bounds into this folder")
      .positive_duration("--timeout", o->limits.seconds, "limit of one run (20s)")
      .flag("--in-process", o->in_process, "run the kernel in this process, for a debugger")
      .flag("--json", o->json, "one JSON object on stdout (an array with --repeat)");
}

}  // namespace flashproof
