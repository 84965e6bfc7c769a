// `certify`: the models of the hardware's arithmetic against the GPU of this machine, as a certificate.
#include <algorithm>

#include <fmt/format.h>

#include "fuzz/build_info.h"
#include "fuzz/campaign_directory.h"
#include "fuzz/certificates.h"
#include "fuzz/cli/options.h"
#include "fuzz/cli/verbs.h"
#include "fuzz/device_memory.h"
#include "fuzz/steady_seconds.h"
#include "kernels/hardware/certify.h"
#include "reference/errors.h"

namespace flashproof {
namespace {

struct Options {
  std::string out;
  bool json = false;
};

void show(const Certificate& certificate) {
  fmt::print("{}, compute capability {}; driver {}; {}\n\n", certificate.gpu, certificate.compute_capability,
             certificate.driver, certificate.assemblers());
  fmt::print("  {:<36} {:<16} {:<14} {:>13} {:>11} {:>10} {:>11}\n", "model", "data", "assembler", "compared",
             "mismatches", "on host", "mismatches");
  for (const ModelCheck& c : certificate.checks) {
    if (c.skipped.empty())
      fmt::print("  {:<36} {:<16} {:<14} {:>13} {:>11} {:>10} {:>11}\n", c.model, c.data, c.assembler, c.inputs,
                 c.mismatches, c.sample, c.host_mismatches);
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
    fmt::print("  {:<36} {:<14} {:<60} {:>11} of {}\n", a.model, a.assembler, a.rule, a.mismatches, a.inputs);
  const auto skipped = std::count_if(certificate.checks.begin(), certificate.checks.end(),
                                     [](const ModelCheck& c) { return !c.skipped.empty(); });
  fmt::print("\n{}{}\n",
             certificate.holds() ? "every model compared agrees with this GPU" : "a model differs from this GPU",
             skipped > 0 ? fmt::format("; {} skipped", skipped) : "");
}

/// A folder that cannot be written costs the verdicts of `bits`, not the certificate.
void keep_or_tell(const Certificate& certificate) {
  try {
    fmt::print(stderr, "certify: kept as {}, where `bits` finds it\n", keep(certificate, certificate_folder()));
  } catch (const UnavailableError& error) {
    fmt::print(stderr, "certify: not kept, so `bits` will not find it: {}\n", error.what());
  }
}

/// The CUDA runtime calls a driver that is not there one that is too old.
void require_driver() {
  std::string reason;
  if (std::string(build_info().cuda) != "none" && !cuda_available(reason))
    throw UnavailableError("certify: " + reason + "; it needs an NVIDIA GPU");
}

int certify_verb(const Options& o) {
  require_driver();
  const double start = now();
  const Certificate certificate = certify(
      [&](const std::string& what) { fmt::print(stderr, "certify: {}, {}\n", what, print_duration(now() - start)); });
  keep_or_tell(certificate);
  if (!o.out.empty()) write_file(o.out, print(certificate));
  if (o.json)
    fmt::print("{}", print(certificate));
  else
    show(certificate);
  return certificate.holds() ? 0 : 1;
}

}  // namespace

void add_certify(CommandLine& line) {
  auto o = std::make_shared<Options>();
  line.verb("certify", "the hardware models against this machine's GPU: what `bits` asks for",
            "certify --out h200.json", [o] { return certify_verb(*o); })
      .option("-o,--out", o->out,
              "a copy (JSON); `bits` reads the one in $FLASHPROOF_CERTIFICATES, else in flashproof/certificates of "
              "$XDG_DATA_HOME, else of ~/.local/share")
      .flag("--json", o->json, "one JSON object on stdout");
}

}  // namespace flashproof
