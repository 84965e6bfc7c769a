#include "kernels/hardware/certify.h"

#include <algorithm>

#include "reference/errors.h"

namespace flashproof {

bool Certificate::holds() const {
  const bool compared = std::any_of(checks.begin(), checks.end(), [](const ModelCheck& c) { return c.inputs > 0; });
  return compared &&
         std::all_of(checks.begin(), checks.end(),
                     [](const ModelCheck& c) { return c.mismatches == 0 && c.host_mismatches == 0; }) &&
         std::all_of(chain.begin(), chain.end(), [](const ChainPoint& p) { return p.predicted == p.measured; });
}

#ifndef FLASHPROOF_HAVE_CUDA
Certificate certify(const std::function<void(const std::string&)>&) {
  throw UnavailableError("this program was built without CUDA; with nvcc (12.0 or later) on PATH build it again");
}
#endif

}  // namespace flashproof
