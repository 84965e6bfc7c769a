#include "kernels/assembler.h"

#include <fstream>
#include <stdexcept>

namespace flashproof {

std::string driver_version() {
  int version = 0;
  std::string module;
  std::ifstream("/sys/module/nvidia/version") >> module;
  if (cudaDriverGetVersion(&version) != cudaSuccess) return module;
  return (module.empty() ? "" : module + ", ") + "CUDA " + std::to_string(version / 1000) + "." +
         std::to_string(version % 1000 / 10);
}

std::string assembler_of(const void* function) {
  cudaFuncAttributes code;
  const cudaError_t error = cudaFuncGetAttributes(&code, function);
  if (error != cudaSuccess) throw std::runtime_error(std::string("a kernel's code: ") + cudaGetErrorString(error));
  if (code.binaryVersion != code.ptxVersion) return "driver " + driver_version();
  return "ptxas " + std::to_string(__CUDACC_VER_MAJOR__) + "." + std::to_string(__CUDACC_VER_MINOR__) + "." +
         std::to_string(__CUDACC_VER_BUILD__);
}

}  // namespace flashproof
