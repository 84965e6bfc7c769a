// The verbs of `flashproof`, one file each.
#pragma once
#include "fuzz/cli/arguments.h"

namespace flashproof {

void add_trace(CommandLine&);     ///< an algorithm step by step on one row
void add_cost(CommandLine&);      ///< operations, bytes and memory of each algorithm
void add_list(CommandLine&);      ///< kernels, checks, data families, features, presets
void add_check(CommandLine&);     ///< one case on one kernel
void add_fuzz(CommandLine&);      ///< a campaign
void add_gate(CommandLine&);      ///< regressions and a fixed budget of cases, for CI
void add_replay(CommandLine&);    ///< a case again, bit for bit
void add_reduce(CommandLine&);    ///< the smallest case that fails the same way
void add_explain(CommandLine&);   ///< which mistake a failing case shows
void add_bound(CommandLine&);     ///< the bound of a case, by term
void add_gen(CommandLine&);       ///< a case as files
void add_verify(CommandLine&);    ///< judges outputs in files
void add_mutants(CommandLine&);   ///< whether planted bugs are found
void add_report(CommandLine&);    ///< a campaign as JSON, Markdown or JUnit
void add_status(CommandLine&);    ///< where a campaign stands
void add_selftest(CommandLine&);  ///< whether this program can be believed
void add_certify(CommandLine&);   ///< the hardware models against the GPU of this machine
void add_doctor(CommandLine&);    ///< what this machine has
void add_bench(CommandLine&);     ///< speed of the oracle, accuracy tables, activations
void add_worker(CommandLine&);    ///< hidden: serves runs to an engine

}  // namespace flashproof
