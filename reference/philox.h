// Philox4x32-10: four uniform 32-bit words from a 128-bit counter and a 64-bit key, and the dropout rule built on it.
//
// Each of ten rounds maps (x0, x1, x2, x3) to (hi(M1 x2) ^ x1 ^ k0, lo(M1 x2), hi(M0 x0) ^ x3 ^ k1, lo(M0 x0)), then
// adds the Weyl constants to the key. Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2,
// 3", SC 2011, section 3.3 and table 2. Freestanding: device code includes this file.
#pragma once
#include "reference/formats.h"

namespace flashproof {

struct Philox {
  uint32 word[4];
};

FLASHPROOF_HD constexpr Philox philox4x32_10(Philox counter, uint32 key0, uint32 key1) {
  uint32* x = counter.word;
  for (int round = 0; round < 10; ++round) {
    const uint64 product0 = uint64(0xd2511f53u) * x[0], product1 = uint64(0xcd9e8d57u) * x[2];
    const uint32 x0 = uint32(product1 >> 32) ^ x[1] ^ key0, x2 = uint32(product0 >> 32) ^ x[3] ^ key1;
    x[0] = x0, x[1] = uint32(product1), x[2] = x2, x[3] = uint32(product0);
    key0 += 0x9e3779b9u, key1 += 0xbb67ae85u;
  }
  return counter;
}

/// Words below this are dropped: floor(rate 2^32), exact for an fp32 rate in [0, 1).
FLASHPROOF_HD constexpr uint32 dropout_threshold(float rate) { return uint32(double(rate) * 4294967296.0); }

/// Whether dropout keeps the pair of query i and key j (both counted inside the sequence) in query head h of entry b.
/// One call of Philox serves the four scores that a thread holds of an m16n8 fragment: rows i and i + 8, keys j and
/// j + 1.
FLASHPROOF_HD constexpr bool dropout_keeps(uint64 seed, uint32 threshold, int64 b, int64 h, int64 i, int64 j) {
  const Philox counter = {uint32(j >> 1), uint32((i >> 4) * 8 + (i & 7)), uint32(h), uint32(b)};
  const Philox words = philox4x32_10(counter, uint32(seed), uint32(seed >> 32));
  // Word 2 ((i >> 3) & 1) + (j & 1), chosen without an index: registers have none, and a GPU would put the words in
  // memory.
  const uint32 even = i & 8 ? words.word[2] : words.word[0], odd = i & 8 ? words.word[3] : words.word[1];
  return (j & 1 ? odd : even) >= threshold;
}

}  // namespace flashproof
