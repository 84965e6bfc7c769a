// The table of checks, and the steps of judging that they share.
#include "oracle/check.h"

#include <cmath>
#include <cstdio>
#include <limits>

#include "oracle/checks/checks.h"

namespace flashproof {

std::span<const Check> all_checks() {
  static const Check checks[] = {bound_check,     bits_check,   readout_check,   exact_inputs_check,
                                 isolation_check, repeat_check, relations_check, reject_check};
  return checks;
}

Inputs make_inputs(const Run& run, const TokenMaker& make) {
  Inputs in = make_inputs(run.c, make);
  const std::pair<Tensor*, int> scaled[] = {{&in.q, run.scaling.q}, {&in.v, run.scaling.v}, {&in.d_o, run.scaling.d_o}};
  for (const auto& [tensor, power] : scaled)
    for (int64_t n = 0; power != 0 && n < tensor->size(); ++n)
      tensor->set_bits(n, encode(tensor->dtype, std::ldexp(tensor->at(n), power)));
  return in;
}

Verdict judge_status(const char* check, std::span<const RunResult> results) {
  Verdict verdict;
  for (const RunResult& result : results) {
    if (result.status == RunStatus::ok) continue;
    verdict.check = check;
    verdict.why = result.message;
    constexpr const char* kinds[] = {"", "rejected", "error", "crash", "timeout"};
    verdict.kind = kinds[int(result.status)];
    verdict.status = result.status == RunStatus::rejected ? Status::rejected : Status::fail;
    if (verdict.status == Status::fail) {
      verdict.ratio = std::numeric_limits<double>::infinity();
      return verdict;
    }
  }
  return verdict;
}

std::string number_text(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", x);
  return text;
}

void fail(Verdict& verdict, const char* kind, const std::string& why) {
  if (verdict.status == Status::fail) return;
  verdict.status = Status::fail;
  verdict.kind = kind;
  verdict.why = why;
}

void fail_at(Verdict& verdict, const Where& where, const char* kind, const std::string& why) {
  if (verdict.status == Status::fail) return;
  verdict.where = where;
  verdict.ratio = std::numeric_limits<double>::infinity();
  fail(verdict, kind, why);
}

void judge_memory(Verdict& verdict, const MemoryReport& memory) {
  const struct {
    const char* kind;
    const std::string& finding;
  } findings[] = {{"red-zone", memory.red_zone},
                  {"input-changed", memory.input_changed},
                  {"unwritten", memory.unwritten},
                  {"tail", memory.tail_touched}};
  for (const auto& [kind, finding] : findings) {
    if (finding.empty()) continue;
    fail(verdict, kind, finding);
    verdict.ratio = std::numeric_limits<double>::infinity();
  }
}

OutputRatio& ratio_of(Verdict& verdict, OutputId output) {
  for (OutputRatio& of : verdict.ratios)
    if (of.output == output) return of;
  return verdict.ratios.emplace_back(OutputRatio{.output = output});
}

bool note_ratio(Verdict& verdict, const Problem& problem, OutputId output, int64_t index, double ratio) {
  OutputRatio& worst = ratio_of(verdict, output);
  if (worst.index < 0 || ratio > worst.ratio) {
    worst.ratio = ratio;
    worst.index = index;
  }
  if (!(ratio > verdict.ratio || (verdict.where.index < 0 && verdict.ratio == 0))) return false;
  verdict.ratio = ratio;
  verdict.where = locate(problem, output, index);
  return true;
}

void fail_as_worst(Verdict& verdict, const char* kind, const std::string& why) {
  verdict.status = Status::fail;
  verdict.kind = kind;
  verdict.why = why;
}

Verdict unless_vacuous(const Verdict& verdict) {
  return verdict.status == Status::pass && verdict.judged == 0 ? Verdict{} : verdict;
}

bool is_judged(const Subject& subject, const Problem& problem, OutputId output) {
  switch (output) {
    case OutputId::o:
      return problem.direction != Direction::backward_exact;
    case OutputId::lse:
      return problem.direction != Direction::backward_exact && subject.conventions.lse_base != FLASHPROOF_LSE_NONE;
    case OutputId::dsink:
      return has_backward(problem) && problem.sink;
    case OutputId::dbias:
      return has_backward(problem) && problem.bias.has_value();
    case OutputId::dq:
    case OutputId::dk:
    case OutputId::dv:
      break;
  }
  return has_backward(problem);
}

bool empty_o_defined(const Subject& subject) { return subject.conventions.empty_o == FLASHPROOF_EMPTY_O_ZERO; }

std::optional<double> empty_lse(const Subject& subject) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  switch (subject.conventions.empty_lse) {
    case FLASHPROOF_EMPTY_LSE_MINUS_INFINITY:
      return -infinity;
    case FLASHPROOF_EMPTY_LSE_PLUS_INFINITY:
      return infinity;
    case FLASHPROOF_EMPTY_LSE_ZERO:
      return 0;
    default:
      return std::nullopt;
  }
}

bool sees_no_key(const Inputs& in, const Where& at) {
  for (int64_t j = 0; j < in.packing.seq_k(at.b); ++j)
    if (sees(in, at.b, at.head, at.position, j)) return false;
  return true;
}

std::vector<uint8_t> undefined_rows(const Case& c, const Subject& subject) {
  std::vector<uint8_t> undefined;
  if ((empty_o_defined(subject) && empty_lse(subject)) || c.problem.sink) return undefined;
  const Inputs in = make_inputs(c);
  for (int64_t b = 0; b < c.problem.batch; ++b)
    for (int64_t i = 0; i < in.packing.seq_q(b); ++i)
      for (int64_t h = 0; h < c.problem.heads; ++h)
        undefined.push_back(sees_no_key(in, {.b = b, .position = i, .head = h}));
  return undefined;
}

std::string undefined_conventions(const Subject& subject) {
  std::string text;
  const auto add = [&](bool undefined, const char* what) {
    if (undefined) text += std::string(text.empty() ? "not checked, as the kernel leaves it undefined: " : ", ") + what;
  };
  add(!empty_o_defined(subject), "O of rows without keys");
  add(!empty_lse(subject).has_value(), "L of rows without keys");
  add(subject.conventions.lse_base == FLASHPROOF_LSE_NONE, "L");
  add(subject.conventions.tail == FLASHPROOF_TAIL_UNDEFINED, "outputs past the used lengths");
  return text;
}

Case neutral_case(const Case& c, Family family, bool keep_dropout) {
  Case neutral;
  neutral.problem = c.problem;
  Problem& p = neutral.problem;
  p.bias.reset();
  p.alibi = Alibi::none;
  p.sink = false;
  p.softcap = 0;
  p.descale = false;
  // A larger scale times log2 e may be infinite in fp32, and 0 times that is NaN.
  if (std::abs(scale_of(p)) > 0x1p126f) p.scale.reset();
  p.direction = Direction::forward;
  if (!keep_dropout || !p.dropout || p.dropout->rate != 0.5f) p.dropout.reset();
  neutral.recipe.family = family;
  neutral.recipe.seed = c.recipe.seed;
  return neutral;
}

}  // namespace flashproof
