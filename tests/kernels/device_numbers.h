// Functions of reference/ and kernels/ptx.cuh carried out by the GPU, one element a thread, for comparison with the
// host. Each throws std::runtime_error with CUDA's message when the device fails.
#pragma once
#include <string>
#include <vector>

#include "reference/recipe.h"

namespace flashproof::on_device {

/// The first device's name, or "" with the reason why there is none.
std::string device_name(std::string& reason);

struct ElementQuery {
  Recipe recipe;
  Operand operand;
  ElementContext context;
  Place at;
};
std::vector<uint32> element(const std::vector<ElementQuery>&);

std::vector<uint32> encode(DType, const std::vector<double>&);
std::vector<double> decode(DType, const std::vector<uint32>&);

/// from_fp32<Bf16>, <Fp16> or <E4m3>, and to_fp32 of codes of a format of 8 or 16 bits.
std::vector<uint32> convert(DType, const std::vector<float>&);
std::vector<float> widen(DType, const std::vector<uint32>&);

}  // namespace flashproof::on_device
