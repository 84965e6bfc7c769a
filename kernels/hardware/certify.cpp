#include "kernels/hardware/certify.h"

#include "reference/errors.h"

namespace flashproof {

KernelText mma_sync_text(DType a, DType b, const std::string& architecture) {
  const auto format = [](DType dtype) {
    return std::string("flashproof::") + (dtype == DType::e4m3 ? "E4m3" : "E5m2");
  };
  return {R"(#include "kernels/hardware/certify_mma.cuh"
namespace flashproof::certify_device {
template <class A, class B>
__global__ void __launch_bounds__(32) carry_out_at_run_time(const __grid_constant__ CarryOut work) {
  carry_out<MmaSync<A, B>>(work);
}
}
)",
          "flashproof::certify_device::carry_out_at_run_time<" + format(a) + ", " + format(b) + ">", architecture};
}

#ifndef FLASHPROOF_HAVE_CUDA
Certificate certify(const std::function<void(const std::string&)>&) {
  throw UnavailableError("this program was built without CUDA; with nvcc (12.0 or later) on PATH build it again");
}
#endif

}  // namespace flashproof
