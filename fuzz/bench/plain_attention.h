// Attention in plain double, without any bound: what the certified oracle's speed is measured against.
#pragma once
#include <cstdint>
#include <vector>

namespace flashproof {

/// One head without mask; rows, keys and channels of it.
struct PlainHead {
  int64_t rows = 0, keys = 0, head_dim = 0;  ///< rows a multiple of 16, keys of 64
  double scale = 1;
  std::vector<double> q, k, v;  ///< [rows, head_dim], [keys, head_dim] twice
};

/// O [rows, head_dim] by online softmax in one pass over the keys, 16 rows and 64 keys at a time, on one core.
std::vector<double> plain_attention(const PlainHead&);

}  // namespace flashproof
