// Matrices in the registers of a warp: ldmatrix and mma.sync of the PTX ISA, carried out for all 32 lanes.
//
// Lane l holds of an 8 x 8 matrix of 16-bit numbers the row l / 4, columns 2 (l % 4) and 2 (l % 4) + 1 (ldmatrix);
// transposed, the column l / 4, rows 2 (l % 4) and 2 (l % 4) + 1. An mma works on fragments made of such
// pieces, 32 bits of a row each: of A (16 x k) rows l / 4 and l / 4 + 8, of B (k x 8) column l / 4, of C (16 x 8)
// columns 2 (l % 4) and the next in rows l / 4 and l / 4 + 8.
#pragma once
#include "kernels/simulator/machine.h"

namespace flashproof::simulator {

struct MatrixRegisters {
  uint32 address;     ///< of row l % 8 of matrix l / 8
  uint32* registers;  ///< a 32-bit piece of each of the four matrices
};

struct ProductRegisters {
  float* c;         ///< 4: (row, columns 0, 1 of its pair), then row + 8
  const uint32* a;  ///< 4: (row, low half of k), (row + 8, low), (row, high), (row + 8, high)
  const uint32* b;  ///< 2: low half of k, high half
};

void load_matrices(MatrixRegisters&, bool transposed, const SourcePlace&);

/// C += A B by the chip's tensor core, 16 x 8 outputs of 16 (16-bit formats) or 32 products (8-bit formats).
void multiply_add(ProductRegisters&, DType a, DType b, const SourcePlace&);

}  // namespace flashproof::simulator
