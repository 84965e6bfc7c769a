// `certify`: the models of the hardware's arithmetic against the GPU of this machine, as a certificate.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include <fmt/format.h>

#include "fuzz/build_info.h"
#include "fuzz/cli/options.h"
#include "fuzz/cli/verbs.h"
#include "fuzz/json_text.h"
#include "fuzz/steady_seconds.h"
#include "kernels/hardware/certify.h"
#include "reference/errors.h"

namespace flashproof {
namespace {

struct Options {
  std::string out;
  bool json = false;
};

std::string json_of(const Certificate& certificate) {
  std::vector<JsonText> checks, alternatives, chain;
  for (const ModelCheck& c : certificate.checks)
    checks.push_back(json_object({{"model", c.model},
                                  {"data", c.data},
                                  {"skipped", c.skipped},
                                  {"inputs", c.inputs},
                                  {"mismatches", c.mismatches},
                                  {"sample", c.sample},
                                  {"host_mismatches", c.host_mismatches},
                                  {"counterexample", c.counterexample}}));
  for (const Alternative& a : certificate.alternatives)
    alternatives.push_back(
        json_object({{"model", a.model}, {"rule", a.rule}, {"inputs", a.inputs}, {"mismatches", a.mismatches}}));
  for (const ChainPoint& p : certificate.chain)
    chain.push_back(json_object({{"instruction", p.instruction},
                                 {"keys", p.keys},
                                 {"predicted", double(p.predicted)},
                                 {"measured", double(p.measured)}}));
  return json_object({{"format", "flashproof-certificate"},
                      {"version", 1},
                      {"program_version", build_info().version},
                      {"commit", build_info().commit},
                      {"gpu", certificate.gpu},
                      {"compute_capability", certificate.compute_capability},
                      {"driver", certificate.driver},
                      {"assembler", certificate.assembler},
                      {"holds", certificate.holds()},
                      {"checks", json_array(checks)},
                      {"alternatives", json_array(alternatives)},
                      {"chain", json_array(chain)}})
      .text();
}

void print(const Certificate& certificate) {
  fmt::print("{}, compute capability {}; driver {}; assembler {}\n\n", certificate.gpu, certificate.compute_capability,
             certificate.driver, certificate.assembler);
  fmt::print("  {:<36} {:<16} {:>13} {:>11} {:>10} {:>11}\n", "model", "data", "compared", "mismatches", "on host",
             "mismatches");
  for (const ModelCheck& c : certificate.checks) {
    if (c.skipped.empty())
      fmt::print("  {:<36} {:<16} {:>13} {:>11} {:>10} {:>11}\n", c.model, c.data, c.inputs, c.mismatches, c.sample,
                 c.host_mismatches);
    else
      fmt::print("  {:<36} skipped: {}\n", c.model, c.skipped);
    if (!c.counterexample.empty()) fmt::print("      first: {}\n", c.counterexample);
  }
  if (!certificate.chain.empty())
    fmt::print("\n  O over equal keys by a chain of e4m3 instructions, P = 2^8 and V = 1; 1 is right\n");
  for (const ChainPoint& p : certificate.chain)
    fmt::print("  {:<36} {:>6} keys   predicted {:<6} measured {}\n", p.instruction, p.keys, p.predicted, p.measured);
  if (!certificate.alternatives.empty()) fmt::print("\n  other rules for what differs\n");
  for (const Alternative& a : certificate.alternatives)
    fmt::print("  {:<36} {:<60} {:>11} of {}\n", a.model, a.rule, a.mismatches, a.inputs);
  const auto skipped = std::count_if(certificate.checks.begin(), certificate.checks.end(),
                                     [](const ModelCheck& c) { return !c.skipped.empty(); });
  fmt::print("\n{}{}\n",
             certificate.holds() ? "every model compared agrees with this GPU" : "a model differs from this GPU",
             skipped > 0 ? fmt::format("; {} skipped", skipped) : "");
}

int certify_verb(const Options& o) {
  const double start = now();
  const Certificate certificate = certify(
      [&](const std::string& what) { fmt::print(stderr, "certify: {}, {}\n", what, print_duration(now() - start)); });
  if (!o.out.empty()) {
    std::ofstream out(o.out);
    if (!(out << json_of(certificate) << "\n" << std::flush))
      throw UnavailableError("cannot write the certificate " + o.out + ": " + std::strerror(errno));
  }
  if (o.json)
    fmt::print("{}\n", json_of(certificate));
  else
    print(certificate);
  return certificate.holds() ? 0 : 1;
}

}  // namespace

void add_certify(CommandLine& line) {
  auto o = std::make_shared<Options>();
  line.verb("certify", "the hardware models against the GPU of this machine", "certify --out h200.json",
            [o] { return certify_verb(*o); })
      .option("-o,--out", o->out, "also write the certificate (JSON) to this file")
      .flag("--json", o->json, "one JSON object on stdout");
}

}  // namespace flashproof
