#include "fuzz/explain/explain.h"

#include <algorithm>
#include <cmath>

#include "fuzz/steady_seconds.h"

namespace flashproof {
namespace {

/// Multiply-adds that one observed run, and all of them, may cost each hypothesis.
constexpr double most_work = 1e6, most_work_of_all = 2e6;

/// The run that is shown, or nothing where it did not end well or the kernel does not take it.
std::optional<Observation> observed(const RunOnce& run_once, const LoadedKernel& kernel, const std::string& config,
                                    const Run& run, bool exact) {
  std::string reason;
  if (observing_work(run.c.problem) > most_work || !supports(kernel, run.c.problem, config, reason))
    return std::nullopt;
  const RunResult result = run_once(run, config);
  if (result.status != RunStatus::ok) return std::nullopt;
  return observe(run, subject_of(kernel, run.c.problem, config), *kernel.table, result, exact);
}

const Check& check_named(const std::string& id) {
  return *std::find_if(all_checks().begin(), all_checks().end(), [&](const Check& check) { return check.id == id; });
}

/// Those of the check's runs of a case in which elements are wrong.
void observe_check(const RunOnce& run_once, const LoadedKernel& kernel, const Case& c, const std::string& config,
                   const std::string& check, std::vector<Observation>& list) {
  std::string reason;
  if (observing_work(c.problem) > most_work || !supports(kernel, c.problem, config, reason)) return;
  const Subject subject = subject_of(kernel, c.problem, config);
  if (!check_named(check).applies(c, subject)) return;
  for (const Run& run : check_named(check).plan(c, subject)) {
    if (run.mutation != IllegalMutation::none) continue;
    std::optional<Observation> o = observed(run_once, kernel, config, run, check == "exact_inputs");
    if (o && o->wrong > 0) list.push_back(std::move(*o));
    if (list.size() >= 2) return;
  }
}

Case with_plain_data(Case c, uint64_t seed_step) {
  c.maps = {}, c.sets.clear(), c.file = {};
  if (c.recipe.family == Family::file) c.recipe.family = Family::normal;
  c.recipe.seed += seed_step;
  return c;
}

void grow(Lengths& lengths, int64_t by) {
  if (lengths.packed.empty() && lengths.used.empty()) lengths.slot += by;
}

/// Cases like the reduced one with more to see: a reduced case has so few elements that many mistakes explain them.
std::vector<Case> larger_cases(const Case& reduced) {
  std::vector<Case> cases;
  Case c = with_plain_data(reduced, 0);
  Problem& p = c.problem;
  const bool square = p.value_dim == p.head_dim;
  p.head_dim = std::max<int64_t>(p.head_dim, 8);
  p.value_dim = square ? p.head_dim : std::max<int64_t>(p.value_dim, 8);
  cases.push_back(c);
  c.recipe = {Family::normal, default_parameter, default_parameter, c.recipe.seed + 1};
  cases.push_back(c);
  grow(p.q, 3), grow(p.k, 3);
  cases.push_back(c);
  grow(p.q, 2), grow(p.k, 5);
  c.recipe.seed += 1;
  cases.push_back(c);
  if (p.heads <= 4) p.heads *= 2, p.kv_heads *= 2;
  grow(p.q, 13), grow(p.k, 29);
  cases.push_back(c);
  return cases;
}

std::vector<Observation> observe_all(const RunOnce& run_once, const LoadedKernel& kernel, const Explanation& e,
                                     double deadline) {
  std::vector<Observation> list;
  observe_check(run_once, kernel, e.job.c, e.job.config, e.failure->check, list);
  observe_check(run_once, kernel, e.reduced.c, e.reduced.config, e.failure->check, list);
  const auto add = [&](const Case& c, const std::string& config) {
    double work = observing_work(c.problem);
    for (const Observation& o : list) work += observing_work(o.in.problem);
    if (work > most_work_of_all || now() > deadline) return;
    if (std::any_of(list.begin(), list.end(), [&](const Observation& o) { return o.run.c == c; })) return;
    if (std::optional<Observation> o = observed(run_once, kernel, config, Run{.c = c, .placement = {}}, false))
      list.push_back(std::move(*o));
  };
  for (const Case& c : larger_cases(e.reduced.c)) add(c, e.reduced.config);
  add(with_plain_data(e.job.c, 1), e.job.config);
  const int64_t tile = list.empty() ? 0 : key_tiles(list.front()).front();
  for (const int64_t keys : {int64_t(9), 2 * tile + 3}) {
    Case c = with_plain_data(e.job.c, 0);
    grow(c.problem.q, 3), grow(c.problem.k, keys);
    add(c, e.job.config);
  }
  return list;
}

/// The wrong element with the largest error / bound; index -1 where none is finite.
Where worst_element(const Observation& o) {
  Where worst;
  double largest = 0;
  for (int id = 0; id < output_count; ++id) {
    const ObservedOutput& output = o.output[id];
    for (size_t n = 0; n < output.state.size(); ++n) {
      const double ratio = std::abs(output.seen[n] - output.truth[n]) / output.bound[n];
      if (output.state[n] == ElementState::wrong && std::isfinite(ratio) && ratio > largest)
        largest = ratio, worst = locate(o.in.problem, OutputId(id), int64_t(n));
    }
  }
  return worst;
}

std::vector<GrownTerm> grown_terms(const Observation& o, const Where& where) {
  const ObservedOutput& output = o[where.output];
  const double missing = std::abs(output.seen[where.index] - output.truth[where.index]) - output.bound[where.index];
  std::vector<GrownTerm> terms;
  for (const BoundTerm& term : bound_terms(o.in, o.arithmetic, where.output, where.index))
    if (term.amount > 0) terms.push_back({term.name, term.amount, 1 + missing / term.amount});
  std::sort(terms.begin(), terms.end(), [](const GrownTerm& a, const GrownTerm& b) { return a.times < b.times; });
  return terms;
}

void find_causes(const RunOnce& run_once, const LoadedKernel& kernel, double seconds,
                 const std::function<bool()>& interrupted, Explanation& e) {
  const std::vector<Observation> list = observe_all(run_once, kernel, e, now() + seconds / 2);
  const auto shown = std::max_element(list.begin(), list.end(),
                                      [](const Observation& a, const Observation& b) { return a.wrong < b.wrong; });
  e.observed_runs = int64_t(list.size());
  if (shown != list.end() && shown->wrong > 0) {
    const double deadline = now() + seconds;
    Ranking ranking = rank_causes(list, all_hypotheses(), [&] { return now() > deadline || interrupted(); });
    e.causes = std::move(ranking.causes), e.untried = ranking.untried;
    e.patterns = find_patterns(*shown);
    e.seen_in = print(shown->run.c);
    e.worst = worst_element(*shown);
    if (e.worst.index >= 0) e.terms = grown_terms(*shown, e.worst);
  }
  if (const std::optional<Cause> cause = cause_of_kind(*e.failure))
    e.causes.insert(
        std::find_if(e.causes.begin(), e.causes.end(), [&](const Cause& c) { return c.score < cause->score; }), *cause);
}

}  // namespace

bool Explanation::tied() const {
  constexpr int64_t enough_wrong = 5;
  constexpr double nearly = 0.05;
  if (causes.empty() || causes.front().wrong == 0 || causes.front().wrong >= enough_wrong) return false;
  const auto mistake_of = [](const Cause& cause) { return cause.id.substr(0, cause.id.find('.')); };
  return std::any_of(causes.begin() + 1, causes.end(), [&](const Cause& other) {
    return other.score >= causes.front().score - nearly && mistake_of(other) != mistake_of(causes.front());
  });
}

std::optional<Cause> cause_of_kind(const Verdict& verdict) {
  struct Kind {
    const char *kind, *category, *sentence;
  };
  constexpr Kind kinds[] = {{"red-zone", "MEMORY", "the kernel writes outside a buffer"},
                            {"input-changed", "MEMORY", "the kernel writes to an input"},
                            {"tail", "MEMORY", "the kernel touches outputs past the used length"},
                            {"unwritten", "MEMORY", "the kernel leaves outputs unwritten"},
                            {"crash", "MEMORY", "the kernel crashes"},
                            {"timeout", "MEMORY", "the kernel does not end in time"},
                            {"error", "MEMORY", "the kernel reports an error"},
                            {"bits", "ARITHMETIC", "the kernel does not compute in the arithmetic that it declares"},
                            {"predictors", "ARITHMETIC", "GPU and host predict different bits: Flashproof errs"}};
  for (const Kind& kind : kinds)
    if (verdict.kind == kind.kind)
      return Cause{
          .id = kind.kind, .category = kind.category, .sentence = kind.sentence, .detail = verdict.why, .score = 0.85};
  return std::nullopt;
}

Explanation explain(const RunOnce& run_once, const LoadedKernel& kernel, const Job& job,
                    const std::vector<Tunable>& tunables, double seconds, const std::function<bool()>& interrupted) {
  Explanation e;
  e.job = job;
  e.judgement = execute(run_once, kernel, job);
  if (e.judgement.failure() == nullptr) return e;
  e.failure = *e.judgement.failure();
  const std::string bucket = bucket_of(kernel, *e.failure);
  const Interesting interesting = [&](const Case& c, const std::string& config) {
    return failure_in(execute(run_once, kernel, Job{c, config, {e.failure->check}}), kernel, bucket) != nullptr;
  };
  e.reduced = reduce(job.c, job.config, interesting, seconds, tunables);
  const Arithmetic arithmetic = parse_arithmetic(subject_of(kernel, e.reduced.c.problem, e.reduced.config).arithmetic);
  const Interesting takes = [&](const Case& c, const std::string& config) {
    std::string reason;
    return supports(kernel, c.problem, config, reason);
  };
  e.fields =
      find_fields(e.reduced.c, e.reduced.config, interesting, takes, arithmetic.tile_m, arithmetic.tile_n, seconds / 2);
  find_causes(run_once, kernel, seconds, interrupted, e);
  return e;
}

}  // namespace flashproof
