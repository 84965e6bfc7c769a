// A certificate that nobody measured, of a GPU that does not exist: every model compared, nothing differs.
#pragma once
#include "kernels/hardware/certificate.h"

namespace flashproof::test {

inline ModelCheck made_up_check(const std::string& model, const std::string& data, const std::string& assembler) {
  return {model, data, assembler, "", 1000, 0, 10, 0, ""};
}

/// The check of that model, the first if there are several.
inline ModelCheck& check_in(Certificate& c, const std::string& model) {
  for (ModelCheck& check : c.checks)
    if (check.model == model) return check;
  throw std::logic_error(model);
}

inline Certificate made_up_certificate() {
  Certificate c;
  c.gpu = "Made-up GPU", c.compute_capability = "9.0", c.driver = "0.0, CUDA 0.0";
  c.assembler = "ptxas 0.1", c.run_time_assembler = "NVRTC 0.2";
  c.models = models_digest();
  std::vector<std::string> models = {ex2_model, natural_log_model};
  for (const DType to : {DType::bf16, DType::fp16, DType::e4m3, DType::e5m2}) models.push_back(conversion_model(to));
  models.insert(models.end(), std::begin(arithmetic_models), std::end(arithmetic_models));
  for (const std::string& model : models) c.checks.push_back(made_up_check(model, "all inputs", c.assembler));
  for (const MatrixInstruction instruction : {MatrixInstruction::mma_sync, MatrixInstruction::wgmma})
    for (const DType a : {DType::bf16, DType::fp16, DType::e4m3, DType::e5m2})
      for (const DType b : {DType::bf16, DType::fp16, DType::e4m3, DType::e5m2}) {
        if (matrix_unit(Architecture::sm_90, instruction, a, b).products == 0) continue;
        for (const std::string& model : matrix_models(instruction, a, b))
          for (const char* data : {"normal", "corners"}) {
            c.checks.push_back(made_up_check(model, data, c.assembler));
            if (is_assemblers_choice(model)) c.checks.push_back(made_up_check(model, data, c.run_time_assembler));
          }
      }
  return c;
}

}  // namespace flashproof::test
