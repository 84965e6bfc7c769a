#include "fuzz/explain/observation.h"

#include <cmath>
#include <limits>

#include "oracle/bound.h"
#include "oracle/checks/checks.h"
#include "oracle/nonfinite.h"

namespace flashproof {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double ln_2 = 0x1.62e42fefa39efp-1;

/// Rows whose O or L the kernel leaves undefined are not judged; L of such rows may be declared to be another number.
bool undefined_here(const Observation& o, OutputId id, int64_t index, double& truth) {
  if (id == OutputId::lse && truth == -infinity) {
    const std::optional<double> expected = empty_lse(o.subject);
    if (expected) truth = *expected;
    return !expected;
  }
  return id == OutputId::o && !empty_o_defined(o.subject) && !o.in.problem.sink &&
         sees_no_key(o.in, locate(o.in.problem, id, index));
}

void judge(Observation& o, OutputId id, const OutputValues& values, const std::vector<double>& bounds,
           const Judgements& nonfinite, bool exact) {
  ObservedOutput& output = o.output[int(id)];
  const Tensor& tensor = tensor_of(o.outputs, id);
  const bool base_2 = id == OutputId::lse && o.subject.conventions.lse_base == FLASHPROOF_LSE_BASE_2;
  output.seen = decoded(tensor);
  output.truth = values.mid;
  output.bound = bounds;
  output.state.assign(output.seen.size(), ElementState::unjudged);
  for (size_t n = 0; n < output.seen.size(); ++n) {
    if (!values.known[n] || nonfinite.at(id, int64_t(n)) == flashproof::Judgement::not_judged) continue;
    if (base_2 && std::isfinite(output.seen[n])) output.seen[n] *= ln_2;
    if (undefined_here(o, id, int64_t(n), output.truth[n]) || bounds[n] == infinity) continue;
    double& bound = output.bound[n];
    if (base_2) bound += 2 * 0x1p-24 * std::abs(output.truth[n]);
    if (exact && id != OutputId::lse)
      bound = std::min(bound, std::abs(output.truth[n]) * std::ldexp(1.0, -format_of(tensor.dtype).precision));
    bound += std::isfinite(values.radius[n]) ? values.radius[n] : 0;
    const bool right = agrees(output.seen[n], output.truth[n], bound);
    output.state[n] = right ? ElementState::right : ElementState::wrong;
    o.wrong += !right;
  }
}

}  // namespace

bool agrees(double seen, double expected, double tolerance) {
  if (std::isnan(expected)) return std::isnan(seen);
  if (std::isinf(expected) || std::isinf(seen)) return seen == expected;
  return std::abs(seen - expected) <= tolerance;
}

bool is_poison(const Tensor& tensor, int64_t index) {
  const uint32_t quiet = 1u << (format_of(tensor.dtype).precision - 2);
  return std::isnan(tensor.at(index)) && !(tensor.bits(index) & quiet);
}

bool holds_poison(const Observation& o, OutputId id) {
  for (size_t n = 0; n < o[id].state.size(); ++n)
    if (is_poison(tensor_of(o.outputs, id), int64_t(n))) return true;
  return false;
}

double observing_work(const Problem& p) {
  // A pair's mask, dropout and exponential cost about as much as so many channels.
  constexpr double work_beside_channels = 32;
  double pairs = 0;
  for (int64_t b = 0; b < p.batch; ++b) pairs += double(used_length(p.q, b)) * double(used_length(p.k, b) + 1);
  return pairs * double(p.heads) * (double(p.head_dim + p.value_dim) + work_beside_channels) *
         (has_backward(p) ? 3 : 1);
}

Observation observe(const Run& run, const Subject& subject, const flashproof_kernel& kernel, const RunResult& result,
                    bool exact) {
  Observation o{.run = run,
                .subject = subject,
                .in = make_inputs(run),
                .arithmetic = parse_arithmetic(subject.arithmetic),
                .outputs = result.outputs,
                .memory = {},
                .output = {}};
  flashproof_kernel on_host = kernel;
  on_host.memory = FLASHPROOF_HOST;
  o.memory = std::make_shared<const MemoryPlan>(plan_memory(o.in, run.placement, on_host, 0));
  const bool bears = subject.conventions.bears_hidden_nan != 0;
  const Values values = value_double(o.in, Sample{}, 0, bears);
  const Bounds bounds = bound(o.in, o.arithmetic, values);
  const Judgements nonfinite = judge_nonfinite(o.in, bears);
  for (int id = 0; id < output_count; ++id)
    if (is_judged(subject, o.in.problem, OutputId(id)) && !values.output[id].mid.empty())
      judge(o, OutputId(id), values.output[id], bounds.bound[id], nonfinite, exact);
  return o;
}

}  // namespace flashproof
