// From a tensor to a tile in shared memory: dense slots, packed sequences or pages, used lengths, any strides.
//
//   token t of entry b     dense (b, t), packed (0, begins_b + t), paged (page_table[b][t div page], t mod page)
// of a tensor [batch or page, token, head, channel]. A tile's rows are swizzled (kernels/swizzle.h). What lies past the
// sequence or the head dim is zero and is never read, so that no garbage meets a weight of 0.
#pragma once
#include "kernels/flash2_call.h"
#include "kernels/ptx.cuh"
#include "kernels/swizzle.h"
#include "kernels/tile_config.h"

namespace flashproof::flash2 {

/// Tokens of one entry: number `first` and on of batch index `batch`.
struct Sequence {
  int batch, first, length;
};

FLASHPROOF_DEVICE Sequence sequence_of(const Side& side, int b) {
  Sequence sequence = {b, 0, side.slot};
  if (side.begins != nullptr) {
    const int begin = load_global(side.begins + b);
    sequence = {0, begin, load_global(side.begins + b + 1) - begin};
  }
  if (side.used != nullptr) sequence.length = load_global(side.used + b);
  return sequence;
}

/// The tokens of one entry and head in memory; a token's channels are `chunks` times 16 bytes.
struct Tokens {
  const char* data;  ///< the first token; paged: the head's place in a page's first token
  int token_bytes, length, chunks;
  bool aligned;
  const int32* pages;  ///< NULL: one after the other
  int64 page_bytes;
  Divisor page_size;
};

FLASHPROOF_DEVICE Tokens tokens_of(const Rows& rows, const Sequence& sequence, int head, int chunks) {
  const int64 begin =
      sequence.batch * rows.batch_bytes + int64(sequence.first) * rows.token_bytes + head * rows.head_bytes;
  return {static_cast<const char*>(rows.data) + begin,
          rows.token_bytes,
          sequence.length,
          chunks,
          rows.aligned != 0,
          nullptr,
          0,
          {}};
}

/// The same through the entry's row of the page table, if the call has one.
FLASHPROOF_DEVICE Tokens paged_tokens_of(const Rows& rows, const Call& call, const Sequence& sequence, int b, int head,
                                         int chunks) {
  if (call.page_table == nullptr) return tokens_of(rows, sequence, head, chunks);
  Tokens tokens = tokens_of(rows, {0, 0, sequence.length}, head, chunks);
  tokens.pages = call.page_table + b * call.pages_an_entry;
  tokens.page_bytes = rows.batch_bytes;
  tokens.page_size = call.page_size;
  return tokens;
}

FLASHPROOF_DEVICE const char* paged_address(const Tokens& tokens, int token) {
  const int page = tokens.page_size.divide(token), slot = token - page * int(tokens.page_size.value);
  return tokens.data + load_global(tokens.pages + page) * tokens.page_bytes + int64(slot) * tokens.token_bytes;
}

/// 16 bytes whose address is a multiple of an element alone.
template <DType dtype>
FLASHPROOF_DEVICE Words4 load_unaligned_chunk(const char* from) {
  constexpr int elements = 4 / sizeof(Element<dtype>), bits = 8 * sizeof(Element<dtype>);
  const Element<dtype>* element = reinterpret_cast<const Element<dtype>*>(from);
  uint32 words[4] = {};
#pragma unroll
  for (int n = 0; n < 4 * elements; ++n)
    words[n / elements] |= uint32(load_global(element + n).bits) << n % elements * bits;
  return {words[0], words[1], words[2], words[3]};
}

/// Rows of a tile between the copies of a thread, where all are of one chunk and lie at distances that the compiler
/// knows: a swizzle repeats after 8 rows, and is linear in the bits of a row, of which a thread's first has none in
/// common with multiples of `apart` below 8. Else 0, and in fp8, which has no registers to spare.
template <TileConfig config, int chunks>
constexpr int rows_apart = [] {
  constexpr int threads = thread_count(config), apart = threads / chunks;
  return !is_fp8(config.dtype) && threads % chunks == 0 && (apart % 8 == 0 || 8 % apart == 0) ? apart : 0;
}();

/// load_tile where tokens are aligned and lie one after the other: an address for each copy is a sum.
template <TileConfig config, int rows, int chunks>
FLASHPROOF_DEVICE void load_even_tile(SharedAddress tile, const Tokens& tokens, int begin) {
  constexpr int apart = rows_apart<config, chunks>;
  const int row = int(uint32(thread_index()) / chunks), chunk = int(uint32(thread_index()) % chunks);
  const SharedAddress to = tile + swizzled_offset(chunks, row, chunk);
  const char* from = tokens.data + int64(begin + row) * tokens.token_bytes + chunk * chunk_bytes;
  const int present = chunk < tokens.chunks ? tokens.length - begin - row : 0;
#pragma unroll
  for (int more = 0; more < rows; more += apart) {
    if (rows % apart != 0 && row + more >= rows) break;
    copy_async_16((to ^ uint32(swizzle_phase(chunks, more) * chunk_bytes)) + uint32(more * chunks * chunk_bytes),
                  from + int64(more) * tokens.token_bytes, more < present);
  }
}

/// load_tile wherever tokens are. Two copies at a time: more take registers that there are not.
template <TileConfig config, int rows, int chunks>
FLASHPROOF_DEVICE void load_any_tile(SharedAddress tile, const Tokens& tokens, int begin) {
  constexpr int threads = thread_count(config);
#pragma unroll 2
  for (int first = 0; first < rows * chunks; first += threads) {
    const uint32 place = uint32(first + thread_index());
    const int row = int(place / chunks), chunk = int(place % chunks);
    if (rows * chunks % threads != 0 && row >= rows) break;
    const SharedAddress to = tile + swizzled_offset(chunks, row, chunk);
    const bool present = begin + row < tokens.length && chunk < tokens.chunks;
    const char* from = tokens.data;
    if (config.features == Features::general && tokens.pages != nullptr) {
      if (present) from = paged_address(tokens, begin + row) + chunk * chunk_bytes;
    } else if (present) {
      from += int64(begin + row) * tokens.token_bytes + chunk * chunk_bytes;
    }
    if (config.features == Features::plain || tokens.aligned)
      copy_async_16(to, from, present);
    else
      store_shared(to, present ? load_unaligned_chunk<config.dtype>(from) : Words4{});
  }
}

/// Starts copies of tokens `begin` and on into a tile of `rows` rows of `chunks` chunks; all threads of the block share
/// them. They are part of the calling thread's group of copies (copy_async_commit), but what is not aligned is there at
/// once.
template <TileConfig config, int rows, int chunks>
FLASHPROOF_DEVICE void load_tile(SharedAddress tile, const Tokens& tokens, int begin) {
  if constexpr (config.features == Features::plain && rows_apart<config, chunks> != 0)
    load_even_tile<config, rows, chunks>(tile, tokens, begin);
  else
    load_any_tile<config, rows, chunks>(tile, tokens, begin);
}

}  // namespace flashproof::flash2
