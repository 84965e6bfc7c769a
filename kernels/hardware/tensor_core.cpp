// A tile of outputs by the tensor core's arithmetic (tensor_core.h), 8 neighbouring columns at a time in the lanes of
// vectors.
//
// A step in fp32 and int32, exact where every E lies in [-100, 100]: a product of two 11-bit significands is an fp32
// number; times 2^(align_bits - E) it converts to int32 by truncation, which is the alignment. 16 products of less than
// 2^27 sum within int32; the accumulator's 2^26 may carry out of it, and the sign then follows from the carry. What is
// out of that range, and every infinity and NaN, is left to fused_step.
#include "kernels/hardware/tensor_core.h"

#include <cstring>
#include <stdexcept>

#include "reference/wide_vectors.h"

namespace flashproof {
namespace {

constexpr int lanes = 8;  ///< wider vectors were no faster with AVX-512 and slow with AVX2
using Floats = float __attribute__((vector_size(4 * lanes)));
using Ints = int32 __attribute__((vector_size(4 * lanes)));
using Words = uint32 __attribute__((vector_size(4 * lanes)));
// Inlined into each width of its caller.
#define FLASHPROOF_INLINE inline __attribute__((always_inline))

constexpr int usual = 100;  ///< E within +-usual is exact in fp32

constexpr int block_rows = 32, block_inner = 128;  ///< inner in whole instructions
struct Rows {
  float value[block_rows][block_inner];
  int32 exponent[block_rows][block_inner];
};
struct Columns {
  Floats value[block_inner];
  Ints exponent[block_inner];
};

/// The least exponent of an operand in a step: its format's, fp16's where the unit converts to that.
int least_exponent(const MatrixUnit& unit, DType dtype) { return format_of(unit.run == 0 ? dtype : DType::fp16).emin; }

int32 exponent_of(float x, int32 least) {
  const int32 field = int32(__builtin_bit_cast(uint32, x) >> 23 & 255);
  if (field == 255) return exponent_of_special;
  if (x == 0) return exponent_of_zero;
  return field - 127 > least ? field - 127 : least;
}

FLASHPROOF_INLINE Ints exponents_of(Floats x, int32 least) {
  const Ints field = (__builtin_bit_cast(Ints, x) >> 23 & 255) - 127;
  Ints exponent = field > least ? field : least + Ints{};
  exponent = x == 0 ? exponent_of_zero + Ints{} : exponent;
  return field == 128 ? exponent_of_special + Ints{} : exponent;
}

FLASHPROOF_INLINE Floats powers_of_two(Ints exponent) {
  return __builtin_bit_cast(Floats, __builtin_bit_cast(Words, exponent + 127) << 23);
}

/// c and `count` products, truncated. Lanes that fp32 and int32 do not hold exactly are set in `unusual`.
FLASHPROOF_INLINE Floats step(const MatrixUnit& unit, int count, const float* a, const int32* a_exponent,
                              const Floats* b, const Ints* b_exponent, Floats c, Ints& unusual) {
  Ints top = exponents_of(c, -126);
  for (int n = 0; n < count; ++n) {
    const Ints exponent = a_exponent[n] + b_exponent[n];
    top = exponent > top ? exponent : top;
  }
  unusual |= (top > usual) | ((top < -usual) & (top > exponent_of_zero / 2));
  top = top < -usual ? -usual + Ints{} : top;  // all terms are zero
  const Floats scale = powers_of_two(unit.align_bits - top);
  Words unsigned_sum = {};  // an unusual lane may overflow
  for (int n = 0; n < count; ++n)
    unsigned_sum += __builtin_bit_cast(Words, __builtin_convertvector(a[n] * b[n] * scale, Ints));
  const Ints products = __builtin_bit_cast(Ints, unsigned_sum);
  const Ints accumulator = __builtin_convertvector(c * scale, Ints);
  const Ints sum = __builtin_bit_cast(Ints, unsigned_sum + __builtin_bit_cast(Words, accumulator));
  const Ints carry = (products ^ sum) & (accumulator ^ sum);
  const Ints negative = (sum ^ carry) >> 31;
  Words magnitude = __builtin_bit_cast(Words, sum ^ negative) - __builtin_bit_cast(Words, negative);
  Words cut = magnitude >> (unit.keep_bits + 1);  // at most 8 bits: ones from its leading bit down are the bits to drop
  cut |= cut >> 1;
  cut |= cut >> 2;
  cut |= cut >> 4;
  const Floats result = __builtin_convertvector(magnitude & ~cut, Floats) * powers_of_two(top - unit.align_bits);
  return __builtin_bit_cast(Floats, __builtin_bit_cast(Words, result) | (__builtin_bit_cast(Words, negative) << 31));
}

/// One instruction for the lanes' outputs; operands from the position given.
FLASHPROOF_INLINE Floats instruction(const MatrixUnit& unit, const float* a, const int32* a_exponent, const Floats* b,
                                     const Ints* b_exponent, Floats c, Ints& unusual) {
  Floats t = unit.run == 0 ? c : Floats{};
  for (int first = 0; first < products_an_instruction(unit); first += unit.products)
    t = step(unit, unit.products, a + first, a_exponent + first, b + first, b_exponent + first, t, unusual);
  if (unit.run == 0) return t;
  t = c + t;
  return t == t ? t : __builtin_bit_cast(Floats, 0x7fffffff + Ints{});
}

/// The operands of a tile as multiply_add_tile is given them.
struct Tile {
  int64 rows, columns, inner;
  const float* a;
  int64 a_row_stride, a_column_stride;
  const float* b;
  int64 b_row_stride;
  float* c;
  int64 c_row_stride;
};

/// fused_step for output (i, j) and the instruction whose first product is `first`.
float instruction_of_one(const MatrixUnit& unit, const Tile& t, int64 i, int64 j, int64 first, float c) {
  uint32 a[32] = {}, b[32] = {};
  for (int64 k = first; k < t.inner && k < first + products_an_instruction(unit); ++k) {
    a[k - first] = encode(unit.a, t.a[i * t.a_row_stride + k * t.a_column_stride]);
    b[k - first] = encode(unit.b, t.b[k * t.b_row_stride + j]);
  }
  return fused_step(unit, a, b, c);
}

/// Rows [first, first + count) of A, inner [k0, k0 + size), in the steps' order.
void take_rows(const MatrixUnit& unit, const Tile& t, int64 first, int64 count, int64 k0, int size, Rows& rows) {
  const int instruction = products_an_instruction(unit), least = least_exponent(unit, unit.a);
  for (int n = 0; n < size; ++n) {
    const int64 k = k0 + n / instruction * instruction + product_at(unit, n % instruction);
    for (int64 i = 0; i < count; ++i) {
      const float x = k < t.inner ? t.a[(first + i) * t.a_row_stride + k * t.a_column_stride] : 0.0f;
      rows.value[i][n] = x;
      rows.exponent[i][n] = exponent_of(x, least);
    }
  }
}

/// Columns [first, first + lanes) of B, zeros past the last one, likewise.
FLASHPROOF_WIDE_VECTORS
void take_columns(const MatrixUnit& unit, const Tile& t, int64 first, int64 k0, int size, Columns& columns) {
  const int instruction = products_an_instruction(unit), least = least_exponent(unit, unit.b);
  const int64 width = first + lanes < t.columns ? lanes : t.columns - first;
  for (int n = 0; n < size; ++n) {
    const int64 k = k0 + n / instruction * instruction + product_at(unit, n % instruction);
    Floats x = {};
    if (k < t.inner) std::memcpy(&x, t.b + k * t.b_row_stride + first, width * sizeof(float));
    columns.value[n] = x;
    columns.exponent[n] = exponents_of(x, least);
  }
}

/// Adds the products of [k0, k0 + size) to outputs (i, j0 + lane) of rows [i0, i0 + count).
FLASHPROOF_WIDE_VECTORS
void add_block(const MatrixUnit& unit, const Tile& t, int64 i0, int64 count, int64 j0, int64 k0, int size,
               const Rows& rows, const Columns& columns) {
  const int length = products_an_instruction(unit);
  const int64 width = j0 + lanes < t.columns ? lanes : t.columns - j0;
  for (int64 i = 0; i < count; ++i) {
    float* row = t.c + (i0 + i) * t.c_row_stride + j0;
    Floats c = {};
    std::memcpy(&c, row, width * sizeof(float));
    for (int n = 0; n < size; n += length) {
      Ints unusual = {};
      Floats next = instruction(unit, rows.value[i] + n, rows.exponent[i] + n, columns.value + n, columns.exponent + n,
                                c, unusual);
      for (int lane = 0; lane < width; ++lane)
        if (unusual[lane]) next[lane] = instruction_of_one(unit, t, i0 + i, j0 + lane, k0 + n, c[lane]);
      c = next;
    }
    std::memcpy(row, &c, width * sizeof(float));
  }
}

}  // namespace

void multiply_add_tile(const MatrixUnit& unit, int64 rows, int64 columns, int64 inner, const float* a,
                       int64 a_row_stride, int64 a_column_stride, const float* b, int64 b_row_stride, float* c,
                       int64 c_row_stride) {
  if (unit.products == 0) throw std::invalid_argument("multiply_add_tile: the architecture has no such instruction");
  const Tile tile{rows, columns, inner, a, a_row_stride, a_column_stride, b, b_row_stride, c, c_row_stride};
  const int instruction = products_an_instruction(unit);
  Rows row_block;
  Columns column_block;
  for (int64 k = 0; k < inner; k += block_inner) {
    const int64 left = inner - k < block_inner ? inner - k : block_inner;
    const int size = int((left + instruction - 1) / instruction * instruction);
    for (int64 i = 0; i < rows; i += block_rows) {
      const int64 count = rows - i < block_rows ? rows - i : block_rows;
      take_rows(unit, tile, i, count, k, size, row_block);
      for (int64 j = 0; j < columns; j += lanes) {
        take_columns(unit, tile, j, k, size, column_block);
        add_block(unit, tile, i, count, j, k, size, row_block, column_block);
      }
    }
  }
}

}  // namespace flashproof
