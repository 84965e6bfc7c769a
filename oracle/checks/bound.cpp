// Check `bound`: every element of every output within the bound of the declared Arithmetic.
//
// With e = |result - mid| and r the radius of the exact value's enclosure, an element passes if e + r <= bound and
// fails if e - r > bound; between the two the enclosure is refined (Ziv's strategy). Rows that see no key follow the
// kernel's conventions; what non-finite inputs do is oracle/nonfinite.h; where a format may overflow, or scores may be
// off by too much, the bound is infinite and nothing is judged.
#include <algorithm>
#include <cmath>
#include <limits>

#include "oracle/bound.h"
#include "oracle/checks/checks.h"
#include "oracle/farthest_rows.h"
#include "oracle/nonfinite.h"
#include "reference/arithmetic.h"

namespace flashproof {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double ln_2 = 0x1.62e42fefa39efp-1;
/// Multiply-adds in double that one verdict may take, and multiply-adds at 128 bits and above (about 30 ns each).
constexpr double sample_work = 4e8, refine_work = 2e7;
constexpr size_t most_suspect_rows = 16;

/// One verdict in the making.
struct Judging {
  const Case& c;
  const Subject& subject;
  const Outputs& outputs;
  const Inputs in;
  const Arithmetic arithmetic;
  const Judgements nonfinite;
  Verdict verdict;
  double refined_work = 0;
  int64_t unbounded = 0, vacuous = 0, unrefined = 0;

  Judging(const Case& the_case, const Subject& the_subject, const Outputs& results)
      : c(the_case),
        subject(the_subject),
        outputs(results),
        in(make_inputs(the_case)),
        arithmetic(parse_arithmetic(the_subject.arithmetic)),
        nonfinite(judge_nonfinite(in, the_subject.conventions.bears_hidden_nan != 0)) {}
};

bool base_2(const Subject& subject) { return subject.conventions.lse_base == FLASHPROOF_LSE_BASE_2; }

/// Multiply-adds that refining one element costs, at most: its query row, or the rows that a sum over rows takes.
double refining_cost(const Inputs& in, OutputId id) {
  const Problem& p = in.problem;
  const double row = double(max_used_length(p.k, p.batch)) * double(p.head_dim + p.value_dim);
  const int64_t rows = max_used_length(p.q, p.batch);
  switch (id) {
    case OutputId::o:
    case OutputId::lse:
      return row;
    case OutputId::dq:
      return 2 * row;
    case OutputId::dk:
    case OutputId::dv: {
      const int64_t group = p.heads / p.kv_heads;
      return 2 * row * double(rows * group);
    }
    case OutputId::dsink:
      return 2 * row * double(rows * p.batch);
    case OutputId::dbias:
      break;
  }
  return 2 * row * double(rows * p.batch * p.heads);
}

/// All rows of a problem that is small enough; else a sample, with the rows where O is farthest from plain double.
Sample rows_to_judge(const Judging& j) {
  const auto sample = [&](const std::vector<int64_t>& suspects) {
    return sample_rows(j.in.problem, sample_work, j.arithmetic.tile_m, j.arithmetic.tile_n, suspects, j.c.recipe.seed);
  };
  Sample any = sample({});
  if (any.all || !is_judged(j.subject, j.in.problem, OutputId::o)) return any;
  return sample(farthest_rows(j.in, j.outputs.o, sample_work, most_suspect_rows, j.c.recipe.seed));
}

/// Notes the ratio of an error to its bound, and of the output's largest the sizes behind it; true for the verdict's
/// worst.
bool note_error(Judging& j, OutputId id, int64_t index, double error, double bound, double ulp) {
  const double ratio = error == 0 ? 0 : bound == 0 ? infinity : error / bound;
  const bool worst = note_ratio(j.verdict, j.in.problem, id, index, ratio);
  OutputRatio& largest = ratio_of(j.verdict, id);
  if (largest.index == index) largest.error = error, largest.bound = bound, largest.ulp = ulp;
  return worst;
}

void fail_element(Judging& j, OutputId id, int64_t index, const char* kind, const std::string& what) {
  if (note_error(j, id, index, infinity, 0, 0)) fail_as_worst(j.verdict, kind, print(j.verdict.where) + what);
}

/// L (and O) of a row without keys and sink; true if that settles the element.
bool judge_empty(Judging& j, OutputId id, int64_t index, double result, double exact) {
  if (id != OutputId::lse || exact != -infinity) return false;
  const std::optional<double> expected = empty_lse(j.subject);
  if (!expected) return true;
  ++j.verdict.judged;
  if (result == *expected)
    note_error(j, id, index, 0, 0, 0);
  else
    fail_element(j, id, index, "empty-row",
                 " is " + number_text(result) + "; a row that sees no key has " + number_text(*expected));
  return true;
}

/// The bounds, and the values that they are of.
struct Statement {
  const Values& values;
  const Bounds& bounds;

