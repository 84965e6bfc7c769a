// `worker`: serves runs to the engine that started it, on descriptors 3 (requests) and 4 (answers); see fuzz/runner.h.
#include "fuzz/cli/verbs.h"
#include "fuzz/runner.h"

namespace flashproof {

void add_worker(CommandLine& line) {
  auto kernel = std::make_shared<std::string>();
  line.verb("worker", "serves runs to an engine", "worker --kernel cpu:flash2",
            [kernel] { return serve_runs(*kernel, 3, 4); })
      .option("--kernel", *kernel, "the kernel to run")
      .hidden();
}

}  // namespace flashproof
