// `reduce`: the smallest case that still fails the same check in the same way.
#include <fmt/format.h>

#include "fuzz/campaign_directory.h"
#include "fuzz/cli/execution.h"
#include "fuzz/cli/named_case.h"
#include "fuzz/cli/options.h"
#include "fuzz/cli/verbs.h"
#include "fuzz/record.h"
#include "fuzz/reduce.h"
#include "reference/errors.h"

namespace flashproof {
namespace {

struct Options {
  std::vector<std::string> words;
  std::string kernel, config, check, campaign, out;
  double seconds = 60;
  Limits limits;
  bool json = false;
};

int reduce_verb(const Options& o) {
  const NamedCase named =
      find_failing_case("reduce", joined(o.words), o.campaign, {"", o.kernel, o.config, {}}, o.check);
  const LoadedKernel& kernel = load_kernel(named.kernel);
  require_device(kernel);

  Worker worker(kernel.name, o.limits);
  const Judgement first = execute(worker, kernel, Job{parse_case(named.text), named.config, named.checks});
  if (first.failure() == nullptr) {
    fmt::print(stderr, "flashproof: the case does not fail ({}): there is nothing to reduce\n",
               name_of(first.status()));
    return 2;
  }
  Verdict last = *first.failure();
  const std::string bucket = bucket_of(kernel, last);
  const Interesting interesting = [&](const Case& c, const std::string& config) {
    if (interrupt_flag()) return false;
    const Judgement judgement = execute(worker, kernel, Job{c, config, {last.check}});
    const Verdict* verdict = failure_in(judgement, kernel, bucket);
    if (verdict) last = *verdict;
    return verdict != nullptr;
  };
  const Reduced reduced = reduce(parse_case(named.text), named.config, interesting, o.seconds, parse_tunables(kernel));
  Witness witness = witness_of(kernel, Job{reduced.c, reduced.config, {last.check}}, last);
  witness.reduce_seconds = reduced.seconds, witness.reduce_runs = reduced.runs;
  if (!o.out.empty()) write_file(o.out, print(witness));
  if (o.json)
    fmt::print("{}", print(witness));
  else
    fmt::print("{}\n  {}\n{} candidates in {}{}\nreplay  {}\n", witness.text, last.why, reduced.runs,
               print_duration(reduced.seconds),
               reduced.complete ? ": nothing smaller fails this way" : ": time is over, there may be a smaller one",
               witness.replay);
  return interrupt_flag() ? 130 : 1;
}

}  // namespace

void add_reduce(CommandLine& line) {
  auto o = std::make_shared<Options>();
  line.verb("reduce", "the smallest case that fails the same way", "reduce my-campaign/findings/BUCKET/worst.json",
            [o] { return reduce_verb(*o); })
      .words("CASE", o->words, true, "a witness or record file, an id, or the case's text")
      .option("--kernel", o->kernel, "the kernel; files and ids name their own")
      .option("--config", o->config, "the kernel's tunables")
      .option("--check", o->check, "the check that fails; the first that does without")
      .option("--campaign", o->campaign,
              "the campaign in which to look for an id (the newest in ./flashproof-campaigns)")
      .option("--out", o->out, "write the witness into this file")
      .duration("--for", o->seconds, "stop after this time (60s)")
      .positive_duration("--timeout", o->limits.seconds, "limit of one run (20s)")
      .flag("--json", o->json, "the witness as JSON on stdout");
}

}  // namespace flashproof
