// See dump.h.
#include "fuzz/cli/dump.h"

#include <atomic>
#include <filesystem>
#include <thread>

#include <fmt/format.h>

#include "fuzz/campaign_directory.h"
#include "fuzz/case_files.h"
#include "fuzz/record.h"
#include "fuzz/steady_seconds.h"
#include "oracle/bound.h"
#include "reference/errors.h"

namespace flashproof {
namespace {

namespace fs = std::filesystem;

/// The exact values of one output; each costs a pass over the element's row, so all cores share them. A line on stderr
/// every 3 s.
std::vector<std::string> exact_values(const Inputs& inputs, OutputId id, const OutputValues& values) {
  constexpr double pause = 3;
  const double start = now();
  std::vector<std::string> exact(values.mid.size());
  std::atomic<size_t> next = 0;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t)
    threads.emplace_back([&, tells = t == 0, told = start]() mutable {
      for (size_t index; (index = next++) < exact.size();) {
        if (values.known[index]) exact[index] = value_hex128(inputs, id, int64_t(index));
        if (!tells || now() - told < pause) continue;
        told = now();
        fmt::print(stderr, "flashproof: --dump: {:.0f} s, exact values of {} of {} elements of {}\n", told - start,
                   index, exact.size(), name_of(id));
      }
    });
  for (std::thread& thread : threads) thread.join();
  return exact;
}

/// What the oracle does not judge has no exact value and no bound.
JsonText element(const Where& where, uint32_t bits, double observed, const std::string& exact, double bound,
                 bool known) {
  std::vector<JsonMember> members = {{"output", name_of(where.output)},
                                     {"index", where.index},
                                     {"at", json_array({where.b, where.position, where.head, where.channel})},
                                     {"observed_bits", fmt::format("0x{:x}", bits)},
                                     {"observed", hex_float(observed)}};
  if (known) members.insert(members.end(), {{"exact", exact}, {"bound", hex_float(bound)}});
  return json_object(members);
}

std::string elements(const Inputs& inputs, const Outputs& outputs, const Subject& subject) {
  const Values values = value_double(inputs, Sample{}, 0, subject.conventions.bears_hidden_nan != 0);
  const Bounds bounds = bound(inputs, parse_arithmetic(subject.arithmetic), values);
  std::string text;
  for (int n = 0; n < output_count; ++n) {
    const OutputId id = OutputId(n);
    if (values[id].mid.empty()) continue;
    const std::vector<std::string> exact = exact_values(inputs, id, values[id]);
    const Tensor& observed = tensor_of(outputs, id);
    for (int64_t i = 0; i < observed.size(); ++i)
      text += element(locate(inputs.problem, id, i), observed.bits(i), observed.at(i), exact[size_t(i)],
                      bounds.bound[n][size_t(i)], values[id].known[size_t(i)])
                  .text() +
              "\n";
  }
  return text;
}

void dump_run(const Execution& e, size_t number, const std::string& folder) {
  const Run& run = e.runs[number];
  const Inputs inputs = make_inputs(run);
  const RunResult& result = e.results[number];
  write_file(folder + "/case.json", json_object({{"problem", JsonText::raw(problem_json(run.c))},
                                                 {"kernel", e.subject.name},
                                                 {"config", e.job.config},
                                                 {"arithmetic", e.subject.arithmetic},
                                                 {"message", result.message}})
                                            .text() +
                                        "\n");
  write_safetensors(folder + "/inputs.safetensors",
                    input_file(inputs, run.placement.nan_outside, {{"case", print(run.c)}}));
  if (result.status != RunStatus::ok) return;
  write_safetensors(folder + "/outputs.safetensors", output_file(run.c.problem, result.outputs));
  write_file(folder + "/elements.jsonl", elements(inputs, result.outputs, e.subject));
}

}  // namespace

void dump(const Execution& e, const std::string& directory) {
  for (size_t r = 0; r < e.runs.size(); ++r) {
    const std::string folder = e.runs.size() == 1 ? directory : fmt::format("{}/run-{:03}", directory, r);
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) throw UnavailableError("cannot create " + folder + ": " + error.message());
    dump_run(e, r, folder);
  }
}

}  // namespace flashproof
