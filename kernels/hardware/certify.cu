// The certificate of the GPU in this machine (certify.h): what it is, and every comparison in turn.
#include <cstdio>

#include "kernels/assembler.h"
#include "kernels/hardware/certify_device.h"
#include "kernels/loaded_kernel.h"
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

Chip chip_of(const cudaDeviceProp& device) {
  DeviceArray<Features> features(1);
  report_features<<<1, 1>>>(features.data());
  finish("features");
  const Features found = features.read()[0];
  return {architecture_of(device),
          device.multiProcessorCount,
          found.architecture >= 890,
          found.wgmma,
          assembler_of(reinterpret_cast<const void*>(report_features)),
          why_no_target(device_architecture()).empty() ? run_time_assembler() : ""};
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
  certificate.driver = driver_version();
  certificate.assembler = chip.assembler;
  certificate.run_time_assembler = chip.run_time_assembler;
  certificate.models = models_digest();
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
