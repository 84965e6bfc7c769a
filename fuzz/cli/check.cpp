// `check`: one case on one kernel, judged by every check.
#include "fuzz/cli/execution.h"
#include "fuzz/cli/options.h"
#include "fuzz/cli/verbs.h"

namespace flashproof {
namespace {

struct Options {
  std::string kernel, config, dump;
  std::vector<std::string> words, checks;
  Limits limits;
  bool in_process = false, json = false;
};

int check(const Options& o) {
  validate_check_ids(o.checks);
  const Execution e =
      execute_keeping(load_kernel(o.kernel), Job{case_of_words(o.words), o.config, o.checks}, o.limits, o.in_process);
  return finish(e, o.dump, o.json);
}

}  // namespace

void add_check(CommandLine& line) {
  auto o = std::make_shared<Options>();
  line.verb("check", "one case on one kernel, with the full verdict",
            "check cpu:flash2 'bf16 h4/2 q100 k257 d64 causal data=sinks seed=3'", [o] { return check(*o); })
      .word("KERNEL", o->kernel, true, "a built-in kernel (`flashproof list kernels`) or a plug-in's path")
      .words("CASE", o->words, true, "the case's text (reference/README.md)")
      .option("--config", o->config, "the kernel's tunables, e.g. tile_m=64,tile_n=32; its own choice without")
      .list("--check", o->checks, "only these checks (`flashproof list checks`)")
      .option("--dump", o->dump,
              "write inputs, output bits, exact values (6 ms of one core each) and bounds into this folder")
      .positive_duration("--timeout", o->limits.seconds, "limit of one run (20s)")
      .flag("--in-process", o->in_process, "run the kernel in this process, for a debugger: a crash ends the program")
      .flag("--json", o->json, "one JSON object on stdout");
}

}  // namespace flashproof
