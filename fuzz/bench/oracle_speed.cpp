// Medians and quartiles over repetitions, timed here: a repetition lasts a tenth of a second or more, two rivals must
// take turns for their ratio to mean something on a busy machine, and the clock for one core is that of the thread.
// Google Benchmark is made for nanoseconds and repeats each function by itself.
#include "fuzz/bench/oracle_speed.h"

#include <map>
#include <memory>
#include <thread>

#include "fuzz/bench/plain_attention.h"
#include "fuzz/execute.h"
#include "fuzz/generate.h"
#include "fuzz/steady_seconds.h"
#include "oracle/value.h"
#include "oracle/value_element.h"

namespace flashproof {
namespace {

template <class Work>
double milliseconds_of(double (*clock)(), const Work& work) {
  const double start = clock();
  work();
  return 1e3 * (clock() - start);
}

Inputs head_of(const SpeedSettings& s) {
  Case c;
  c.problem.q.slot = s.rows;
  c.problem.k.slot = s.keys;
  c.problem.head_dim = c.problem.value_dim = s.head_dim;
  c.recipe.seed = 1;
  return make_inputs(c);
}

}  // namespace

StrengthTimes time_strengths(const SpeedSettings& s, const std::function<void(const std::string&)>& progress) {
  const Inputs in = head_of(s);
  const PlainHead head{s.rows,        s.keys,        s.head_dim,   double(scale_of(in.problem)),
                       decoded(in.q), decoded(in.k), decoded(in.v)};
  std::vector<double> plain, certified, ratio, mpfr, interval;
  for (int n = 0; n < s.repetitions; ++n) {
    progress("repetition " + std::to_string(n + 1) + " of " + std::to_string(s.repetitions));
    plain.push_back(milliseconds_of(thread_seconds, [&] { plain_attention(head); }) / double(s.rows));
    certified.push_back(milliseconds_of(thread_seconds, [&] { value_double(in, {}, 1); }) / double(s.rows));
    ratio.push_back(certified.back() / plain.back());
    const int64_t element = (n * s.rows / s.repetitions) * s.head_dim;
    mpfr.push_back(milliseconds_of(thread_seconds, [&] { element_ball(in, OutputId::o, element); }));
    interval.push_back(milliseconds_of(thread_seconds, [&] { element_interval(in, OutputId::o, element, 256); }));
  }
  return {quartiles(plain), quartiles(certified), quartiles(mpfr), quartiles(interval), quartiles(ratio)};
}

std::vector<CoreTimes> time_cores(const SpeedSettings& s) {
  const Inputs in = head_of(s);
  const int all = int(std::max(1u, std::thread::hardware_concurrency()));
  std::vector<CoreTimes> list;
  for (int threads = 1; threads <= all; threads = threads < all ? std::min(2 * threads, all) : all + 1) {
    std::vector<double> times;
    for (int n = 0; n < s.repetitions; ++n)
      times.push_back(milliseconds_of(now, [&] { value_double(in, {}, threads); }) / double(s.rows));
    list.push_back({threads, quartiles(times)});
  }
  return list;
}

Throughput time_cases(double work, const SpeedSettings& s) {
  std::vector<std::string> names;
  std::map<std::string, std::unique_ptr<Worker>> workers;
  for (const std::string& name : builtin_kernels())
    if (name.starts_with("cpu:")) {
      names.push_back(name);
      workers[name] = std::make_unique<Worker>(name, Limits{});
    }
  Throughput result;
  result.work = work;
  std::vector<double> rates;
  double kernel_seconds = 0, seconds = 0;
  uint64_t index = 0;
  for (int n = 0; n < s.repetitions; ++n) {
    const double start = now();
    int64_t cases = 0;
    while (now() - start < s.seconds_a_size) {
      const LoadedKernel& kernel = load_kernel(names[index % names.size()]);
      const Drawn drawn = generate(kernel, Range{work, {}}, 1, index++);
      kernel_seconds += execute(*workers[kernel.name], kernel, Job{drawn.c, drawn.config, {}}).kernel_seconds;
      ++cases;
    }
    const double elapsed = now() - start;
    rates.push_back(double(cases) / elapsed);
    result.cases += cases;
    seconds += elapsed;
  }
  result.cases_a_second = quartiles(rates);
  result.kernel_share = kernel_seconds / seconds;
  return result;
}

}  // namespace flashproof