  /// Whether overflow may leave a row of O without any weight, so that not even a NaN of V gets there.
  bool may_lose_row(int64_t row) const {
    const std::vector<uint8_t>& known = values.output[int(OutputId::lse)].known;
    if (known.empty() || !known[row]) return bounds.overflow_possible;
    return bounds.bound[int(OutputId::lse)][row] == infinity;
  }
};

/// NaN where it must be.
bool judge_nan(Judging& j, OutputId id, int64_t index, double result, const Statement& statement) {
  const Judgement judgement = j.nonfinite.at(id, index);
  if (judgement == Judgement::judged) return false;
  if (judgement == Judgement::not_judged) return true;
  const int64_t row = id == OutputId::o ? index / j.in.problem.value_dim : 0;
  if (id == OutputId::o && j.nonfinite.at(OutputId::lse, row) == Judgement::judged && statement.may_lose_row(row)) {
    ++j.unbounded;
    return true;
  }
  ++j.verdict.judged;
  if (!std::isnan(result))
    fail_element(j, id, index, "nan-lost", " is " + number_text(result) + "; a NaN that it reads must make it NaN");
  return true;
}

/// The enclosure refined until it decides, or as it is when the work allowed is spent.
void refine(Judging& j, OutputId id, int64_t index, double result, double bound, double& mid, double& radius) {
  const double cost = refining_cost(j.in, id);
  if (j.refined_work > 0 && j.refined_work + cost > refine_work) {
    ++j.unrefined;
    return;
  }
  j.refined_work += cost;
  for (double wanted = std::max(bound, std::numeric_limits<double>::min()) * 0x1p-10; wanted > 0; wanted *= 0x1p-40) {
    const Enclosure exact = enclose(j.in, id, index, wanted);
    mid = exact.mid;
    radius = exact.radius;
    const double error = std::abs(result - mid);
    if (error + radius <= bound || error - radius > bound || radius > wanted) return;
  }
}

void judge_finite(Judging& j, OutputId id, int64_t index, double result, double bound, const OutputValues& values) {
  double mid = values.mid[index], radius = values.radius[index];
  const bool two = id == OutputId::lse && base_2(j.subject);
  if (two) {  // log2 e and the product, if the kernel makes base 2 from base e; and our own product
    bound += 2 * 0x1p-24 * std::abs(mid);
    result *= ln_2;
    radius += std::abs(result) * 0x1p-52;
  }
  const auto undecided = [&] {
    const double e = std::abs(result - mid);
    return !(e + radius <= bound) && !(e - radius > bound);
  };
  if (bound == 0 && result == 0 && std::abs(mid) <= radius) mid = radius = 0;  // nothing contributes
  if (undecided()) refine(j, id, index, result, bound, mid, radius);
  ++j.verdict.judged;
  if (undecided()) {
    ++j.verdict.undecided;
    return;
  }
  const DType format = tensor_of(j.outputs, id).dtype;
  const double error = std::abs(result - mid);
  const bool worst = note_error(j, id, index, error, bound, two ? ln_2 * ulp(format, mid / ln_2) : ulp(format, mid));
  if (!values.condition.empty() && bound >= values.condition[index] && values.condition[index] > 0) ++j.vacuous;
  if (error - radius > bound && worst)
    fail_as_worst(j.verdict, "value",
                  print(j.verdict.where) + " is " + number_text(result) + ", exactly " + number_text(mid) +
                      ": off by " + number_text(error) + ", bound " + number_text(bound) + " (" +
                      number_text(j.verdict.ratio) + " times)");
}

void judge_element(Judging& j, OutputId id, int64_t index, const Statement& statement) {
  const double result = tensor_of(j.outputs, id).at(index), bound = statement.bounds.bound[int(id)][index];
  const OutputValues& values = statement.values.output[int(id)];
  if (judge_nan(j, id, index, result, statement)) return;
  if (judge_empty(j, id, index, result, values.mid[index])) return;
  if (id == OutputId::o && !empty_o_defined(j.subject) && !j.in.problem.sink &&
      sees_no_key(j.in, locate(j.in.problem, id, index)))
    return;
  if (bound == infinity) {
    ++j.unbounded;
    return;
  }
  if (!std::isfinite(result)) {
    ++j.verdict.judged;
    fail_element(j, id, index, std::isnan(result) ? "nan" : "infinity",
                 " is " + number_text(result) + ", exactly " + number_text(values.mid[index]));
    return;
  }
  judge_finite(j, id, index, result, bound, values);
}

/// Elements that NaN in the inputs decides are judged in the whole tensor, the others in the sample.
void judge_output(Judging& j, OutputId id, const Statement& statement) {
  const Tensor& results = tensor_of(j.outputs, id);
  const auto& known = statement.values.output[int(id)].known;
  for (int64_t index = 0; index < results.size(); ++index)
    if (!known.empty() && known[index])
      judge_element(j, id, index, statement);
    else
      judge_nan(j, id, index, results.at(index), statement);
}

std::string undeclared_fields(const Arithmetic& a) {
  const std::pair<bool, const char*> fields[] = {
      {a.tile_m == 0 || a.tile_n == 0, "tile"},
      {a.scores.kind == Accumulation::unknown, "scores"},
      {a.values.kind == Accumulation::unknown, "values"},
      {a.two_level == Tristate::unknown, "levels"},
      {a.exponential == Exponential::unknown, "exp"},
      {a.argument == Argument::unknown, "arg"},
      {a.argument != Argument::base_e && a.scaled == Tristate::unknown, "scaled"},
      {a.score_format < 0, "s"},
      {a.prescaled == Tristate::unknown, "prescaled"},
      {a.p_format < 0, "p"},
      {a.normalized == Normalization::unknown, "normalized"},
      {a.row_sum_lanes == 0, "rowsum"},
      {a.splits == 0, "splits"},
      {a.division == Division::unknown, "division"}};
  std::string text;
  for (const auto& [unknown, name] : fields)
    if (unknown) text += std::string(text.empty() ? "" : ", ") + name;
  return text;
}

std::string why_unbounded(const Bounds& bounds) {
  if (bounds.overflow_possible)
    return "overflow possible: these inputs may drive scores, sums or outputs beyond the largest number of the "
           "kernel's formats";
  return "the bound is infinite: scores may be off by up to " + number_text(bounds.score_error) +
         ", too much for any statement on the sum of weights";
}

void conclude(Judging& j, const Bounds& bounds) {
  Verdict& v = j.verdict;
  v.assumed = "bound " + bounds.status;
  const std::string undeclared = undeclared_fields(j.arithmetic);
  if (!undeclared.empty())
    v.assumed +=
        "; worst case over the arithmetic not declared (" + undeclared + "; " + j.subject.where_to_declare + ")";
  const std::string undefined = undefined_conventions(j.subject);
  if (!undefined.empty()) v.assumed += "; " + undefined;
  if (j.vacuous > 0)
    v.assumed += "; " + std::to_string(j.vacuous) + " bounds are vacuous: larger than the sum of magnitudes";
  if (v.status != Status::pass) return;
  if (j.unbounded > 0) {
    v.status = Status::inconclusive;
    v.kind = bounds.overflow_possible ? "overflow" : "score-error";
    v.why = why_unbounded(bounds) + ", so " + std::to_string(j.unbounded) +
            " elements were not judged; nothing is to be done about the kernel";
  } else if (v.undecided > 0) {
    v.status = Status::inconclusive;
    v.kind = "undecided";
    v.why =
        std::to_string(v.undecided) + " elements lie so close to their bound that double cannot decide, nor 4096 bits";
    if (j.unrefined > 0)
      v.why += "; " + std::to_string(j.unrefined) + " of them were left at double, which took the work allowed";
  } else if (v.judged > 0) {
    v.why = "largest ratio at " + print(v.where);
  }
}

bool applies(const Case&, const Subject&) { return true; }

std::vector<Run> plan(const Case& c, const Subject&) { return {Run{.c = c, .placement = {}}}; }

Verdict judge(const Case& c, const Subject& subject, std::span<const Run>, std::span<const RunResult> results) {
  if (Verdict status = judge_status("bound", results); !status.check.empty()) return status;
  Judging j(c, subject, results[0].outputs);
  j.verdict.check = "bound";
  judge_memory(j.verdict, results[0].memory);
  Values values = value_double(j.in, rows_to_judge(j), 0, subject.conventions.bears_hidden_nan != 0);
  for (int id = 0; id < output_count; ++id)
    if (!is_judged(subject, c.problem, OutputId(id))) values.output[id] = {};
  const Bounds bounds = bound(j.in, j.arithmetic, values);
  for (int id = 0; id < output_count; ++id)
    if (is_judged(subject, c.problem, OutputId(id))) judge_output(j, OutputId(id), {values, bounds});
  conclude(j, bounds);
  return j.verdict;
}

}  // namespace

const Check bound_check = {"bound", "every element within the rounding-error bound of the declared arithmetic", applies,
                           plan, judge};

}  // namespace flashproof
