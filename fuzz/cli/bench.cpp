// `bench`: the oracle's speed, FlashAttention 3's accuracy table, trained transformers' activations, the hardware
// models' speed, the kernels' compilation.
#include <fmt/format.h>

#include "fuzz/bench/accuracy_table.h"
#include "fuzz/bench/activations.h"
#include "fuzz/bench/hardware_speed.h"
#include "fuzz/bench/oracle_speed.h"
#include "fuzz/cli/bench_compile.h"
#include "fuzz/cli/options.h"
#include "fuzz/cli/verbs.h"
#include "fuzz/json_text.h"
#include "fuzz/steady_seconds.h"
#include "reference/errors.h"

namespace flashproof {
namespace {

struct Options {
  std::string what, directory;
  std::vector<std::string> keys, kernels;
  int64_t rows = 0, seeds = 5, repetitions = 7;
  double seconds = 2;
  CompileBench compile;
  bool json = false;
};

void say(const std::string& line) { fmt::print(stderr, "bench: {}\n", line); }

int list_benches(bool json) {
  const std::pair<const char*, const char*> benches[] = {
      {"oracle", "ms a row of plain double, certified double, MPFR and MPFI; cores; cases a second"},
      {"accuracy", "FlashAttention 3's accuracy table again, for both references, beside the published figures"},
      {"activations", "DIR: real Q, K, V against the bounds, and what P in e4m3 does to heads with a sink"},
      {"hardware", "multiply-adds a second of the tensor cores' models on one core"},
      {"compile", "gpu:flash2 by NVRTC, TileConfigs of production and random ones: refused, seconds, spills"}};
  std::vector<JsonMember> members;
  for (const auto& [name, text] : benches) {
    members.push_back({name, text});
    if (!json) fmt::print("{:<12} {}\n", name, text);
  }
  if (json) fmt::print("{}\n", json_object(members).text());
  return 0;
}

std::vector<int64_t> lengths(const Options& o, int64_t multiple) {
  std::vector<int64_t> list;
  for (const std::string& word : o.keys) {
    char* end = nullptr;
    const long long length = std::strtoll(word.c_str(), &end, 10);
    if (word.empty() || *end != 0 || length <= 0 || length > 1 << 20 || length % multiple != 0)
      throw UsageError(
          fmt::format("--keys: `{}` is no number of keys{} up to 1048576\n  example: flashproof bench {} "
                      "--keys 4096",
                      word, multiple > 1 ? fmt::format(", a multiple of {},", multiple) : "", o.what));
    list.push_back(length);
  }
  return list;
}

int64_t within(const char* flag, int64_t value, int64_t least, int64_t most, int64_t multiple = 1) {
  if (value < least || value > most || value % multiple != 0)
    throw UsageError(fmt::format("{} must be from {} to {}{}, not {}", flag, least, most,
                                 multiple > 1 ? fmt::format(" and a multiple of {}", multiple) : "", value));
  return value;
}

// ---- oracle

std::string print(const Quartiles& q) { return fmt::format("{:>10.4g}  {:.4g} .. {:.4g}", q.median, q.low, q.high); }

JsonText json_of(const Quartiles& q) {
  return json_object({{"median", q.median}, {"lower_quartile", q.low}, {"upper_quartile", q.high}});
}

/// Multiply-adds count twice; Q K^T and P V.
double gigaflops(const SpeedSettings& s, double milliseconds) {
  return 4 * double(s.keys * s.head_dim) / milliseconds * 1e-6;
}

int bench_oracle(const Options& o) {
  SpeedSettings s;
  const std::vector<int64_t> keys = lengths(o, 64);
  if (keys.size() > 1) throw UsageError("bench oracle takes one number of --keys");
  if (!keys.empty()) s.keys = keys.front();
  s.rows = within("--rows", o.rows == 0 ? s.keys : o.rows, 16, 1 << 20, 16);
  s.repetitions = int(within("--repetitions", o.repetitions, 1, 1000));
  s.seconds_a_size = o.seconds;
  say("four ways to evaluate a row");
  const StrengthTimes times = time_strengths(s, say);
  say("cores");
  const std::vector<CoreTimes> cores = time_cores(s);
  std::vector<Throughput> throughput;
  for (double work : {1e4, 1e5, 1e6, 3e6, 1e7}) {
    say(fmt::format("cases of {:.0e} multiply-adds", work));
    throughput.push_back(time_cases(work, s));
  }

  if (o.json) {
    std::vector<JsonText> core_list, size_list;
    for (const CoreTimes& c : cores)
      core_list.push_back(json_object({{"threads", c.threads}, {"ms_a_row", json_of(c.milliseconds)}}));
    for (const Throughput& t : throughput)
      size_list.push_back(json_object({{"work", t.work},
                                       {"cases", t.cases},
                                       {"cases_a_second", json_of(t.cases_a_second)},
                                       {"kernel_share", t.kernel_share}}));
    fmt::print("{}\n", json_object({{"keys", s.keys},
                                    {"head_dim", s.head_dim},
                                    {"rows", s.rows},
                                    {"repetitions", s.repetitions},
                                    {"plain_ms_a_row", json_of(times.plain)},
                                    {"plain_gflops", gigaflops(s, times.plain.median)},
                                    {"certified_ms_a_row", json_of(times.certified)},
                                    {"certified_over_plain", json_of(times.ratio)},
                                    {"mpfr_ms_an_element", json_of(times.mpfr)},
                                    {"interval_ms_an_element", json_of(times.interval)},
                                    {"cores", json_array(core_list)},
                                    {"throughput", json_array(size_list)}})
                           .text());
    return 0;
  }
  fmt::print("{} keys, head dim {}, bf16, {} rows, forward, one core; medians and quartiles of {} repetitions\n\n",
             s.keys, s.head_dim, s.rows, s.repetitions);
  fmt::print("  plain double          {}  ms a row  ({:.1f} GFLOP/s)\n", print(times.plain),
             gigaflops(s, times.plain.median));
  fmt::print("  certified double      {}  ms a row\n", print(times.certified));
  fmt::print("  certified / plain     {}\n", print(times.ratio));
  fmt::print("  MPFR, 128 bits        {}  ms an element of O, with its row of scores\n", print(times.mpfr));
  fmt::print("  MPFI, 256 bits        {}  ms an element of O, with its row of scores\n\n", print(times.interval));
  for (const CoreTimes& c : cores)
    fmt::print("  certified, {:>2} cores   {}  ms a row  ({:.2f} times as fast as one)\n", c.threads,
               print(c.milliseconds), cores.front().milliseconds.median / c.milliseconds.median);
  fmt::print("\n  multiply-adds   cases a second (median, quartiles), run and judged   in the kernels\n");
  for (const Throughput& t : throughput)
    fmt::print("  {:>13.0e} {:<50} {:>15.0f} %\n", t.work, print(t.cases_a_second), 100 * t.kernel_share);
  return 0;
}

// ---- hardware

int bench_hardware(const Options& o) {
  const int repetitions = int(within("--repetitions", o.repetitions, 1, 1000));
  const std::vector<UnitSpeed> speeds = time_hardware_models(repetitions, say);
  if (o.json) {
    std::vector<JsonText> list;
    for (const UnitSpeed& s : speeds)
      list.push_back(json_object({{"instruction", s.instruction},
                                  {"products", s.products},
                                  {"tile", json_of(s.tile)},
                                  {"one_instruction", json_of(s.one)},
                                  {"scalar", json_of(s.scalar)}}));
    fmt::print("{}\n", json_object({{"repetitions", repetitions}, {"units", json_array(list)}}).text());
    return 0;
  }
  fmt::print("millions of multiply-adds a second of one core; medians and quartiles of {} repetitions\n\n",
             repetitions);
  fmt::print("  {:<22} {:>8}  {:<26}  {:<26}  {:<26}\n", "instruction", "products", "tile of 64 x 128 x 128",
             "one of 16 x 8", "scalar step");
  for (const UnitSpeed& s : speeds)
    fmt::print("  {:<22} {:>8}  {:<26}  {:<26}  {:<26}\n", s.instruction, s.products, print(s.tile), print(s.one),
               print(s.scalar));
  return 0;
}

// ---- accuracy

JsonText json_of(const AccuracyRow& row) {
  return json_object({{"format", row.format},
                      {"method", row.method},
                      {"keys", row.keys},
                      {"reference", row.reference},
                      {"rmse", json_array(std::vector<JsonText>(row.rmse.begin(), row.rmse.end()))},
                      {"median", row.median()},
                      {"low", row.low()},
                      {"high", row.high()},
                      {"published", row.published},
                      {"published_over_median", row.published / row.median()},
                      {"holds_published", row.holds_published()}});
}

int bench_accuracy(const Options& o) {
  AccuracySettings s;
  if (!o.keys.empty()) s.keys = lengths(o, 1);
  if (o.rows != 0) s.rows = within("--rows", o.rows, 1, 1 << 20);
  s.seeds = int(within("--seeds", o.seeds, 1, 1000));
  const double start = now();
  const std::vector<AccuracyRow> table = accuracy_table(s, 0, [&](int64_t done, int64_t all) {
    say(fmt::format("{} of {} draws, {}", done, all, print_duration(now() - start)));
  });
  const std::vector<NotReproduced> missing = not_reproduced(table);
  if (o.json) {
    std::vector<JsonText> rows, list;
    for (const AccuracyRow& row : table) rows.push_back(json_of(row));
    for (const NotReproduced& m : missing)
      list.push_back(json_object({{"format", m.format},
                                  {"method", m.method},
                                  {"published", m.published},
                                  {"nearest_median", m.nearest},
                                  {"keys", m.keys},
                                  {"reference", m.reference}}));
    fmt::print("{}\n", json_object({{"rows", s.rows},
                                    {"head_dim", s.head_dim},
                                    {"seeds", s.seeds},
                                    {"table", json_array(rows)},
                                    {"not_reproduced", json_array(list)}})
                           .text());
    return 0;
  }
  fmt::print(
      "RMSE of O, {} rows, head dim {}, {} seeds; data N(0, 1) + N(0, 100) Bernoulli(0.001); published: FlashAttention "
      "3, Table 3\n\n",
      s.rows, s.head_dim, s.seeds);
  fmt::print("  {:<6} {:<26} {:>6} {:<10} {:>9}  {:<22} {:>9} {:>12}  {}\n", "format", "method", "keys", "reference",
             "median", "range", "published", "publ./median", "in range");
  for (const AccuracyRow& row : table)
    fmt::print("  {:<6} {:<26} {:>6} {:<10} {:>9.2e}  {:<22} {:>9.1e} {:>12.2f}  {}\n", row.format, row.method,
               row.keys, row.reference, row.median(), fmt::format("{:.2e} .. {:.2e}", row.low(), row.high()),
               row.published, row.published / row.median(), row.holds_published() ? "yes" : "no");
  fmt::print(
      "\nreference: exact attention on the numbers drawn (unrounded) or on those that the method was given "
      "(rounded)\n");
  if (missing.empty()) fmt::print("every published figure lies in the range of the seeds, for both references\n");
  for (const NotReproduced& m : missing)
    fmt::print("does not reproduce: {} {}, {}: published {:.1e} is {:.2f} times the nearest median, {:.2e} ({} keys)\n",
               m.format, m.method, m.reference, m.published, m.published / m.nearest, m.nearest, m.keys);
  return 0;
}

// ---- activations

std::vector<std::string> kernels_of(const Options& o) {
  if (!o.kernels.empty()) return o.kernels;
  std::vector<std::string> names = builtin_kernels();
  std::erase_if(names, [](const std::string& name) { return !name.starts_with("cpu:"); });
  return names;
}

JsonText json_of(const BoundRow& row) {
  return json_object({{"kernel", row.kernel},
                      {"dtype", row.dtype},
                      {"output", name_of(row.output)},
                      {"activations", row.activations},
                      {"file", row.file},
                      {"normal", row.normal},
                      {"cases", row.cases}});
}

JsonText json_of(const HeadRow& row) {
  std::vector<JsonMember> roundings;
  for (int n = 0; n < p_rounding_count; ++n)
    roundings.push_back(
        {name_of(PRounding(n)), json_object({{"rmse", row.rmse[n]}, {"worst_of_a_row", row.worst[n]}})});
  return json_object({{"file", row.file},
                      {"head", row.head},
                      {"column", row.column},
                      {"key", row.key},
                      {"size", row.size},
                      {"p", json_object(roundings)}});
}

void print_bounds(const BoundTable& table) {
  fmt::print("largest error / bound, over the files and over N(0, 1) data of the same shapes\n\n");
  fmt::print("  {:<5} {:<20} {:<6} {:>11} {:>9} {:>6}  {}\n", "dtype", "kernel", "output", "activations", "normal",
             "cases", "file of the largest");
  for (const BoundRow& row : table.rows)
    fmt::print("  {:<5} {:<20} {:<6} {:>11.3f} {:>9.3f} {:>6}  {}\n", row.dtype, row.kernel, name_of(row.output),
               row.activations, row.normal, row.cases, row.file);
  for (const std::string& line : table.skipped) fmt::print("  not taken: {}\n", line);
  for (const std::string& line : table.not_passed) fmt::print("  not passed: {}\n", line);
  fmt::print("\n  e4m3: each head's numbers are divided by t = max / 448, and t is their descale\n");
}

void print_heads(const std::vector<HeadRow>& rows) {
  fmt::print(
      "\nO with P rounded before P V, fp32 otherwise; RMSE over the root mean square of O, and the worst row's\n"
      "|O^ - O| / |O|; heads by the largest share of all attention that one key gets (column)\n\n");
  fmt::print("  {:<26} {:>4} {:>7} {:>5}", "file", "head", "column", "key");
  for (int n = 0; n < p_rounding_count; ++n) fmt::print("  {:>19}", name_of(PRounding(n)));
  fmt::print("\n");
  for (const HeadRow& row : rows) {
    fmt::print("  {:<26} {:>4} {:>7.3f} {:>5}", row.file, row.head, row.column, row.key);
    for (int n = 0; n < p_rounding_count; ++n) fmt::print("  {:>9.2e} {:>9.2e}", row.rmse[n] / row.size, row.worst[n]);
    fmt::print("\n");
  }
  if (rows.size() < 3) return;
  fmt::print("\nrank correlation of column and relative RMSE over {} heads:", rows.size());
  for (int n = 0; n < p_rounding_count; ++n)
    fmt::print("{} {} {:+.2f}", n == 0 ? "" : ",", name_of(PRounding(n)), rank_correlation(rows, PRounding(n)));
  const ScaleWorth worth = scale_worth(rows);
  fmt::print(
      "\ne4m3 without the scale: {:.2f} times the RMSE with it in the quarter of heads with the largest columns, "
      "{:.2f} times in the others (medians)\n",
      worth.sinks, worth.others);
}

int bench_activations(const Options& o) {
  if (o.directory.empty())
    throw UsageError("bench activations needs a folder\n  example: flashproof bench activations tests/data");
  const std::vector<ActivationFile> files = activation_files(o.directory);
  const std::vector<std::string> kernels = kernels_of(o);
  for (const std::string& kernel : kernels) load_kernel(kernel);
  const double start = now();
  const auto progress = [&](const char* of) {
    return [&, of](int64_t done, int64_t all) {
      if (done % 10 == 0 || done == all)
        say(fmt::format("{} of {} {}, {}", done, all, of, print_duration(now() - start)));
    };
  };
  const std::vector<HeadRow> heads = head_table(files, 0, progress("heads"));
  const TemporaryFolder scratch;
  const BoundTable bounds = bound_table(files, kernels, scratch.path(), 0, progress("cases"));
  if (o.json) {
    std::vector<JsonText> rows, list;
    std::vector<JsonMember> correlations;
    for (const BoundRow& row : bounds.rows) rows.push_back(json_of(row));
    for (const HeadRow& row : heads) list.push_back(json_of(row));
    for (int n = 0; heads.size() >= 3 && n < p_rounding_count; ++n)
      correlations.push_back({name_of(PRounding(n)), rank_correlation(heads, PRounding(n))});
    const ScaleWorth ratios = heads.size() < 2 ? ScaleWorth{} : scale_worth(heads);
    const JsonText worth = json_object({{"sinks", ratios.sinks}, {"others", ratios.others}});
    fmt::print("{}\n", json_object({{"directory", o.directory},
                                    {"files", files.size()},
                                    {"bounds", json_array(rows)},
                                    {"skipped", bounds.skipped},
                                    {"not_passed", bounds.not_passed},
                                    {"heads", json_array(list)},
                                    {"rank_correlation", json_object(correlations)},
                                    {"scale_worth", worth}})
                           .text());
    return bounds.failed ? 1 : 0;
  }
  print_bounds(bounds);
  print_heads(heads);
  return bounds.failed ? 1 : 0;
}

int bench(const Options& o) {
  if (o.what.empty()) return list_benches(o.json);
  if (!o.directory.empty() && o.what != "activations")
    throw UsageError("bench " + o.what + " takes no folder, and `" + o.directory +
                     "` follows it\n  example: flashproof bench " + o.what);
  if (o.what == "oracle") return bench_oracle(o);
  if (o.what == "hardware") return bench_hardware(o);
  if (o.what == "accuracy") return bench_accuracy(o);
  if (o.what == "activations") return bench_activations(o);
  if (o.what == "compile") {
    CompileBench compile = o.compile;
    compile.count = within("--count", compile.count, 1, 1 << 20);
    compile.json = o.json;
    return bench_compile(compile);
  }
  throw UsageError("there is no bench `" + o.what + "`; there are oracle, accuracy, activations, hardware and compile");
}

}  // namespace

void add_bench(CommandLine& line) {
  auto o = std::make_shared<Options>();
  line.verb("bench",
            "the oracle's and the hardware models' speed, accuracy tables, real activations, kernels' compilation",
            "bench oracle", [o] { return bench(*o); })
      .word("WHAT", o->what, false, "oracle, accuracy, activations, hardware or compile; without, what they are")
      .word("DIR", o->directory, false, "activations: the folder of safetensors files")
      .list("--kernel", o->kernels, "activations: kernels (all of the CPU)")
      .list("--keys", o->keys, "accuracy: numbers of keys (4096,8192); oracle: one (4096)")
      .option("--rows", o->rows, "accuracy: query rows (512); oracle: (as many as keys)")
      .option("--seeds", o->seeds, "accuracy: draws of the data (5)")
      .option("--repetitions", o->repetitions, "oracle, hardware: measurements of which the median is taken (7)")
      .positive_duration("--slice", o->seconds, "oracle: time for a size of cases in each repetition (2s)")
      .option("--count", o->compile.count,
              "compile: random TileConfigs (200), each about 1 s; the production ones 0.7 s each, 34 of them")
      .option("--seed", o->compile.seed, "compile: what draws them (1)")
      .option("--architecture", o->compile.architecture, "compile: the chip (sm_90a)")
      .flag("--json", o->json, "one JSON object on stdout");
}

}  // namespace flashproof
