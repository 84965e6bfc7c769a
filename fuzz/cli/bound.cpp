// `bound`: how far from the exact value a correct kernel may be on a case, by term. Needs no kernel to run.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "fuzz/cli/options.h"
#include "fuzz/cli/verbs.h"
#include "fuzz/json_text.h"
#include "oracle/bound.h"
#include "reference/errors.h"
#include "reference/nearest_word.h"

namespace flashproof {
namespace {

struct Options {
  std::vector<std::string> words;
  std::string kernel, config, arithmetic, output;
  int64_t element = -1;
  bool json = false;
};

/// One output's bounds in numbers.
struct Line {
  OutputId id;
  int64_t known = 0, largest_at = -1, vacuous = 0;
  double largest = 0, median = 0, largest_value = 0;
};

Line line_of(OutputId id, const OutputValues& values, const std::vector<double>& bounds) {
  Line line{id};
  std::vector<double> finite;
  for (size_t i = 0; i < bounds.size(); ++i) {
    if (!values.known[i] || !std::isfinite(values.mid[i])) continue;
    finite.push_back(bounds[i]);
    line.largest_value = std::max(line.largest_value, std::abs(values.mid[i]));
    if (line.largest_at < 0 || bounds[i] > line.largest) line.largest = bounds[i], line.largest_at = int64_t(i);
  }
  line.known = int64_t(finite.size());
  if (finite.empty()) return line;
  std::nth_element(finite.begin(), finite.begin() + finite.size() / 2, finite.end());
  line.median = finite[finite.size() / 2];
  // A bound above every value of the tensor would let zeros pass.
  line.vacuous = std::count_if(bounds.begin(), bounds.end(), [&](double b) { return b > line.largest_value; });
  return line;
}

OutputId output_named(const std::string& name) {
  std::vector<std::string> names;
  for (int id = 0; id < output_count; ++id) {
    if (name == name_of(OutputId(id))) return OutputId(id);
    names.push_back(name_of(OutputId(id)));
  }
  throw UsageError("no output is called `" + name + "`; did you mean `" + nearest_word(name, names) + "`?");
}

std::string arithmetic_of(const Options& o, const Problem& problem) {
  if (!o.kernel.empty() && !o.arithmetic.empty()) throw UsageError("give --kernel or --arithmetic, not both");
  if (o.kernel.empty()) return o.arithmetic;
  const LoadedKernel& kernel = load_kernel(o.kernel);
  std::string reason;
  if (!supports(kernel, problem, o.config, reason))
    throw UsageError(o.kernel + " does not take this problem: " + reason);
  return subject_of(kernel, problem, o.config).arithmetic;
}

JsonText json_of(const Line& line, const std::vector<BoundTerm>& terms, const Where& where) {
  std::vector<JsonMember> amounts;
  for (const BoundTerm& term : terms) amounts.push_back({term.name, term.amount});
  return json_object({{"elements", line.known},
                      {"largest", line.largest},
                      {"median", line.median},
                      {"largest_value", line.largest_value},
                      {"vacuous", line.vacuous},
                      {"element", print(where)},
                      {"index", where.index},
                      {"terms", json_object(amounts)}});
}

int bound_verb(const Options& o) {
  const Case c = case_of_words(o.words);
  if (o.element >= 0 && o.output.empty())
    throw UsageError("--element needs --output\n  example: flashproof bound --output O --element 17 'bf16 q8 k8 d64'");
  const Inputs inputs = make_inputs(c);
  const std::string text = arithmetic_of(o, c.problem);
  const Arithmetic arithmetic = parse_arithmetic(text);
  const Values values = value_double(inputs, Sample{});
  const Bounds bounds = bound(inputs, arithmetic, values);

  std::string table = fmt::format("  {:<6} {:>9} {:>13} {:>13} {:>15} {:>9}\n", "output", "elements", "largest",
                                  "median", "largest |value|", "vacuous");
  std::string by_term;
  std::vector<JsonMember> json;
  for (int n = 0; n < output_count; ++n) {
    const OutputId id = OutputId(n);
    if (values[id].mid.empty() || (!o.output.empty() && id != output_named(o.output))) continue;
    const Line line = line_of(id, values[id], bounds.bound[n]);
    const int64_t at = o.element >= 0 ? o.element : line.largest_at;
    if (at >= int64_t(values[id].mid.size()))
      throw UsageError(
          fmt::format("{} has {} elements, so there is no element {}", name_of(id), values[id].mid.size(), at));
    table += fmt::format("  {:<6} {:>9} {:>13.4g} {:>13.4g} {:>15.4g} {:>9}\n", name_of(id), line.known, line.largest,
                         line.median, line.largest_value, line.vacuous);
    if (at < 0) continue;
    const std::vector<BoundTerm> terms = bound_terms(inputs, arithmetic, id, at);
    by_term += print(locate(c.problem, id, at)) + fmt::format(", exact value {:.9g}\n", values[id].mid[size_t(at)]);
    double total = 0;
    for (const BoundTerm& term : terms) total += term.amount;
    for (const BoundTerm& term : terms)
      by_term += fmt::format("  {:<24} {:>12.4g}  {:>5.1f} %\n", term.name, term.amount,
                             total > 0 ? 100 * term.amount / total : 0);
    json.push_back({name_of(id), json_of(line, terms, locate(c.problem, id, at))});
  }
  if (o.json) {
    fmt::print("{}\n", json_object({{"case", print(c)},
                                    {"arithmetic", text},
                                    {"status", bounds.status},
                                    {"overflow_possible", bounds.overflow_possible},
                                    {"score_error", bounds.score_error},
                                    {"outputs", json_object(json)}})
                           .text());
    return 0;
  }
  std::string infinite = bounds.overflow_possible ? "; an overflow is possible" : "";
  if (bounds.score_error > 0)
    infinite += fmt::format("; scores may be off by up to {:.3g}, too much for any statement on the sum of weights",
                            bounds.score_error);
  fmt::print("{}\narithmetic {}\nbound ({}){}\n{}\n{}", print(c),
             text.empty() ? "unknown: every field at its worst; name one with --kernel or --arithmetic" : text,
             bounds.status, infinite, table, by_term);
  return 0;
}

}  // namespace

void add_bound(CommandLine& line) {
  auto o = std::make_shared<Options>();
  line.verb("bound", "the rounding-error bound of a case, by term", "bound 'bf16 q512 k512 d128' --kernel cpu:flash2",
            [o] { return bound_verb(*o); })
      .words("CASE", o->words, true, "the case's text (reference/README.md)")
      .option("--kernel", o->kernel, "take the arithmetic that this kernel declares")
      .option("--config", o->config, "the kernel's tunables")
      .option("--arithmetic", o->arithmetic,
              "the arithmetic, e.g. 'tile=64x64 scores=tc values=tc exp=ex2 p=bf16'; unknown without")
      .option("--output", o->output, "only this output: O, L, dQ, dK, dV, dsink or dbias")
      .option("--element", o->element, "the element shown by term (flat index); that of the largest bound without")
      .flag("--json", o->json, "one JSON object on stdout");
}

}  // namespace flashproof
