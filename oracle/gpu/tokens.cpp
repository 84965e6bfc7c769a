// Builds without CUDA; see tokens.cu.
#include "oracle/gpu/tokens.h"

namespace flashproof {

#ifndef FLASHPROOF_HAVE_CUDA
TokenMaker tokens_by_gpu() { return {}; }
#endif

}  // namespace flashproof
