// oracle/checks: each check passes a right kernel and fails on a planted wrong result, with the kind that says what is
// wrong.
#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>
#include <set>

#include <cmath>

#include "tests/oracle/judged.h"

namespace flashproof {
namespace {

using test::check;
using test::expect_seen;
using test::Fault;
using test::judged;
using test::PlannedRun;
using test::SimulatedKernel;
using test::subject_of;

RC_GTEST_PROP(ChecksTest, RightKernelsPassEveryCheck, ()) {
  constexpr DType dtypes[] = {DType::bf16, DType::fp16, DType::fp32};
  Case c;
  c.problem = test::draw_problem(dtypes[test::draw(0, 2)], 20);
  if (test::coin()) c.problem.direction = Direction::backward_exact;
  c.recipe.seed = uint64_t(test::draw(0, 1 << 20));
  const SimulatedKernel kernel{
      test::Algorithm(test::draw(0, 2)), {test::draw(1, 12), test::draw(1, 12)}, test::draw(1, 5)};
  const Subject subject = subject_of(kernel, c.problem);
  for (const char* id : {"bound", "readout", "exact_inputs", "isolation", "repeat", "relations"}) {
    if (!check(id).applies(c, subject)) continue;
    const Verdict verdict = judged(id, c, kernel, subject);
    if (verdict.status != Status::pass) RC_FAIL(verdict.check + ": " + verdict.why + " in " + print(c));
  }
}

TEST(BoundCheck, FailsOnWrongValues) {
  const std::string text = "bf16 h2 q9 k40 d16 causal bwd data=normal seed=5";
  expect_seen("bound", text, "value",
              [](const PlannedRun&, const Inputs&, RunResult& r) { r.outputs.o.set_bits(40, 0); });
  expect_seen("bound", text, "value", [](const PlannedRun&, const Inputs&, RunResult& r) {
    r.outputs.dv.set_bits(3, encode(DType::bf16, r.outputs.dv.at(3) + 0.25));
  });
  expect_seen("bound", text, "nan",
              [](const PlannedRun&, const Inputs&, RunResult& r) { r.outputs.lse.set_bits(3, nan_bits(DType::fp32)); });
  expect_seen("bound", text, "infinity", [](const PlannedRun&, const Inputs&, RunResult& r) {
    r.outputs.dq.set_bits(3, infinity_bits(DType::bf16));
  });
  expect_seen("bound", text, "unwritten",
              [](const PlannedRun&, const Inputs&, RunResult& r) { r.memory.unwritten = "o: element 3"; });
}

/// Hopper's fp8 accumulator of 13 bits stands still at 2^14 weights of 1, and O is half of what it should be, or less:
/// the verdict for that arithmetic says that it says nothing. Through fp16, and tile by tile, the sum is right.
TEST(BoundCheck, CallsItselfVacuousForLongSumsIn13Bits) {
  for (const int64_t keys : {1 << 15, 1 << 17}) {
    const Case c = parse_case("e4m3 q1 k" + std::to_string(keys) + " d16 data=constant_v");
    const Inputs in = make_inputs(c);
    RunResult stuck;
    stuck.outputs = make_outputs(c.problem);
    correctly_rounded_forward(in, stuck.outputs.o, stuck.outputs.lse);
    for (int64_t n = 0; n < 16; ++n)
      stuck.outputs.o.set_bits(n, encode(DType::bf16, stuck.outputs.o.at(n) * double(1 << 14) / double(keys)));
    const auto verdict = [&](const std::string& sums) {
      Subject subject;
      subject.arithmetic =
          "tile=64x128 scores=tc:32:13:13 exp=ex2 arg=fma2 scaled=no s=fp32 prescaled=no p=e4m3 "
          "pscale=8 normalized=no rowsum=4 splits=1 division=ieee " +
          sums;
      return check("bound").judge(c, subject, check("bound").plan(c, subject), std::vector{stuck});
    };
    const Verdict vacuous = verdict("values=tc:32:13:13 levels=1");
    EXPECT_EQ(vacuous.status, Status::pass) << vacuous.why;
    EXPECT_NE(vacuous.assumed.find("16 bounds are vacuous"), std::string::npos) << vacuous.assumed;
    if (keys > 1 << 15) continue;
    for (const char* sums : {"values=tc-pair:8 levels=1", "values=tc:32:13:13 levels=2"}) {
      EXPECT_EQ(verdict(sums).status, Status::fail) << sums;
      EXPECT_EQ(verdict(sums).assumed.find("vacuous"), std::string::npos) << sums << verdict(sums).assumed;
    }
  }
}

TEST(BoundCheck, NamesTheWorstElement) {
  const Verdict verdict =
      judged("bound", "bf16 h2 q9 k40 d16 data=normal seed=5", [](const PlannedRun&, const Inputs&, RunResult& r) {
        r.outputs.o.set_bits((3 * 2 + 1) * 16 + 7, encode(DType::bf16, 5));
        r.outputs.o.set_bits((8 * 2 + 0) * 16 + 2, encode(DType::bf16, 3));
      });
  EXPECT_EQ(print(verdict.where), "O[b=0 i=3 h=1 c=7]");
  EXPECT_NE(verdict.why.find("O[b=0 i=3 h=1 c=7] is 5"), std::string::npos) << verdict.why;
}

TEST(BoundCheck, SpeaksOfOneElementWhateverFails) {
  const std::string text = "bf16 h2 q9 k40 d16 data=normal seed=5";
  const Fault two_outputs = [](const PlannedRun&, const Inputs&, RunResult& r) {
    r.outputs.o.set_bits(40, encode(DType::bf16, 5));
    r.outputs.lse.set_bits(3, nan_bits(DType::fp32));
    r.outputs.lse.set_bits(7, infinity_bits(DType::fp32));
  };
  const Verdict verdict = judged("bound", text, two_outputs);
  EXPECT_EQ(print(verdict.where), "L[b=0 i=1 h=1]");
  EXPECT_EQ(verdict.kind, "nan");
  EXPECT_TRUE(verdict.why.starts_with(print(verdict.where))) << verdict.why;
}

/// 694 elements of dQ are exactly 0 by cancellation, with bounds of some 2^-120.
TEST(BoundCheck, DecidesManyExactCancellations) {
  const Case c = parse_case(
      "e4m3 h5/1 q297 k21 d8 dropout=0.25@3547936300167266135 bwd=exact data=integers "
      "seed=12185172830735951894");
  const SimulatedKernel kernel{test::Algorithm::flash3, {64, 64}};
  const Verdict verdict = judged("bound", c, kernel, subject_of(kernel, c.problem));
  EXPECT_EQ(verdict.status, Status::pass) << verdict.why;
  EXPECT_EQ(verdict.undecided, 0);
}

TEST(BoundCheck, FollowsConventions) {
  const Case c = parse_case("bf16 q4 k2 d8 causal data=normal");  // rows 0 and 1 see no key
  const SimulatedKernel kernel;
  Subject subject = subject_of(kernel, c.problem);
  subject.conventions.empty_lse = FLASHPROOF_EMPTY_LSE_ZERO;
  EXPECT_EQ(judged("bound", c, kernel, subject).kind, "empty-row");
  subject.conventions.empty_lse = FLASHPROOF_EMPTY_LSE_UNDEFINED;
  EXPECT_EQ(judged("bound", c, kernel, subject).status, Status::pass);
  EXPECT_NE(judged("bound", c, kernel, subject).assumed.find("L of rows without keys"), std::string::npos);

  subject = subject_of(kernel, c.problem);
  const Fault base_2 = [](const PlannedRun&, const Inputs&, RunResult& r) {
    for (int64_t n = 0; n < r.outputs.lse.size(); ++n)
      r.outputs.lse.set_bits(n, encode(DType::fp32, r.outputs.lse.at(n) * 1.4426950408889634));
  };
  EXPECT_EQ(judged("bound", c, kernel, subject, base_2).kind, "value");
  subject.conventions.lse_base = FLASHPROOF_LSE_BASE_2;
  EXPECT_EQ(judged("bound", c, kernel, subject, base_2).status, Status::pass);

  const Fault wrong_empty_o = [](const PlannedRun&, const Inputs&, RunResult& r) {
    r.outputs.o.set_bits(0, encode(DType::bf16, 1));
  };
  subject = subject_of(kernel, c.problem);
  EXPECT_EQ(judged("bound", c, kernel, subject, wrong_empty_o).kind, "value");
  subject.conventions.empty_o = FLASHPROOF_EMPTY_O_UNDEFINED;
  EXPECT_EQ(judged("bound", c, kernel, subject, wrong_empty_o).status, Status::pass);
}

TEST(BoundCheck, WantsNanWhereTheInputsHaveIt) {
  const std::string text = "bf16 q3 k4 d8 data=normal set=v[0,1,0,2]:0x7fc0";
  expect_seen("bound", text, "nan-lost",
              [](const PlannedRun&, const Inputs&, RunResult& r) { r.outputs.o.set_bits(2, 0); });
}

TEST(BoundCheck, IsInconclusiveWhereFormatsMayOverflow) {
  const Verdict verdict = judged("bound", "bf16 q2 k64 d8 data=saturating");
  EXPECT_EQ(verdict.status, Status::inconclusive);
  EXPECT_EQ(verdict.kind, "overflow");
}

/// All scores overflow to -infinity: a kernel may take such a row for one that sees no key, and no NaN of V gets there.
TEST(BoundCheck, WantsNoNanWhereTheWholeRowMayOverflow) {
  const std::string text = "bf16 q2 k2 d32 scale=1e-45 data=negative seed=0 set=v[0,1,0,21]:0xffc0";
  const Fault zero = [](const PlannedRun&, const Inputs&, RunResult& r) { r.outputs.o.set_bits(21, 0); };
  EXPECT_EQ(judged("bound", text, zero).status, Status::inconclusive);
}

/// t_v / (1 - rate) is infinite, and NaN times an exact 0: of channels without V, of dropped weights, of a row that
/// sees its sink or nothing, of gradients. Where it is finite, NaN is a finding.
TEST(BoundCheck, IsInconclusiveWhereTheFactorOfValuesOverflows) {
  for (const char* text :
       {"e4m3 k9 d16 dropout=0.5@1 descale data=one_hot_v", "e4m3 k1 d16 dropout=0.99@1 descale data=constant_v",
        "e4m3 q9 k5 d32 sink dropout=0.5@1 causal descale", "e4m3 k1 d16 bwd dropout=0.99@1 descale data=constant_v",
        "e4m3 k1 d16 bwd=exact dropout=0.99@1 descale data=constant_v",
        "e4m3 q9 k5 d32 sink bwd dropout=0.5@1 causal descale"}) {
    const Verdict overflow = judged("bound", text + std::string(" set=v_descale[0,0,0,0]:0x7f7fffff"));
    EXPECT_EQ(overflow.status, Status::inconclusive) << text << ": " << overflow.why;
    EXPECT_EQ(overflow.kind, "overflow") << text;
    const std::string finite = text + std::string(" set=v_descale[0,0,0,0]:0x70000000");
    EXPECT_NE(judged("bound", finite).status, Status::fail) << judged("bound", finite).why;
    const Fault zeros_are_nan = [](const PlannedRun&, const Inputs&, RunResult& r) {
      for (Tensor* tensor : {&r.outputs.o, &r.outputs.dv})
        for (int64_t n = 0; n < tensor->size(); ++n)
          if (tensor->at(n) == 0) tensor->set_bits(n, 0x7fc0);
    };
    EXPECT_EQ(judged("bound", finite, zeros_are_nan).kind, "nan") << text;
  }
  const SimulatedKernel normalized{.algorithm = test::Algorithm::flash1};  // which multiplies rows without keys, too
  const Case empty_rows =
      parse_case("e4m3 q9 k5 d32 bwd dropout=0.5@1 causal descale set=v_descale[0,0,0,0]:0x7f7fffff");
  const Verdict verdict = judged("bound", empty_rows, normalized, test::subject_of(normalized, empty_rows.problem));
  EXPECT_EQ(verdict.kind, "overflow") << verdict.why;
}

TEST(BoundCheck, SaysThatScoresMayBeOffByTooMuch) {
  for (const char* text : {"bf16 q9 k5 d32 softcap=1e10", "fp16 q9 k5 d32 softcap=1e8", "bf16 q9 k5 d32 scale=1e8",
                           "bf16 q9 k5 d32 bwd softcap=1e10"}) {
    const Verdict verdict = judged("bound", text);
    EXPECT_EQ(verdict.status, Status::inconclusive) << text;
    EXPECT_EQ(verdict.kind, "score-error") << text << ": " << verdict.why;
    EXPECT_NE(verdict.why.find("scores may be off by up to "), std::string::npos) << verdict.why;
  }
}

TEST(BoundCheck, SaysWhatWasAssumed) {
  const Case c = parse_case("bf16 q2 k8 d8 data=normal");
  Subject subject;
  const Verdict verdict = judged("bound", c, {}, subject);
  EXPECT_EQ(verdict.status, Status::pass);
  EXPECT_NE(verdict.assumed.find("not declared (tile, scores"), std::string::npos) << verdict.assumed;
}

TEST(BoundCheck, KnowsItsPower) {
  const Case c = parse_case("bf16 q64 k64 d64 causal data=normal");
  std::string rejected;
  for (const Imposter& imposter : power_of(c, subject_of({}, c.problem)))
    if (imposter.rejected) rejected += imposter.name + "; ";
  EXPECT_EQ(rejected, "zeros; mean of V; previous output; mask off by one; scale 1 % off; base-2 L; one key dropped; ");
  // Constant V: O says nothing of the weights, but L does.
  Subject no_l = subject_of({}, c.problem);
  no_l.conventions.lse_base = FLASHPROOF_LSE_NONE;
  for (const Imposter& imposter : power_of(parse_case("bf16 q64 k64 d64 causal data=constant_v"), no_l))
    EXPECT_EQ(imposter.rejected, imposter.name == "zeros" || imposter.name == "previous output") << imposter.name;
  // Data without chance: the previous output is the output.
  for (const Imposter& imposter : power_of(parse_case("bf16 q4 k4 d4 data=readout"), no_l))
    EXPECT_FALSE(imposter.rejected && imposter.name == "previous output");
}

/// O of a kernel with another mask, on the check's own data.
Fault with_mask(void (*change)(Mask&)) {
  return [change](const PlannedRun&, const Inputs& in, RunResult& r) {
    Inputs other = in;
    change(other.problem.mask);
    r.outputs = test::run({}, other);
  };
}

TEST(ReadoutCheck, SeesEachKey) {
  const std::string text = "fp16 h2 q9 k40 d8 window=5,3 causal softcap=20 data=normal";
  expect_seen("readout", text, "missing-key", with_mask([](Mask& mask) { mask.window_left = 4; }));
  expect_seen("readout", text, "hidden-key", with_mask([](Mask& mask) { mask.window_left = 6; }));
  expect_seen("readout", text, "hidden-key", with_mask([](Mask& mask) { mask.causal = false; }));
  expect_seen("readout", text, "nan",
              [](const PlannedRun&, const Inputs&, RunResult& r) { r.outputs.o.set_bits(0, nan_bits(DType::fp16)); });
}

/// scale log2 e is infinite in fp32, and a right kernel's 0 times that NaN: the probes take such a scale away, and no
/// other.
TEST(ReadoutCheck, LeavesOutAScaleThatOverflows) {
  const auto planned = [](const std::string& text) {
    return check("readout").plan(parse_case(text), Subject{})[0].c.problem.scale;
  };
  EXPECT_FALSE(planned("bf16 q1 k2 scale=3e38 data=normal").has_value());
  EXPECT_EQ(planned("bf16 q1 k2 scale=-0.5 data=normal"), -0.5f);
}

TEST(ExactInputsCheck, SeesOneUlp) {
  const std::string text = "bf16 q9 k16 d8 dropout=0.5@3 data=normal";
  expect_seen("exact_inputs", text, "value", [](const PlannedRun&, const Inputs&, RunResult& r) {
    r.outputs.o.set_bits(11, r.outputs.o.bits(11) ^ 1);
  });
  expect_seen("exact_inputs", text, "value", [](const PlannedRun&, const Inputs& in, RunResult& r) {
    Inputs other = in;
    other.problem.dropout->seed += 1;
    r.outputs = test::run({}, other);
  });
}

/// O of the planned run by an accumulator of so many significant bits, cut after each key; dividing by a power of two
/// is exact.
Outputs with_short_accumulator(const Inputs& in, int bits) {
  const Problem& p = in.problem;
  Outputs outputs = make_outputs(p);
  for (int64_t row = 0; row < outputs.o.size() / p.value_dim; ++row)
    for (int64_t c = 0; c < p.value_dim; ++c) {
      double sum = 0;
      for (int64_t j = 0; j < p.k.slot; ++j) {
        sum += in.v.at(j * p.value_dim + c);
        int exponent;
        const double fraction = std::frexp(sum, &exponent);
        sum = std::ldexp(std::trunc(std::ldexp(fraction, bits)), exponent - bits);
      }
      outputs.o.set_bits(row * p.value_dim + c, encode(outputs.o.dtype, sum / double(p.k.slot)));
    }
  return outputs;
}

TEST(ExactInputsCheck, SeesAShortAccumulator) {
  for (const char* text : {"e4m3 q1 k64 d8", "e5m2 q2 k16 d1", "bf16 q1 k16 d8", "fp16 q1 k32 d4"}) {
    expect_seen("exact_inputs", text, "value", [](const PlannedRun&, const Inputs& in, RunResult& r) {
      r.outputs.o = with_short_accumulator(in, 14).o;
    });
    const Case c = parse_case(text);
    const Subject subject = subject_of({}, c.problem);
    const std::vector<PlannedRun> runs = check("exact_inputs").plan(c, subject);
    RunResult right;
    right.outputs = with_short_accumulator(make_inputs(runs[0].c), 24);
    const Verdict verdict = check("exact_inputs").judge(c, subject, runs, std::vector<RunResult>{right});
    EXPECT_EQ(verdict.status, Status::pass) << text << ": " << verdict.why;
  }
}

TEST(ExactInputsCheck, AppliesWhereAllIsExact) {
  const auto applies = [](const std::string& text, const std::string& arithmetic) {
    const Case c = parse_case(text);
    Subject subject = subject_of({}, c.problem);
    if (!arithmetic.empty()) subject.arithmetic = arithmetic;
    return check("exact_inputs").applies(c, subject);
  };
  EXPECT_TRUE(applies("bf16 q1 k64 d8", ""));
  EXPECT_FALSE(applies("bf16 q1 k63 d8", ""));
  EXPECT_TRUE(applies("bf16 q1 k63 d8 window=0,open", ""));
  EXPECT_FALSE(applies("bf16 q1 k64 d8", "splits=2 normalized=no"));
  EXPECT_FALSE(applies("bf16 q1 k64 d8", "splits=1")) << "O may be divided at each tile";
  EXPECT_FALSE(applies("bf16 q1 k64 d8", "splits=1 normalized=each-tile tile=64x32"));
  EXPECT_TRUE(applies("bf16 q1 k64 d8", "splits=1 normalized=each-tile tile=64x64"));
  EXPECT_FALSE(applies("e4m3 q1 k512 d8", "splits=1 normalized=yes p=e4m3 pscale=-1")) << "1/1024 is below e4m3";
  EXPECT_TRUE(applies("e4m3 q1 k512 d8", "splits=1 normalized=yes p=e4m3 pscale=8"));
  EXPECT_FALSE(applies("e4m3 q1 k1024 d8", "splits=1 normalized=yes p=e4m3 pscale=8")) << "13 bits";
  EXPECT_TRUE(applies("e4m3 q1 k1024 d8", "splits=1 normalized=yes p=e4m3 pscale=8 values=fp32"));
  EXPECT_TRUE(applies("e4m3 q1 k64 d8 dropout=0.5@1", "splits=1 normalized=no p=e4m3 pscale=8 dropout=output"));
  EXPECT_FALSE(applies("e4m3 q1 k64 d8 dropout=0.5@1", "splits=1 normalized=no p=e4m3 pscale=8 dropout=weights"))
      << "2 times 2^8 is above e4m3";
}

TEST(IsolationCheck, SeesLeaksAndStrayWrites) {
  const std::string text = "bf16 h2 q9 k20 d8 causal bwd data=normal";
  expect_seen("isolation", text, "leak", [](const PlannedRun& run, const Inputs&, RunResult& r) {
    if (run.placement.largest_hidden) r.outputs.dk.set_bits(5, r.outputs.dk.bits(5) ^ 1);
  });
  expect_seen("isolation", text, "red-zone",
              [](const PlannedRun&, const Inputs&, RunResult& r) { r.memory.red_zone = "o: past its end"; });
  expect_seen("isolation", text, "input-changed",
              [](const PlannedRun&, const Inputs&, RunResult& r) { r.memory.input_changed = "q"; });
  expect_seen("isolation", text, "tail",
              [](const PlannedRun&, const Inputs&, RunResult& r) { r.memory.tail_touched = "o"; });
}

TEST(IsolationCheck, ComparesNoGradientsOfARandomOrder) {
  const Case c = parse_case("bf16 q9 k20 d8 bwd data=normal");
  Subject subject = subject_of({}, c.problem);
  subject.conventions.deterministic = 0;
  const Verdict verdict = judged("isolation", c, {}, subject, [](const PlannedRun& run, const Inputs&, RunResult& r) {
    if (run.placement.largest_hidden) r.outputs.dk.set_bits(5, r.outputs.dk.bits(5) ^ 1);
  });
  EXPECT_EQ(verdict.status, Status::pass);
}

/// 0 times NaN is NaN unless the kernel declares that it bears it.
TEST(IsolationCheck, PassesOverWhatAHiddenNaNOfTheCaseReaches) {
  const auto status = [](const std::string& sets, int bears, int64_t element) {
    const Case c = parse_case("bf16 b2 q2 k9 d8 causal align=top-left data=normal" + sets);
    Subject subject = subject_of({}, c.problem);
    subject.conventions.bears_hidden_nan = bears;
    return judged("isolation", c, {}, subject,
                  [&](const PlannedRun& run, const Inputs&, RunResult& r) {
                    if (!run.placement.largest_hidden) r.outputs.o.set_bits(element, 0x7fc0);
                  })
        .status;
  };
  EXPECT_EQ(status(" set=v[0,5,0,3]:0x7fc0", 0, 4), Status::pass);
  EXPECT_EQ(status(" set=v[0,5,0,3]:0x7fc0", 1, 4), Status::fail);
  EXPECT_EQ(status(" set=v[0,5,0,3]:0x7fc0", 0, 2 * 8 + 4), Status::fail) << "another entry";
  EXPECT_EQ(status("", 0, 4), Status::fail);
}

TEST(RejectCheck, WantsARefusal) {
  const Case c = parse_case("bf16 q9 k20 d8 data=normal");
  const Check& reject = check("reject");
  const Subject subject;
  const std::vector<PlannedRun> runs = reject.plan(c, subject);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_NE(runs[0].mutation, IllegalMutation::none);
  EXPECT_EQ(print(runs[0].c.problem), print(c.problem)) << "what a table does not declare is never offered";
  const auto kind = [&](RunStatus status) {
    std::vector<RunResult> results(1);
    results[0].status = status;
    return reject.judge(c, subject, runs, results).kind;
  };
  EXPECT_EQ(kind(RunStatus::rejected), "");
  EXPECT_EQ(kind(RunStatus::ok), "accepted");
  EXPECT_EQ(kind(RunStatus::error), "error");
  EXPECT_EQ(kind(RunStatus::crash), "crash");
  EXPECT_EQ(kind(RunStatus::timeout), "timeout");
}

TEST(RejectCheck, GoesThroughAllMutationsAsTheSeedGrows) {
  std::set<IllegalMutation> seen;
  for (int seed = 0; seed < illegal_mutation_count; ++seed) {
    const Case c = parse_case("bf16 q9 k20 d8 data=normal seed=" + std::to_string(seed));
    seen.insert(check("reject").plan(c, Subject{}).at(0).mutation);
  }
  EXPECT_EQ(int(seen.size()), illegal_mutation_count - 1);
  EXPECT_EQ(seen.count(IllegalMutation::none), 0u);
}

TEST(RejectCheck, SpoilsOneField) {
  for (int n = 1; n < illegal_mutation_count; ++n) {
    flashproof_problem whole = {}, spoiled = {};
    whole.heads = spoiled.heads = 2;
    whole.kv_heads = spoiled.kv_heads = 1;
    whole.head_dim = spoiled.head_dim = 8;
    apply(IllegalMutation(n), spoiled);
    EXPECT_NE(std::memcmp(&whole, &spoiled, sizeof whole), 0) << name_of(IllegalMutation(n));
  }
}

TEST(Checks, ReportWhatDidNotRun) {
  for (const char* id : {"bound", "readout", "exact_inputs", "isolation"}) {
    const auto with_status = [&](RunStatus status) {
      return judged(id, "bf16 q4 k8 d8 data=normal",
                    [status](const PlannedRun&, const Inputs&, RunResult& r) { r.status = status; });
    };
    EXPECT_EQ(with_status(RunStatus::crash).kind, "crash");
    EXPECT_EQ(with_status(RunStatus::timeout).kind, "timeout");
    EXPECT_EQ(with_status(RunStatus::error).status, Status::fail);
    EXPECT_EQ(with_status(RunStatus::rejected).status, Status::rejected);
  }
}

}  // namespace
}  // namespace flashproof
