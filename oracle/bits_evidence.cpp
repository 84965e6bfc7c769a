#include "oracle/bits_evidence.h"

#include <iterator>

namespace flashproof {
namespace {

void add_products(const Accumulation& sum, DType a, DType b, std::vector<std::string>& models) {
  const bool in_pairs = sum.kind == Accumulation::tensor_core_pair;
  for (const MatrixInstruction instruction : {MatrixInstruction::mma_sync, MatrixInstruction::wgmma}) {
    const MatrixUnit chip = matrix_unit(Architecture::sm_90, instruction, a, b);
    if (chip.products != sum.products || chip.align_bits != sum.align_bits || (chip.run != 0) != in_pairs) continue;
    const std::vector<std::string> names = matrix_models(instruction, a, b);
    models.insert(models.end(), names.begin(), names.end());
  }
}

}  // namespace

std::vector<std::string> models_behind(const Problem& p, const Arithmetic& a) {
  const DType weights = DType(a.p_format);
  std::vector<std::string> models = {ex2_model, natural_log_model, conversion_model(weights)};
  models.insert(models.end(), std::begin(arithmetic_models), std::end(arithmetic_models));
  if (output_dtype(p) != weights) models.push_back(conversion_model(output_dtype(p)));
  add_products(a.scores, p.dtype, p.dtype, models);
  if (weights != p.dtype || !(a.values == a.scores)) add_products(a.values, weights, p.dtype, models);
  return models;
}

std::string uncertified(const Problem& p, const Arithmetic& a, const Subject& subject) {
  if (!subject.gpu) return "";
  if (subject.gpu->certificate == nullptr) return subject.gpu->without;
  const Certificate& c = *subject.gpu->certificate;
  if (c.compute_capability != "9.0")  // whose models another chip's certificate does not speak of
    return "the declared `chip=sm_90` is not that of " + c.gpu + ", compute capability " + c.compute_capability;
  return gap_in(c, models_behind(p, a), subject.gpu->code.assembler);
}

std::string evidence_text(const Subject& subject) {
  std::string text = "predicted by the models of sm_90 in kernels/hardware";
  if (!subject.gpu || subject.gpu->certificate == nullptr) return text;
  const Certificate& c = *subject.gpu->certificate;
  text += ", which the certificate of " + c.gpu + " (driver " + c.driver + ") found to compute what it does";
  if (subject.gpu->code.assembler.empty()) text += "; fp8 code is taken to be made by one of " + c.assemblers();
  return text;
}

}  // namespace flashproof
