// Where the tokens of a call lie in memory: dense slots, packed sequences or pages, used lengths, strides.
//
//   token t of entry b     dense (b, t), packed (0, begins_b + t), paged (page_table[b][t div page], t mod page)
// of a tensor [batch or page, token, head, channel]. Only tokens below the entry's length are ever read or written, so
// padding, unused slots of pages and what the page table holds past the length may be anything.
#pragma once
#include "kernels/flashproof_kernel.h"
#include "kernels/tile_product.cuh"

namespace flashproof::gpu {

/// The query side or the key side of a call.
struct Side {
  const int32* begins;      ///< NULL: dense; else the first token of each entry
  const int32* used;        ///< NULL: all; else of an entry's slot the first used[b] tokens count
  int64 slot;               ///< tokens of a dense slot
  const int32* page_table;  ///< [batch, pages_an_entry], or NULL
  int64 pages_an_entry, page_size;
};

/// Tokens of one entry: number `first` and on of batch index `batch` in a tensor, or in `pages`; `row` and on of the
/// workspace.
struct Sequence {
  int64 batch, first, row, length;
  const int32* pages;
  int64 page_size;
};

__device__ inline Sequence sequence_of(const Side& side, int64 b) {
  Sequence sequence = {b, 0, b * side.slot, side.slot, nullptr, 0};
  if (side.begins != nullptr) {
    const int64 begin = side.begins[b];
    sequence = {0, begin, begin, side.begins[b + 1] - begin, nullptr, 0};
  }
  if (side.used != nullptr) sequence.length = side.used[b];
  if (side.page_table != nullptr) {
    sequence.batch = sequence.first = 0;
    sequence.pages = side.page_table + b * side.pages_an_entry;
    sequence.page_size = side.page_size;
  }
  return sequence;
}

/// Where the gradients of the keys lie: as the keys do, but those of paged keys are concatenated by used length.
__device__ inline Sequence gradient_sequence_of(const Side& side, int64 b) {
  Sequence sequence = sequence_of(side, b);
  if (sequence.pages == nullptr) return sequence;
  sequence.pages = nullptr;
  for (int64 before = 0; before < b; ++before) sequence.first += sequence_of(side, before).length;
  return sequence;
}

/// One query head of one entry, with the kv head that it reads.
struct Head {
  int64 b, head, kv_head;
  Sequence rows, keys;
};

/// Tensor [batch or page, token, head, channel] of Element, the last stride 1.
template <class Element>
struct Rows {
  Element* data;
  int64 batch_stride, token_stride, head_stride, width;

  __device__ Element* of(const Sequence& sequence, int64 head) const {
    return data + sequence.batch * batch_stride + sequence.first * token_stride + head * head_stride;
  }
  __device__ Axis tokens(const Sequence& sequence) const {
    return {sequence.length, token_stride, sequence.pages, sequence.page_size, batch_stride};
  }
  /// [token, channel]; a product sums over channels.
  __device__ Operand<Element> by_channel(const Sequence& sequence, int64 head) const {
    return {of(sequence, head), tokens(sequence), {width, 1}};
  }
  /// [channel, token]; a product sums over tokens.
  __device__ Operand<Element> by_token(const Sequence& sequence, int64 head) const {
    return {of(sequence, head), {width, 1}, tokens(sequence)};
  }
};

template <class Element>
Rows<Element> rows_of(const flashproof_tensor& t) {
  return {static_cast<Element*>(t.data), t.stride[0], t.stride[1], t.stride[2], t.shape[3]};
}

inline Side query_side(const flashproof_call& call) {
  return {call.cu_seqlens_q.data, call.seqused_q.data, call.problem->max_seq_q, nullptr, 0, 0};
}

inline Side key_side(const flashproof_call& call) {
  const flashproof_problem& p = *call.problem;
  Side side = {call.cu_seqlens_k.data, call.seqused_k.data, p.max_seq_k, nullptr, 0, p.page_size};
  if (p.page_size > 0) side.page_table = call.page_table.data, side.pages_an_entry = call.page_table.length / p.batch;
  return side;
}

}  // namespace flashproof::gpu
