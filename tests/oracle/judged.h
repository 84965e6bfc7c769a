// Runs and judges a check on a simulated kernel, right or with a planted fault.
#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "oracle/check.h"
#include "oracle/value.h"
#include "tests/oracle/simulated_kernel.h"

namespace flashproof::test {

using PlannedRun = Run;  // testing::Test has a member Run

inline const Check& check(const char* id) {
  for (const Check& check : all_checks())
    if (std::strcmp(check.id, id) == 0) return check;
  throw std::logic_error(id);
}

inline Subject subject_of(const SimulatedKernel& kernel, const Problem& p) {
  Subject subject;
  subject.name = "simulated";
  subject.arithmetic = arithmetic_of(kernel, p);
  return subject;
}

/// What becomes of results before they are judged.
using Fault = std::function<void(const PlannedRun&, const Inputs&, RunResult&)>;

inline Verdict judged(const char* id, const Case& c, const SimulatedKernel& kernel, Subject subject,
                      const Fault& fault = {}) {
  const Check& of = check(id);
  const std::vector<Run> runs = of.plan(c, subject);
  std::vector<RunResult> results;
  for (const PlannedRun& run : runs) {
    const Inputs in = make_inputs(run);
    RunResult result;
    const bool exact = in.problem.direction == Direction::backward_exact;
    Outputs read = make_outputs(in.problem);
    if (exact) correctly_rounded_forward(in, read.o, read.lse);
    result.outputs = test::run(kernel, in, exact ? &read.o : nullptr, exact ? &read.lse : nullptr);
    if (fault) fault(run, in, result);
    results.push_back(result);
  }
  return of.judge(c, subject, runs, results);
}
inline Verdict judged(const char* id, const std::string& text, const Fault& fault = {}) {
  const Case c = parse_case(text);
  const SimulatedKernel kernel;
  return judged(id, c, kernel, subject_of(kernel, c.problem), fault);
}

/// The fault's kind is seen, and the right kernel is not accused.
inline void expect_seen(const char* id, const std::string& text, const char* kind, const Fault& fault) {
  EXPECT_EQ(judged(id, text).status, Status::pass) << judged(id, text).why;
  const Verdict verdict = judged(id, text, fault);
  EXPECT_EQ(verdict.status, Status::fail);
  EXPECT_EQ(verdict.kind, kind) << verdict.why;
  EXPECT_EQ(verdict.check, id);
  EXPECT_GT(verdict.ratio, 1);
  EXPECT_FALSE(verdict.why.empty());
}

}  // namespace flashproof::test
