// `explain`: what a failing case has in common with named mistakes of attention kernels.
#include <algorithm>

#include <fmt/format.h>

#include "fuzz/cli/named_case.h"
#include "fuzz/cli/options.h"
#include "fuzz/cli/verbs.h"
#include "fuzz/explain/explain.h"
#include "fuzz/json_text.h"
#include "fuzz/record.h"
#include "reference/errors.h"

namespace flashproof {
namespace {

constexpr size_t most_causes = 5, most_terms = 4;
/// Terms are worth a line while an error is of the size of rounding.
constexpr double rounding_size = 1e4;

struct Options {
  std::vector<std::string> words;
  std::string kernel, config, check, campaign;
  double seconds = 10;
  Limits limits;
  bool json = false;
};

const char* words_of(Scope scope) {
  if (scope == Scope::everywhere) return "";
  return scope == Scope::failing_rows ? ", at some rows" : ", at some elements";
}

std::string joined_list(const std::vector<std::string>& list, const char* none) {
  std::string text;
  for (const std::string& word : list) text += (text.empty() ? "" : ", ") + word;
  return text.empty() ? none : text;
}

/// A cause counts elements over all `runs`, a pattern those of one.
std::string line_of(const Cause& cause, int64_t runs) {
  std::string line =
      fmt::format("  {:4.2f}  {:<9} {}{}", cause.score, cause.category, cause.sentence, words_of(cause.scope));
  if (!cause.detail.empty()) line += ": " + cause.detail;
  line += fmt::format("  [{}]", cause.id);
  if (cause.wrong > 0)
    line += fmt::format("\n        explains {} of {} wrong elements{}, contradicts {} right ones", cause.explained,
                        cause.wrong, runs > 1 ? fmt::format(" of the {} runs", runs) : "", cause.contradicted);
  return line + "\n";
}

std::string causes_of(const Explanation& e) {
  std::string text =
      fmt::format("causes        held against {} run{}\n", e.observed_runs, e.observed_runs == 1 ? "" : "s");
  if (e.untried > 0) text += fmt::format("  no time for {} of them: --for gives more\n", e.untried);
  if (e.tied())
    text += "  too few wrong elements to tell these apart\n";
  else if (!e.fits())
    text += "  no named cause fits; the nearest are\n";
  for (size_t n = 0; n < std::min(most_causes, e.causes.size()); ++n)
    if (!e.fits() || e.causes[n].score >= e.causes.front().score - 0.25) text += line_of(e.causes[n], e.observed_runs);
  return text;
}

std::string terms_of(const Explanation& e) {
  if (e.terms.empty() || e.terms.front().times > rounding_size) return "";
  std::string text =
      fmt::format("rounding      {} would be within the bound if one of these terms were larger\n", print(e.worst));
  for (size_t n = 0; n < std::min(most_terms, e.terms.size()); ++n)
    text += fmt::format("  {:<24} {:.3g} times\n", e.terms[n].name, e.terms[n].times);
  return text;
}

std::string page_of(const Explanation& e, const std::string& kernel, const std::string& replay) {
  const Verdict& failure = *e.failure;
  std::string page = fmt::format("{} fails check {} on {}\n  {}\n", kernel, failure.check, print(e.job.c), failure.why);
  page += fmt::format("reduced       {}{}\n", print(e.reduced.c),
                      e.reduced.config.empty() ? "" : " with " + e.reduced.config);
  page += fmt::format("needs         {}\n", joined_list(e.fields.needed, "no field of the case"));
  if (!e.fields.idle.empty()) page += fmt::format("does without  {}\n", joined_list(e.fields.idle, ""));
  if (!e.fields.boundaries.empty())
    page += fmt::format("fails where   {} (beside the reduced case, one number changed at a time)\n",
                        joined_list(e.fields.boundaries, ""));
  if (!e.patterns.empty()) page += fmt::format("wrong         in {}\n", e.seen_in);
  for (const Pattern& pattern : e.patterns)
    page +=
        fmt::format("  {:<6} {} of {} elements: {} (precision {:.0f} %, recall {:.0f} %)\n", name_of(pattern.output),
                    pattern.wrong, pattern.judged, pattern.rule, 100 * pattern.precision, 100 * pattern.recall);
  return page + causes_of(e) + terms_of(e) + "replay        " + replay + "\n";
}

JsonText json_of(const Cause& cause) {
  constexpr const char* scopes[] = {"everywhere", "failing rows", "failing elements"};
  return json_object({{"id", cause.id},
                      {"category", cause.category},
                      {"sentence", cause.sentence},
                      {"detail", cause.detail},
                      {"score", cause.score},
                      {"scope", scopes[int(cause.scope)]},
                      {"wrong", cause.wrong},
                      {"explained", cause.explained},
                      {"contradicted", cause.contradicted}});
}

JsonText json_of(const Explanation& e, const std::string& kernel, const std::string& replay) {
  std::vector<JsonText> patterns, causes;
  std::vector<JsonMember> terms;
  for (const Pattern& p : e.patterns)
    patterns.push_back(json_object({{"output", name_of(p.output)},
                                    {"rule", p.rule},
                                    {"wrong", p.wrong},
                                    {"judged", p.judged},
                                    {"precision", p.precision},
                                    {"recall", p.recall}}));
  for (size_t n = 0; n < std::min(2 * most_causes, e.causes.size()); ++n) causes.push_back(json_of(e.causes[n]));
  for (const GrownTerm& term : e.terms) terms.push_back({term.name, term.times});
  const bool fails = e.failure.has_value();
  return json_object({{"case", print(e.job.c)},
                      {"kernel", kernel},
                      {"config", e.job.config},
                      {"status", name_of(e.judgement.status())},
                      {"verdict", JsonText::raw(fails ? print(*e.failure) : "null")},
                      {"reduced", fails ? print(e.reduced.c) : ""},
                      {"reduced_config", e.reduced.config},
                      {"needed", e.fields.needed},
                      {"idle", e.fields.idle},
                      {"boundaries", e.fields.boundaries},
                      {"seen_in", e.seen_in},
                      {"patterns", json_array(patterns)},
                      {"fits", e.fits()},
                      {"untried", e.untried},
                      {"causes", json_array(causes)},
                      {"terms", json_object(terms)},
                      {"replay", replay}});
}

/// Ends an explanation before its next run.
struct Interrupted {};

int explain_verb(const Options& o) {
  const NamedCase named =
      find_failing_case("explain", joined(o.words), o.campaign, {"", o.kernel, o.config, {}}, o.check);
  const LoadedKernel& kernel = load_kernel(named.kernel);
  require_device(kernel);
  Worker worker(kernel.name, o.limits);
  const RunOnce run_once = [&worker](const Run& run, const std::string& config) {
    if (interrupt_flag()) throw Interrupted{};
    return worker.run(run, config);
  };
  const Job job{parse_case(named.text), named.config, named.checks};
  const Explanation e =
      explain(run_once, kernel, job, parse_tunables(kernel), o.seconds, [] { return interrupt_flag() != 0; });
  if (interrupt_flag()) throw Interrupted{};
  const std::string replay = replay_line(kernel, job, e.failure ? e.failure->check : "");
  if (o.json)
    fmt::print("{}\n", json_of(e, kernel.name, replay).text());
  else if (e.failure)
    fmt::print("{}", page_of(e, kernel.name, replay));
  else
    fmt::print("{}: {} does not fail on {}: there is nothing to explain\n{}replay        {}\n",
               name_of(e.judgement.status()), kernel.name, print(job.c),
               e.judgement.rejected.empty() ? "" : "  " + e.judgement.rejected + "\n", replay);
  return exit_code(e.judgement.status());
}

}  // namespace

void add_explain(CommandLine& line) {
  auto o = std::make_shared<Options>();
  line.verb("explain", "which fields, elements and named mistakes a failing case has to do with",
            "explain my-campaign/findings/BUCKET/smallest.json",
            [o] {
              try {
                return explain_verb(*o);
              } catch (const Interrupted&) {
                return 130;
              }
            })
      .words("CASE", o->words, true, "one case: a witness or record file, an id, or its text")
      .option("--kernel", o->kernel, "the kernel; files and ids name their own")
      .option("--config", o->config, "the kernel's tunables")
      .option("--check", o->check, "the check that fails; the first that does without")
      .option("--campaign", o->campaign,
              "the campaign in which to look for an id (the newest in ./flashproof-campaigns)")
      .positive_duration("--for", o->seconds, "limit of reduction, and of the causes; the fields have half of it (10s)")
      .positive_duration("--timeout", o->limits.seconds, "limit of one run (20s)")
      .flag("--json", o->json, "one JSON object on stdout");
}

}  // namespace flashproof
