// Where a chunk of 16 bytes of a tile lies in shared memory, so that eight neighbouring rows of one chunk column meet
// all 32 banks.
//
//   chunk c of row r stands at place c XOR p(r) of its row,  p(r) = floor(r / (8 / span)) mod span
// with span the largest power of two, at most 8, that divides the chunks of a row. ldmatrix reads one chunk of each of
// eight rows at a time; rows are a multiple of span chunks long, so rows r and r + 8 / span start in the same bank (8
// chunks are 128 bytes, a turn of the banks) and differ in p, while those between start apart. Freestanding.
#pragma once
#include "reference/formats.h"

namespace flashproof {

constexpr int chunk_bytes = 16;

FLASHPROOF_HD constexpr int swizzle_span(int chunks_a_row) {
  return chunks_a_row % 8 == 0 ? 8 : chunks_a_row % 4 == 0 ? 4 : chunks_a_row % 2 == 0 ? 2 : 1;
}

/// p(row): what the chunks of a row are XORed with. It has a period of 8 rows.
FLASHPROOF_HD constexpr int swizzle_phase(int chunks_a_row, int row) {
  const int span = swizzle_span(chunks_a_row);
  return row / (8 / span) % span;
}

/// Bytes from the start of a tile to a chunk of it.
FLASHPROOF_HD constexpr uint32 swizzled_offset(int chunks_a_row, int row, int chunk) {
  return uint32((row * chunks_a_row + (chunk ^ swizzle_phase(chunks_a_row, row))) * chunk_bytes);
}

}  // namespace flashproof
