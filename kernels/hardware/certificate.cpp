#include "kernels/hardware/certificate.h"

#include <algorithm>
#include <cctype>

#include "kernels/embedded_sources.h"
#include "reference/sha256.h"

namespace flashproof {
namespace {

const char* name_of_format(DType dtype) {
  constexpr const char* names[] = {"fp32", "bf16", "fp16", "e4m3", "e5m2"};
  return names[int(dtype)];
}

std::string code_of(std::string_view text) {
  std::string code;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text.substr(at, 2) == "//") at = std::min(text.find('\n', at), text.size());
    if (at < text.size() && !std::isspace(static_cast<unsigned char>(text[at]))) code += text[at];
  }
  return code;
}

/// A part of a GPU is named after the whole: "NVIDIA H200 MIG 1g.18gb".
std::string whole_name(const std::string& name) { return name.substr(0, name.find(" MIG ")); }

bool was_tried_with(const Certificate& c, const std::string& assembler) {
  return assembler.empty() || assembler == c.assembler || assembler == c.run_time_assembler;
}

}  // namespace

std::string Certificate::assemblers() const {
  return assembler + (run_time_assembler.empty() ? "" : ", " + run_time_assembler);
}

bool Certificate::holds() const {
  const bool compared = std::any_of(checks.begin(), checks.end(), [](const ModelCheck& c) { return c.inputs > 0; });
  return compared &&
         std::all_of(checks.begin(), checks.end(),
                     [](const ModelCheck& c) { return c.mismatches == 0 && c.host_mismatches == 0; }) &&
         std::all_of(chain.begin(), chain.end(), [](const ChainPoint& p) { return p.predicted == p.measured; });
}

std::string models_digest() {
  static const std::string digest = [] {
    std::string all;
    for (const EmbeddedSource& source : model_sources()) all += source.path + (" " + code_of(source.text)) + "\n";
    return sha256(all);
  }();
  return digest;
}

std::string conversion_model(DType to) {
  const std::string format = to == DType::fp16 ? "f16" : name_of_format(to);
  return "cvt.rn." + std::string(is_fp8(to) ? "satfinite." : "") + format + "x2.f32";
}

std::vector<std::string> matrix_models(MatrixInstruction instruction, DType a, DType b) {
  const std::string formats = name_of_format(a) + (is_fp8(a) ? std::string(" ") + name_of_format(b) : "");
  if (instruction == MatrixInstruction::mma_sync) return {"mma.sync " + formats};
  return {"wgmma (A in registers) " + formats, "wgmma (A shared) " + formats};
}

bool is_assemblers_choice(const std::string& model) { return model.starts_with("mma.sync e"); }

const Certificate* certificate_of(std::span<const Certificate> certificates, const GpuCode& code, std::string& reason) {
  const std::string name = whole_name(code.name);
  const Certificate *found = nullptr, *outdated = nullptr;
  for (const Certificate& c : certificates) {
    if (whole_name(c.gpu) != name || c.compute_capability != code.compute_capability) continue;
    if (c.models != models_digest()) {
      outdated = &c;
    } else if (found == nullptr || (!was_tried_with(*found, code.assembler) && was_tried_with(c, code.assembler))) {
      found = &c;
    }
  }
  reason.clear();
  if (found != nullptr) return found;
  reason = "no certificate of " + name + ", compute capability " + code.compute_capability;
  if (outdated != nullptr) reason = "the certificate of " + name + " is of other models than this program's";
  reason += "; `flashproof certify` makes one";
  return nullptr;
}

std::string gap_in(const Certificate& certificate, std::span<const std::string> models, const std::string& assembler) {
  const auto of_gpu = [&] { return "the certificate of " + certificate.gpu; };
  const auto untried = [&](const std::string& model) {
    return of_gpu() + " was not tried with " + assembler + ", which made this kernel's " + model +
           "; `flashproof certify` makes another";
  };
  for (const std::string& model : models) {
    const bool choice = is_assemblers_choice(model);
    if (choice && !was_tried_with(certificate, assembler)) return untried(model);
    bool compared = false;
    for (const ModelCheck& check : certificate.checks) {
      if (check.model != model || (choice && !assembler.empty() && check.assembler != assembler)) continue;
      if (!check.skipped.empty()) return of_gpu() + " lacks " + model + ": " + check.skipped;
      if (check.mismatches > 0 || check.host_mismatches > 0)
        return of_gpu() + " shows that " + model + " computes otherwise than its model (" + check.data + " data, " +
               check.assembler + ")";
      compared = compared || check.inputs > 0 || check.sample > 0;
    }
    if (!compared) return of_gpu() + " does not cover " + model;
  }
  return "";
}

}  // namespace flashproof
