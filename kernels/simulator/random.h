// The schedule's source of draws: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
#pragma once
#include <bit>

#include "reference/formats.h"

namespace flashproof::simulator {

class Draws {
 public:
  explicit Draws(uint64 seed) : state_(seed) {}

  /// Evenly from 0 to count - 1, up to 2^-32 of unevenness.
  uint32 below(uint32 count) { return uint32((next() >> 32) * count >> 32); }

  /// One of the ones of `mask`, which has some: its position.
  int one_of(uint32 mask) {
    for (uint32 skip = below(uint32(std::popcount(mask))); skip > 0; --skip) mask &= mask - 1;
    return std::countr_zero(mask);
  }

 private:
  uint64 next() {
    uint64 z = state_ += 0x9e3779b97f4a7c15ul;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ul;
    z = (z ^ z >> 27) * 0x94d049bb133111ebul;
    return z ^ z >> 31;
  }

  uint64 state_;
};

}  // namespace flashproof::simulator
