// A certificate: what `certify` found when it compared the models of this folder with a GPU; and whether one lets the
// bits of a kernel on a GPU be predicted.
//
// A certificate speaks of a GPU with the same name and compute capability (parts of one, as MIG makes them, share its
// name), for models with the same text. What the assembler makes of one instruction is the same for every assembler,
// but fp8 mma.sync on sm_90, which becomes several: of that, a certificate speaks for the assemblers it was tried with.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/hardware/tensor_core.h"

namespace flashproof {

/// One model on one set of inputs. On the GPU its results are compared with the instruction's, where they are made;
/// those of a sample are compared once more with what the host computes, which is what predicts a kernel's bits.
struct ModelCheck {
  std::string model;                    ///< e.g. "mma.sync e4m3 e5m2"
  std::string data;                     ///< e.g. "cancelling", "all inputs"
  std::string assembler;                ///< of the code that ran: "ptxas 13.0.88", "NVRTC 13.0"
  std::string skipped;                  ///< why nothing was compared; "": it was
  uint64_t inputs = 0, mismatches = 0;  ///< of the model on the GPU; an input of a matrix instruction is an output's
  uint64_t sample = 0, host_mismatches = 0;
  std::string counterexample;  ///< the first mismatch: inputs, the GPU's bits, the model's; "" without one
};

/// Another rule for a matrix instruction, tried where the model's own does not hold.
struct Alternative {
  std::string model, assembler, rule;
  uint64_t inputs = 0, mismatches = 0;
};

/// Attention over `keys` equal keys, P = 2^8 and V = 1 in e4m3, by a chain of the instruction: O, of which 1 is right.
struct ChainPoint {
  std::string instruction;
  int64_t keys = 0;
  float predicted = 0;  ///< by the model, before the chain ran
  float measured = 0;
};

struct Certificate {
  std::string gpu, compute_capability, driver;
  std::string assembler;  ///< of the program's kernels
  std::string
      run_time_assembler;  ///< of those compiled at run time; "" where there is no compiler, or none for the GPU
  std::string models;      ///< models_digest() of the program that made it
  std::vector<ModelCheck> checks;
  std::vector<Alternative> alternatives;
  std::vector<ChainPoint> chain;

  /// "ptxas 13.0.88, NVRTC 13.0".
  std::string assemblers() const;
  /// Whether anything was compared and nothing differed.
  bool holds() const;
};

/// SHA-256 of the text of the models in this program (model_sources()), comments and white space aside.
std::string models_digest();

/// Names of models in a certificate. A matrix instruction has one for each place where its operands may lie:
/// "mma.sync bf16"; "wgmma (A in registers) e4m3 e5m2", "wgmma (A shared) e4m3 e5m2".
constexpr const char* ex2_model = "ex2.approx.ftz.f32";
constexpr const char* natural_log_model = "natural_log";
/// IEEE 754's arithmetic, of which every kernel is taken to be made.
constexpr const char* arithmetic_models[] = {"add.rn.f32", "mul.rn.f32", "fma.rn.f32", "div.rn.f32", "max.f32"};
std::string conversion_model(DType to);
std::vector<std::string> matrix_models(MatrixInstruction, DType a, DType b);
/// Whether what becomes of the instruction is the assembler's choice.
bool is_assemblers_choice(const std::string& model);

/// A GPU, and the code on it that is judged.
struct GpuCode {
  std::string name, compute_capability;  ///< "NVIDIA H200", "9.0"
  std::string assembler;                 ///< as in ModelCheck; "" unknown: any that the certificate was tried with
};

/// The first of the certificates that speaks of the GPU, of those tried with the code's assembler if there are any;
/// nullptr, with the reason and what to do, where there is none.
const Certificate* certificate_of(std::span<const Certificate>, const GpuCode&, std::string& reason);

/// "" where every one of the models was compared and none differed; else the first for which that is not so.
std::string gap_in(const Certificate&, std::span<const std::string> models, const std::string& assembler);

}  // namespace flashproof
