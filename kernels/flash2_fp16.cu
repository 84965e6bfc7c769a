// The fp16 kernels of gpu:flash2.
#include "kernels/flash2_table.h"

template std::span<const flashproof::flash2::DeviceKernel>
flashproof::flash2::device_kernels<flashproof::DType::fp16>();
