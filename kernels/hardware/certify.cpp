#include "kernels/hardware/certify.h"

#include "reference/errors.h"

namespace flashproof {

#ifndef FLASHPROOF_HAVE_CUDA
Certificate certify(const std::function<void(const std::string&)>&) {
  throw UnavailableError("this program was built without CUDA; with nvcc (12.0 or later) on PATH build it again");
}
#endif

}  // namespace flashproof
