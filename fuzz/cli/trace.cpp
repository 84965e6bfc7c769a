// `trace`: an algorithm step by step on a row of scores; by default eight keys whose largest scores come in the second
// half.
#include <algorithm>

#include <fmt/format.h>

#include "fuzz/cli/verbs.h"
#include "fuzz/json_text.h"
#include "oracle/exact_row.h"
#include "reference/errors.h"
#include "reference/nearest_word.h"
#include "reference/trace.h"

namespace flashproof {
namespace {

struct Options {
  std::string algorithm = "flash2";
  std::vector<std::string> scores = {"2", "1", "0.5", "3", "-1", "2.5", "0", "4"};
  std::vector<std::string> values = {"10", "20", "30", "40", "50", "60", "70", "80"};
  int64_t tile = 4, digits = 40;
  bool json = false;
};

std::vector<double> numbers(const std::vector<std::string>& words, const char* flag) {
  std::vector<double> list;
  for (const std::string& word : words) {
    char* end = nullptr;
    list.push_back(std::strtod(word.c_str(), &end));
    if (word.empty() || *end != 0)
      throw UsageError(std::string(flag) + ": `" + word +
                       "` is no number\n  example: flashproof trace --scores 1,2.5,-3 --values 10,20,30");
  }
  return list;
}

void print_algorithm(const std::string& name, const std::vector<TraceStep>& steps) {
  fmt::print("{}\n  {:<12} {:>7} {:>12} {:>16} {:>14} {:>16}\n", name, "step", "keys", "maximum", "sum", "rescale",
             "O so far");
  for (const TraceStep& step : steps)
    fmt::print("  {:<12} {:>7} {:>12.6g} {:>16.10g} {:>14.6g} {:>16}\n", step.phase,
               fmt::format("{}..{}", step.first_key, step.end_key - 1), step.maximum, step.sum, step.rescale,
               step.output ? fmt::format("{:.10f}", *step.output) : "-");
}

JsonText json_of(const TraceStep& step) {
  std::vector<JsonMember> members = {{"phase", step.phase},     {"first_key", step.first_key},
                                     {"end_key", step.end_key}, {"maximum", step.maximum},
                                     {"sum", step.sum},         {"rescale", step.rescale}};
  if (step.output) members.push_back({"output", *step.output});
  return json_object(members);
}

JsonText json_of(const std::vector<TraceStep>& steps) {
  std::vector<JsonText> list;
  for (const TraceStep& step : steps) list.push_back(json_of(step));
  return json_array(list);
}

int trace_verb(const Options& o) {
  const std::vector<double> scores = numbers(o.scores, "--scores"), values = numbers(o.values, "--values");
  std::vector<std::string> algorithms = traced_algorithms();
  if (o.algorithm != "all") {
    if (std::find(algorithms.begin(), algorithms.end(), o.algorithm) == algorithms.end())
      throw UsageError("no algorithm is called `" + o.algorithm + "`; did you mean `" +
                       nearest_word(o.algorithm, algorithms) + "`? `all` shows all");
    algorithms = {o.algorithm};
  }
  std::vector<std::vector<TraceStep>> all;
  for (const std::string& name : algorithms) all.push_back(trace(name, scores, values, o.tile));
  const std::string exact = exact_row(scores, values, int(o.digits));
  if (o.json) {
    std::vector<JsonMember> members;
    for (size_t a = 0; a < algorithms.size(); ++a) members.push_back({algorithms[a], json_of(all[a])});
    std::vector<JsonText> score_list(scores.begin(), scores.end()), value_list(values.begin(), values.end());
    fmt::print("{}\n", json_object({{"scores", json_array(score_list)},
                                    {"values", json_array(value_list)},
                                    {"tile", o.tile},
                                    {"algorithms", json_object(members)},
                                    {"exact", exact}})
                           .text());
    return 0;
  }
  fmt::print("scores  {}\nvalues  {}\ntile    {} keys\n\n", fmt::join(scores, " "), fmt::join(values, " "), o.tile);
  for (size_t a = 0; a < algorithms.size(); ++a) print_algorithm(algorithms[a], all[a]);
  fmt::print("\nexact O {}\n", exact);
  return 0;
}

}  // namespace

void add_trace(CommandLine& line) {
  auto o = std::make_shared<Options>();
  line.verb("trace", "an algorithm step by step on one row", "trace --algorithm all --tile 4",
            [o] { return trace_verb(*o); })
      .option("--algorithm", o->algorithm,
              fmt::format("{}, or all (flash2)", fmt::join(traced_algorithms(), ", ")).c_str())
      .option("--tile", o->tile, "keys a tile (4)")
      .list("--scores", o->scores, "scores of the row's keys")
      .list("--values", o->values, "one value a key")
      .option("--digits", o->digits, "significant digits of the exact value (40)")
      .flag("--json", o->json, "one JSON object on stdout");
}

}  // namespace flashproof
