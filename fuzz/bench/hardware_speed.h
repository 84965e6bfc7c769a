// How fast the models of tensor cores are on this machine's host: multiply-adds a second of one core.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "fuzz/bench/quartiles.h"

namespace flashproof {

/// Millions of multiply-adds a second of one core, over the repetitions.
struct UnitSpeed {
  std::string instruction;  ///< e.g. "sm_90 wgmma e4m3"
  int products = 0;         ///< fused in a step
  Quartiles tile;           ///< multiply_add_tile, 64 x 128 outputs, 128 products each
  Quartiles one;            ///< multiply_add_tile, the outputs of one mma.sync (16 x 8)
  Quartiles scalar;         ///< fused_step, one output after the other
};
std::vector<UnitSpeed> time_hardware_models(int repetitions, const std::function<void(const std::string&)>& progress);

}  // namespace flashproof
