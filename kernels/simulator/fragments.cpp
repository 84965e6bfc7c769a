#include "kernels/simulator/fragments.h"

#include <array>
#include <cstring>

namespace flashproof::simulator {

namespace {

constexpr int matrices = 4, side = 8, row_bytes = 16;  // of ldmatrix, 16-bit numbers

float fp16_number(uint32 bits) {
  const uint32 sign = (bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
  // Exponent and fraction in fp32's places stand for a number 2^112 times too small, subnormals included.
  const float number = magnitude < infinity_bits(DType::fp16) ? std::bit_cast<float>(magnitude << 13) * 0x1p112f
                                                              : std::bit_cast<float>(0x7f800000u | magnitude << 13);
  return std::bit_cast<float>(sign | std::bit_cast<uint32>(number));
}

constexpr std::array<float, 256> e4m3_numbers = [] {
  std::array<float, 256> numbers{};
  for (uint32 bits = 0; bits < numbers.size(); ++bits) numbers[bits] = float(decode(DType::e4m3, bits));
  return numbers;
}();

/// The numbers of one register, lowest bits first: two of 16 bits or four of 8.
template <DType dtype>
void unpack(uint32 word, float* to, int stride) {
  if constexpr (dtype == DType::bf16) {
    to[0] = std::bit_cast<float>(word << 16);
    to[stride] = std::bit_cast<float>(word & 0xffff0000u);
  } else if constexpr (dtype == DType::fp16) {
    to[0] = fp16_number(word & 0xffffu);
    to[stride] = fp16_number(word >> 16);
  } else {
    for (int i = 0; i < 4; ++i, word >>= 8)
      to[i * stride] = dtype == DType::e4m3 ? e4m3_numbers[word & 0xffu] : fp16_number((word & 0xffu) << 8);
  }
}

void unpack(DType dtype, uint32 word, float* to, int stride) {
  if (dtype == DType::bf16) return unpack<DType::bf16>(word, to, stride);
  if (dtype == DType::fp16) return unpack<DType::fp16>(word, to, stride);
  if (dtype == DType::e4m3) return unpack<DType::e4m3>(word, to, stride);
  return unpack<DType::e5m2>(word, to, stride);
}

}  // namespace

void load_matrices(MatrixRegisters& mine, bool transposed, const SourcePlace& where) {
  Machine& chip = machine();
  const char* operation = transposed ? "load_matrix_x4_transposed" : "load_matrix_x4";
  chip.meet(operation, mine, where, [&](auto operand) {
    for (int matrix = 0; matrix < matrices; ++matrix) {
      uint32 rows[side][row_bytes / 4];
      for (int row = 0; row < side; ++row)
        std::memcpy(rows[row], chip.shared().read(operand(matrix * side + row).address, row_bytes, chip.warp(), where),
                    row_bytes);
      for (int lane = 0; lane < lanes_a_warp; ++lane) {
        const int across = lane / 4, along = lane % 4;
        uint32& piece = operand(lane).registers[matrix];
        if (!transposed) {
          piece = rows[across][along];
          continue;
        }
        const int shift = across % 2 * 16;
        piece = (rows[2 * along][across / 2] >> shift & 0xffffu) | rows[2 * along + 1][across / 2] >> shift << 16;
      }
    }
  });
}

void multiply_add(ProductRegisters& mine, DType a_type, DType b_type, const SourcePlace& where) {
  Machine& chip = machine();
  // Transposed, C' += B' A': the model works on 16 neighbouring columns at a time, and a product has no sides.
  const MatrixUnit unit = matrix_unit(chip.chip(), MatrixInstruction::mma_sync, b_type, a_type);
  const int inner = products_an_instruction(unit), piece = inner / 8;  // numbers in a register
  chip.meet(inner == 16 ? "multiply_add_16x8x16" : "multiply_add_16x8x32", mine, where, [&](auto operand) {
    constexpr int rows = 16, columns = 8;
    float a[32 * rows], b[columns * 32], c[columns * rows];  // a[k][row], b[column][k], c[column][row]
    for (int lane = 0; lane < lanes_a_warp; ++lane) {
      const ProductRegisters& own = operand(lane);
      const int across = lane / 4, along = lane % 4 * piece;
      for (int r = 0; r < 4; ++r)
        unpack(a_type, own.a[r], &a[(along + r / 2 * inner / 2) * rows + across + r % 2 * 8], rows);
      for (int r = 0; r < 2; ++r) unpack(b_type, own.b[r], &b[across * inner + along + r * inner / 2], 1);
      for (int r = 0; r < 4; ++r) c[(lane % 4 * 2 + r % 2) * rows + across + r / 2 * 8] = own.c[r];
    }
    multiply_add_tile(unit, columns, rows, inner, b, inner, 1, a, rows, c, rows);
    for (int lane = 0; lane < lanes_a_warp; ++lane)
      for (int r = 0; r < 4; ++r) operand(lane).c[r] = c[(lane % 4 * 2 + r % 2) * rows + lane / 4 + r / 2 * 8];
  });
}

}  // namespace flashproof::simulator
