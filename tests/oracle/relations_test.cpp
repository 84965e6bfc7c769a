// oracle/checks repeat and relations: right kernels pass, each relation finds a fault that the bound on the case does
// not see, and the edits of cases give the data they say.
#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "oracle/checks/related_case.h"
#include "tests/oracle/judged.h"
#include "tests/reference/arbitrary_problem.h"

namespace flashproof {
namespace {

using test::check;
using test::Fault;
using test::judged;
using test::PlannedRun;
using test::SimulatedKernel;

Subject promising(const SimulatedKernel& kernel, const Problem& p, int deterministic) {
  Subject subject = test::subject_of(kernel, p);
  subject.features = ~uint64_t(0);
  subject.conventions.deterministic = deterministic;
  return subject;
}

Verdict judged(const char* id, const Case& c, const Fault& fault = {}) {
  const SimulatedKernel kernel;
  return judged(id, c, kernel, promising(kernel, c.problem, FLASHPROOF_DETERMINISTIC_BATCH), fault);
}

/// The case with the first data seed whose verdict is of this kind: of the fault's, or with none of a relation that
/// holds.
Case seeded(const char* id, const std::string& text, const std::string& kind, const Fault& fault = {}) {
  for (int seed = 0; seed < 60; ++seed) {
    const Case c = parse_case(text + " seed=" + std::to_string(seed));
    const Verdict verdict = judged(id, c, fault);
    if (fault ? verdict.kind == kind : verdict.why == kind + ": holds") return c;
  }
  throw std::logic_error("no seed gives " + kind);
}

/// Right kernels keep the relation; the fault breaks it and keeps the bound on the case itself.
void expect_only_relation_sees(const char* relation, const std::string& text, const Fault& fault) {
  const Case c = seeded("relations", text, relation, fault);
  EXPECT_EQ(judged("relations", c).why, std::string(relation) + ": holds");
  EXPECT_EQ(judged("bound", c, fault).status, Status::pass) << judged("bound", c, fault).why;
  const Verdict verdict = judged("relations", c, fault);
  EXPECT_EQ(verdict.status, Status::fail) << relation;
  EXPECT_EQ(verdict.kind, relation);
  EXPECT_GT(verdict.ratio, 1);
  EXPECT_GE(verdict.where.index, 0);
}

/// The results of a kernel that sees other inputs.
Fault of_other_inputs(const std::function<void(const PlannedRun&, Inputs&)>& change) {
  return [change](const PlannedRun& run, const Inputs& in, RunResult& r) {
    Inputs other = in;
    change(run, other);
    r.outputs = test::run({}, other);
  };
}

void flush_below(Tensor& tensor, double least) {
  for (int64_t n = 0; n < tensor.size(); ++n)
    if (std::abs(tensor.at(n)) < least) tensor.set_bits(n, 0);
}

RC_GTEST_PROP(RelationsTest, RightKernelsPass, ()) {
  Case c;
  c.problem = test::draw_problem(DType(test::draw(0, dtype_count - 1)), 20);
  c.problem.direction = Direction(test::draw(0, 2));
  if (test::coin()) c.problem.mask = {};
  if (test::coin()) c.problem.alibi = Alibi::none, c.problem.dropout.reset();
  c.recipe.family = Family(test::draw(0, int(Family::exact)));
  c.recipe.seed = uint64_t(test::draw(0, 1 << 20));
  const SimulatedKernel kernel{
      test::Algorithm(test::draw(0, 4)), {test::draw(1, 12), test::draw(1, 12)}, test::draw(1, 5)};
  const bool rows = kernel.algorithm != test::Algorithm::flash1;  // which normalises O again at a hidden tile
  const Subject subject =
      promising(kernel, c.problem, rows ? FLASHPROOF_DETERMINISTIC_ROWS : FLASHPROOF_DETERMINISTIC_BATCH);
  for (const char* id : {"repeat", "relations"}) {
    const Verdict verdict = judged(id, c, kernel, subject);
    RC_TAG(std::string(id == std::string("repeat") ? id : verdict.why));
    for (size_t n = 0; n < verdict.ratios.size(); ++n)
      for (size_t m = 0; m < n; ++m) RC_ASSERT(verdict.ratios[m].output != verdict.ratios[n].output);
    if (verdict.status != Status::pass)
      RC_FAIL(verdict.check + ": " + verdict.kind + " " + verdict.why + " in " + print(c));
  }
}

TEST(RelationsTest, LinearitySeesSmallValuesDropped) {
  expect_only_relation_sees("linearity", "bf16 h2 q9 k40 d16 data=normal",
                            of_other_inputs([](const PlannedRun&, Inputs& in) { flush_below(in.v, 0.02); }));
}

TEST(RelationsTest, LinearitySeesALogSumThatReadsV) {
  expect_only_relation_sees("linearity", "fp16 h2 q9 k40 d16 causal data=normal",
                            [](const PlannedRun& run, const Inputs&, RunResult& r) {
                              if (run.scaling.v != 0) r.outputs.lse.set_bits(5, r.outputs.lse.bits(5) ^ 1);
                            });
}

TEST(RelationsTest, LinearityJudgesGradients) {
  for (OutputId id : {OutputId::dq, OutputId::dk, OutputId::dv})
    expect_only_relation_sees("linearity", "bf16 q9 k24 d16 bwd data=integers",
                              [id](const PlannedRun& run, const Inputs&, RunResult& r) {
                                Tensor& gradient = tensor_of(r.outputs, id);
                                for (int64_t n = 0; run.scaling.d_o != 0 && n < gradient.size(); ++n)
                                  gradient.set_bits(n, gradient.bits(n) ^ 1);
                              });
}

TEST(RelationsTest, ScaleSeesSmallQueriesDropped) {
  expect_only_relation_sees("scale", "bf16 h2 q9 k40 d64 data=normal set=q[0,0,0,0]:0x3880",
                            of_other_inputs([](const PlannedRun&, Inputs& in) { flush_below(in.q, 1e-4); }));
}

/// A key that does not exist, with score 0, in the row sum: of n keys 1/n is within a bf16 rounding.
TEST(RelationsTest, ShiftSeesAPadKey) {
  const Fault pad_key = [](const PlannedRun&, const Inputs& in, RunResult& r) {
    for (int64_t n = 0; n < r.outputs.o.size(); ++n) {
      const double l = r.outputs.lse.at(n / in.problem.value_dim);
      r.outputs.o.set_bits(n, encode(DType::bf16, r.outputs.o.at(n) / (1 + std::exp(-l))));
    }
  };
  expect_only_relation_sees("shift", "bf16 h2 q9 k1200 d8 data=normal(0.1)", pad_key);
}

/// O of keys before others is what a stale running maximum spoils: here the first key of the permuted run is dropped.
TEST(RelationsTest, PermutationSeesAKeyDropped) {
  expect_only_relation_sees("permutation", "bf16 h2 q9 k40 d8 data=normal",
                            of_other_inputs([](const PlannedRun& run, Inputs& in) {
                              if (run.c.maps.keys.empty()) return;
                              for (int64_t c = 0; c < in.problem.value_dim; ++c) in.v.set_bits(c, 0);
                            }));
}

TEST(RelationsTest, SplitSeesAWrongLogSumOfOnePart) {
  expect_only_relation_sees("split", "bf16 h2 q9 k40 d8 data=normal",
                            [](const PlannedRun& run, const Inputs&, RunResult& r) {
                              if (run.c.problem.k.slot == 40) return;
                              for (int64_t n = 0; n < r.outputs.lse.size(); ++n)
                                r.outputs.lse.set_bits(n, encode(DType::fp32, r.outputs.lse.at(n) * 1.44269504));
                            });
}

TEST(RelationsTest, DecodeSeesAnotherScale) {
  expect_only_relation_sees("decode", "bf16 b2 h4/2 seqq=[9,5] k40 d8 causal data=normal",
                            of_other_inputs([](const PlannedRun& run, Inputs& in) {
                              if (run.c.maps.rows.empty()) return;
                              in.problem.scale = scale_of(in.problem) * 1.02f;
                            }));
}

/// The last bit of one L or O where the query is alone: within any bound, and a broken promise of DETERMINISTIC_ROWS
/// alone.
TEST(RelationsTest, DecodeHoldsAPromiseOfRowsToTheBit) {
  const SimulatedKernel kernel;
  for (const OutputId id : {OutputId::lse, OutputId::o})
    for (const int32_t base : {FLASHPROOF_LSE_NATURAL, FLASHPROOF_LSE_BASE_2}) {
      const Case c = seeded("relations", "bf16 b2 h4/2 seqq=[9,5] k40 d8 causal data=normal", "decode");
      const Fault alone_differs = [id](const PlannedRun& run, const Inputs&, RunResult& r) {
        Tensor& tensor = tensor_of(r.outputs, id);
        if (!run.c.maps.rows.empty()) tensor.set_bits(1, tensor.bits(1) ^ 1);
      };
      Subject batch = promising(kernel, c.problem, FLASHPROOF_DETERMINISTIC_BATCH),
              rows = promising(kernel, c.problem, FLASHPROOF_DETERMINISTIC_ROWS);
      batch.conventions.lse_base = rows.conventions.lse_base = base;
      const Fault in_base = [base](const PlannedRun&, const Inputs&, RunResult& r) {
        for (int64_t n = 0; base == FLASHPROOF_LSE_BASE_2 && n < r.outputs.lse.size(); ++n)
          r.outputs.lse.set_bits(n, encode(DType::fp32, r.outputs.lse.at(n) * 1.4426950408889634));
      };
      const Fault both = [&](const PlannedRun& run, const Inputs& in, RunResult& r) {
        in_base(run, in, r);
        alone_differs(run, in, r);
      };
      EXPECT_EQ(judged("relations", c, kernel, rows, in_base).why, "decode: holds");
      EXPECT_EQ(judged("relations", c, kernel, batch, both).why, "decode: holds");
      const Verdict verdict = judged("relations", c, kernel, rows, both);
      EXPECT_EQ(verdict.kind, "decode");
      EXPECT_EQ(verdict.where.output, id);
      EXPECT_NE(verdict.why.find("deterministic=any-rows"), std::string::npos) << verdict.why;
    }
}

TEST(RelationsTest, FollowTheBaseOfL) {
  const SimulatedKernel kernel;
  for (const char* relation : {"shift", "split", "decode", "permutation"}) {
    const Case c = seeded("relations", "bf16 h2 q9 k40 d8 data=normal", relation);
    Subject subject = promising(kernel, c.problem, FLASHPROOF_DETERMINISTIC_BATCH);
    subject.conventions.lse_base = FLASHPROOF_LSE_BASE_2;
    const Fault base_2 = [](const PlannedRun&, const Inputs&, RunResult& r) {
      for (int64_t n = 0; n < r.outputs.lse.size(); ++n)
        r.outputs.lse.set_bits(n, encode(DType::fp32, r.outputs.lse.at(n) * 1.4426950408889634));
    };
    EXPECT_EQ(judged("relations", c, kernel, subject, base_2).status, Status::pass) << relation;
  }
}

TEST(RelationsTest, SpeakOfOneElement) {
  const Fault two_wrong = [](const PlannedRun& run, const Inputs&, RunResult& r) {
    if (run.c.maps.keys.empty()) return;
    r.outputs.lse.set_bits(0, encode(DType::fp32, r.outputs.lse.at(0) + 0.01));
    r.outputs.o.set_bits(0, encode(DType::bf16, 100));
  };
  const Verdict verdict =
      judged("relations", seeded("relations", "bf16 h2 q9 k40 d8 data=normal", "permutation", two_wrong), two_wrong);
  EXPECT_EQ(verdict.where.output, OutputId::o);
  EXPECT_TRUE(verdict.why.starts_with(print(verdict.where))) << verdict.why;
}

TEST(RelationsTest, GiveNoVerdictWhereNothingIsJudged) {
  for (const char* id : {"repeat", "relations"}) EXPECT_EQ(judged(id, parse_case("bf16 q0 k40 d8")).check, "") << id;
  const Case c = seeded("relations", "bf16 h2 q9 k40 d8 data=normal", "shift");
  const Fault refusal = [](const PlannedRun& run, const Inputs&, RunResult& r) {
    if (run.c.problem.bias) r = {.status = RunStatus::rejected, .message = "", .outputs = {}, .memory = {}};
  };
  EXPECT_EQ(judged("relations", c, refusal).check, "");
  const Fault stray_write = [](const PlannedRun&, const Inputs&, RunResult& r) { r.memory.red_zone = "o: byte 3"; };
  EXPECT_EQ(judged("relations", parse_case("bf16 q0 k40 d8"), stray_write).kind, "red-zone");
}

/// NaN of both results is no evidence where t_v / (1 - rate) is infinite, O being exactly 0: L alone is judged.
TEST(RelationsTest, SayNothingOfNaNThatOverflowMakes) {
  const auto most_judged = [](const std::string& descale) {
    int64_t most = 0;
    for (int seed = 0; seed < 20; ++seed) {
      const Verdict verdict = judged(
          "relations", parse_case("e4m3 k1 d16 dropout=0.99@1 descale data=constant_v seed=" + std::to_string(seed) +
                                  " set=v_descale[0,0,0,0]:" + descale));
      EXPECT_EQ(verdict.status, Status::pass) << verdict.why;
      most = std::max(most, verdict.judged);
    }
    return most;
  };
  EXPECT_EQ(most_judged("0x7e000000"), 1);
  EXPECT_EQ(most_judged("0x3f800000"), 17);
}

/// dQ and dK too, where the conditions hold.
TEST(RelationsTest, AreNotVacuous) {
  std::set<std::string> relations;
  for (int seed = 0; seed < 60; ++seed)
    relations.insert(
        judged("relations", parse_case("bf16 h2 q9 k40 d64 data=normal seed=" + std::to_string(seed))).why);
  EXPECT_EQ(relations, (std::set<std::string>{"linearity: holds", "scale: holds", "shift: holds", "permutation: holds",
                                              "split: holds", "decode: holds"}));
}

TEST(RepeatTest, SeesStateKeptBetweenCalls) {
  const Case c = parse_case("bf16 h2 q9 k40 d8 bwd data=normal");
  const Fault state = [](const PlannedRun& run, const Inputs&, RunResult& r) {
    if (run.placement.call == 1) r.outputs.dk.set_bits(7, r.outputs.dk.bits(7) ^ 1);
  };
  EXPECT_EQ(judged("repeat", c).status, Status::pass);
  EXPECT_EQ(judged("bound", c, state).status, Status::pass);
  EXPECT_EQ(judged("repeat", c, state).kind, "same-call");
  EXPECT_EQ(judged("repeat", c, state).where.output, OutputId::dk);
}

TEST(RepeatTest, SeesWhatDependsOnWorkspaceLayoutAndBatch) {
  const auto flip = [](Outputs& outputs) { outputs.o.set_bits(3, outputs.o.bits(3) ^ 1); };
  const std::string text = "bf16 b2 h2 q9 k40 d8 data=normal";
  const std::pair<const char*, Fault> faults[] = {{"workspace",
                                                   [&](const PlannedRun& run, const Inputs&, RunResult& r) {
                                                     if (run.placement.poison == 3) flip(r.outputs);
                                                   }},
                                                  {"layout",
                                                   [&](const PlannedRun& run, const Inputs&, RunResult& r) {
                                                     if (run.c.problem.layout.row_gap == 8) flip(r.outputs);
                                                   }},
                                                  {"batch", [&](const PlannedRun& run, const Inputs&, RunResult& r) {
                                                     if (run.c.problem.batch == 1) flip(r.outputs);
                                                   }}};
  for (const auto& [kind, fault] : faults) {
    const Case c = seeded("repeat", text, kind, fault);
    EXPECT_EQ(judged("repeat", c).status, Status::pass);
    EXPECT_EQ(judged("bound", c, fault).status, Status::pass);
  }
}

TEST(RepeatTest, HoldsKernelsToTheirPromiseAlone) {
  const Case c = parse_case("bf16 b2 h2 q9 k40 d8 data=normal");
  EXPECT_FALSE(check("repeat").applies(c, promising({}, c.problem, FLASHPROOF_DETERMINISTIC_NO)));
  for (int promise : {FLASHPROOF_DETERMINISTIC_CALL, FLASHPROOF_DETERMINISTIC_LAYOUT, FLASHPROOF_DETERMINISTIC_BATCH}) {
    bool layout = false, batch = false;
    for (int seed = 0; seed < 40; ++seed) {
      Case seeded = c;
      seeded.recipe.seed = uint64_t(seed);
      const Problem changed = check("repeat").plan(seeded, promising({}, c.problem, promise))[1].c.problem;
      layout |= !(changed.layout == c.problem.layout);
      batch |= changed.batch != c.problem.batch;
    }
    EXPECT_EQ(layout, promise >= FLASHPROOF_DETERMINISTIC_LAYOUT);
    EXPECT_EQ(batch, promise >= FLASHPROOF_DETERMINISTIC_BATCH);
  }
}

TEST(RepeatTest, AChangeMayBeRefused) {
  const SimulatedKernel kernel;
  const Case c = parse_case("bf16 h2 q9 k40 d8 data=normal");
  const Subject subject = promising(kernel, c.problem, FLASHPROOF_DETERMINISTIC_CALL);
  const Fault refusal = [](const PlannedRun& run, const Inputs&, RunResult& r) {
    if (run.placement.poison == 3) r = {.status = RunStatus::rejected, .message = "", .outputs = {}, .memory = {}};
  };
  EXPECT_EQ(judged("repeat", c, kernel, subject, refusal).status, Status::pass);
}

// ---- edits of cases

/// Rows of a tensor [tokens, ...] from `begin` on.
std::vector<uint32_t> bits_from(const Tensor& tensor, int64_t begin, int64_t tokens) {
  std::vector<uint32_t> bits;
  const int64_t width = tensor.shape[0] == 0 ? 0 : tensor.size() / tensor.shape[0];
  for (int64_t n = begin * width; n < (begin + tokens) * width; ++n) bits.push_back(tensor.bits(n));
  return bits;
}

Case any_case_in_memory() {
  Case c = test::any_case();
  if (c.recipe.family == Family::file) c.recipe.family = Family::normal, c.recipe.a = default_parameter, c.file = {};
  return c;
}

/// Entry b of one case is entry `other_b` of another, bias and numbers included.
void expect_same_entry(const Case& c, int64_t b, const Case& other, int64_t other_b) {
  RC_ASSERT(print(parse_case(print(other))) == print(other));
  const Inputs x = make_inputs(c), y = make_inputs(other);
  const int64_t rows = x.packing.seq_q(b), keys = x.packing.seq_k(b);
  RC_ASSERT(y.packing.seq_q(other_b) == rows);
  RC_ASSERT(y.packing.seq_k(other_b) == keys);
  RC_ASSERT(bits_from(x.q, x.packing.q_begin[b], rows) == bits_from(y.q, y.packing.q_begin[other_b], rows));
  RC_ASSERT(bits_from(x.d_o, x.packing.q_begin[b], rows) == bits_from(y.d_o, y.packing.q_begin[other_b], rows));
  RC_ASSERT(bits_from(x.k, x.packing.k_begin[b], keys) == bits_from(y.k, y.packing.k_begin[other_b], keys));
  RC_ASSERT(bits_from(x.v, x.packing.k_begin[b], keys) == bits_from(y.v, y.packing.k_begin[other_b], keys));
  for (int64_t h = 0; h < c.problem.heads; ++h) {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < keys; ++j) RC_ASSERT(bias_at(x, b, h, i, j) == bias_at(y, other_b, h, i, j));
    if (c.problem.alibi != Alibi::none)
      RC_ASSERT(x.slopes[b * c.problem.heads + h] == y.slopes[other_b * c.problem.heads + h]);
  }
  for (int64_t g = 0; g < c.problem.kv_heads; ++g)
    RC_ASSERT(x.v_descale[b * c.problem.kv_heads + g] == y.v_descale[other_b * c.problem.kv_heads + g]);
}

RC_GTEST_PROP(RelatedCase, EntriesKeepTheirData, ()) {
  const Case c = any_case_in_memory();
  const int64_t b = test::uniform_in<int64_t>(0, c.problem.batch - 1);
  expect_same_entry(c, b, entry_alone(c, b), 0);
  expect_same_entry(c, b, with_neighbour(c), b);
}

RC_GTEST_PROP(RelatedCase, PermutedKeysAreTheSameKeys, ()) {
  Case c = any_case_in_memory();
  c.sets.clear();
  const Inputs x = make_inputs(c), y = make_inputs(keys_permuted(c));
  for (int64_t b = 0; b < c.problem.batch; ++b) {
    std::multiset<std::vector<uint32_t>> before, after;
    for (int64_t j = x.packing.k_begin[b]; j < x.packing.k_begin[b + 1]; ++j) {
      before.insert(bits_from(x.k, j, 1));
      after.insert(bits_from(y.k, j, 1));
    }
    RC_ASSERT(before == after);
  }
}

RC_GTEST_PROP(RelatedCase, PartsOfKeysMakeTheWhole, ()) {
  Case c = any_case_in_memory();
  c.sets.clear();
  if (c.recipe.family == Family::late_max) c.recipe.family = Family::integers;
  const int64_t keys = max_used_length(c.problem.k, c.problem.batch);
  const int64_t cut = test::uniform_in<int64_t>(0, keys);
  const Inputs whole = make_inputs(c), first = make_inputs(keys_between(c, 0, cut)),
               second = make_inputs(keys_between(c, cut, keys));
  for (int64_t b = 0; b < c.problem.batch; ++b) {
    std::vector<uint32_t> merged = bits_from(first.v, first.packing.k_begin[b], first.packing.seq_k(b));
    const std::vector<uint32_t> rest = bits_from(second.v, second.packing.k_begin[b], second.packing.seq_k(b));
    merged.insert(merged.end(), rest.begin(), rest.end());
    RC_ASSERT(merged == bits_from(whole.v, whole.packing.k_begin[b], whole.packing.seq_k(b)));
  }
}

RC_GTEST_PROP(RelatedCase, LastRowIsTheLastRow, ()) {
  Case c = entry_alone(any_case_in_memory(), 0);
  c.sets.clear();
  RC_PRE(used_length(c.problem.q, 0) > 0);
  const Inputs all = make_inputs(c), last = make_inputs(last_row(c));
  RC_ASSERT(last.packing.total_q() == 1);
  RC_ASSERT(bits_from(last.q, 0, 1) == bits_from(all.q, all.packing.total_q() - 1, 1));
}

}  // namespace
}  // namespace flashproof
