// The certificate of the GPU in this machine (certify.h): what it is, and every comparison in turn.
#include <cstdio>
#include <fstream>

#include "kernels/hardware/certify_device.h"
#include "reference/errors.h"

namespace flashproof {
namespace certify_device {
namespace {

struct Features {
  int architecture;  ///< __CUDA_ARCH__ that the code which runs was compiled for
  bool wgmma;
};

__global__ void report_features(Features* features) {
#ifdef __CUDA_ARCH__
  features->architecture = __CUDA_ARCH__;
#endif
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  features->wgmma = true;
#endif
}

Architecture architecture_of(const cudaDeviceProp& device) {
  const int capability = 10 * device.major + device.minor;
  if (capability == 90) return Architecture::sm_90;
  if (capability == 89) return Architecture::sm_89;
  if (capability >= 80 && capability < 89) return Architecture::sm_80;
  throw UnavailableError("certify: there is no model of " + std::string(device.name) + ", compute capability " +
                         std::to_string(device.major) + "." + std::to_string(device.minor) +
                         "; there are models of 8.0 to 8.9 and 9.0");
}

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// Version of the kernel module, where the system says it, and of the CUDA that it serves.
std::string driver_text() {
  int version = 0;
  require(cudaDriverGetVersion(&version), "driver version");
  std::string module;
  std::ifstream("/sys/module/nvidia/version") >> module;
  return (module.empty() ? "" : module + ", ") + "CUDA " + version_text(version);
}

/// Who made the machine code that runs: what an instruction becomes (fp8 through mma.sync) is the assembler's choice.
std::string assembler_text() {
  cudaFuncAttributes code;
  require(cudaFuncGetAttributes(&code, report_features), "features");
  if (code.binaryVersion != code.ptxVersion) return "the driver's, from PTX of this program";
  return "ptxas " + std::to_string(__CUDACC_VER_MAJOR__) + "." + std::to_string(__CUDACC_VER_MINOR__) + "." +
         std::to_string(__CUDACC_VER_BUILD__);
}

Chip chip_of(const cudaDeviceProp& device) {
  DeviceArray<Features> features(1);
  report_features<<<1, 1>>>(features.data());
  finish("features");
  const Features found = features.read()[0];
  return {architecture_of(device), device.multiProcessorCount, found.architecture >= 890, found.wgmma};
}

}  // namespace

std::string hexadecimal(uint32 bits) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%08x", bits);
  return text;
}

}  // namespace certify_device

Certificate certify(const std::function<void(const std::string&)>& progress) {
  using namespace certify_device;
  cudaDeviceProp device;
  const cudaError_t error = cudaGetDeviceProperties(&device, 0);
  if (error != cudaSuccess) throw UnavailableError(std::string("certify: no GPU: ") + cudaGetErrorString(error));
  const Chip chip = chip_of(device);
  Certificate certificate;
  certificate.gpu = device.name;
  certificate.compute_capability = std::to_string(device.major) + "." + std::to_string(device.minor);
  certificate.driver = driver_text();
  certificate.assembler = assembler_text();
  certificate.chain = run_chains(chip, progress);
  for (const auto part : {check_unary, check_arithmetic}) {
    const std::vector<ModelCheck> checks = part(chip, progress);
    certificate.checks.insert(certificate.checks.end(), checks.begin(), checks.end());
  }
  const std::vector<ModelCheck> checks = check_matrix(chip, progress, certificate.alternatives);
  certificate.checks.insert(certificate.checks.end(), checks.begin(), checks.end());
  return certificate;
}

}  // namespace flashproof
