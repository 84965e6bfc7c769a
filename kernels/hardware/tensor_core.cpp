// A tile of outputs by the tensor core's arithmetic (tensor_core.h).
#include "kernels/hardware/tensor_core.h"

#include <stdexcept>

namespace flashproof {

void multiply_add_tile(const MatrixUnit& unit, int64 rows, int64 columns, int64 inner, const float* a,
                       int64 a_row_stride, int64 a_column_stride, const float* b, int64 b_row_stride, float* c,
                       int64 c_row_stride) {
  if (unit.products == 0) throw std::invalid_argument("multiply_add_tile: the architecture has no such instruction");
  const int count = products_an_instruction(unit);
  for (int64 i = 0; i < rows; ++i)
    for (int64 j = 0; j < columns; ++j)
      for (int64 first = 0; first < inner; first += count) {
        uint32 x[32] = {}, y[32] = {};
        for (int64 k = first; k < inner && k < first + count; ++k) {
          x[k - first] = encode(unit.a, a[i * a_row_stride + k * a_column_stride]);
          y[k - first] = encode(unit.b, b[k * b_row_stride + j]);
        }
        c[i * c_row_stride + j] = fused_step(unit, x, y, c[i * c_row_stride + j]);
      }
}

}  // namespace flashproof
