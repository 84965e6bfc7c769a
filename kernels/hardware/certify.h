// The models of this folder against the GPU of this machine: every unary function over all 2^32 inputs, every matrix
// instruction over at least 10^8 outputs, and the chain of fp8 wgmma whose stagnation the model predicts.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace flashproof {

/// One model on one set of inputs. On the GPU its results are compared with the instruction's, where they are made;
/// those of a sample are compared once more with what the host computes, which is what predicts a kernel's bits.
struct ModelCheck {
  std::string model;                    ///< e.g. "mma.sync e4m3 e5m2"
  std::string data;                     ///< e.g. "cancelling", "all inputs"
  std::string skipped;                  ///< why nothing was compared; "": it was
  uint64_t inputs = 0, mismatches = 0;  ///< of the model on the GPU; an input of a matrix instruction is an output's
  uint64_t sample = 0, host_mismatches = 0;
  std::string counterexample;  ///< the first mismatch: inputs, the GPU's bits, the model's; "" without one
};

/// Another rule for a matrix instruction, tried where the model's own does not hold.
struct Alternative {
  std::string model, rule;
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
  std::string gpu, compute_capability, driver, assembler;
  std::vector<ModelCheck> checks;
  std::vector<Alternative> alternatives;
  std::vector<ChainPoint> chain;

  /// Whether anything was compared and nothing differed.
  bool holds() const;
};

/// `progress` is told each check's name before it starts. Throws UnavailableError without CUDA in the build, without a
/// device, and where no model is of its architecture.
Certificate certify(const std::function<void(const std::string&)>& progress);

}  // namespace flashproof
