// What attention costs by each algorithm: arithmetic, traffic of device memory, memory on the chip and off it.
//
// Twice, and equal: counted while the algorithm of reference/ runs (cost_by_running.cpp), and as a closed form in the
// lengths, head dims and tile sizes (cost_closed_form.cpp). No count depends on data: the run is over zeros, and over
// one head of each pair of lengths.
//
// Operations    A multiply-add is a term of a matrix product. Each other operation of a number is one: exponential,
//               logarithm, addition or subtraction, multiplication (by a factor 1 too: value factor, softcap's slope),
//               division, comparison with a maximum. Not counted: tests of the mask and for a row without keys,
//               rounding.
// Traffic       Elements that the published algorithm moves between device memory and the chip, by array and by line of
//               the paper, as `load` and `store` in the algorithms say (reference/tile_ops.h); no cache is modelled.
//               q, k, v, dO are in the format of the problem; O, dQ, dK, dV and the matrices S, P, dP, dS in that of
//               the output (between tiles too, where O of FlashAttention 1 and dQ travel); numbers of a row and results
//               of a part in fp32.
// Extra memory  Arrays in device memory that are neither input nor output: as many rows and columns as the pass stores.
// On the chip   The largest tile of each array that is loaded or made there, all held at once: loaded ones in the
//               format that they move in, made ones in fp32, but P and dS in the format of the problem. Nothing is said
//               of `standard` and `rabe_staats`: their operators choose their own tiles.
#pragma once
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "reference/flash2.h"
#include "reference/problem.h"

namespace flashproof {

struct Operations {
  int64 multiply_adds = 0, exponentials = 0, logarithms = 0, additions = 0, multiplications = 0, divisions = 0,
        comparisons = 0;
  bool operator==(const Operations&) const = default;
};
/// All but the multiply-adds.
int64 other_operations(const Operations&);

struct ArrayCost {
  int64 loaded = 0, stored = 0;  ///< elements
  int64 extent = 0;              ///< elements of an extra array
  int64 tile_bytes = 0;          ///< its largest tile on the chip
  bool operator==(const ArrayCost&) const = default;
};

/// One array at one line of a paper.
struct Move {
  Array array;
  bool is_store;
  std::string_view source;
  int64 elements;
};

constexpr int array_count = int(Array::part_lse) + 1;
/// As the papers name it: "Q", "dO", "S", "l", ...
const char* name_of(Array);
/// Whether it is neither input nor output.
bool is_extra(Array);
/// Bytes of an element in device memory.
int64 element_bytes(const Problem&, Array);

struct Cost {
  Operations operations;
  std::array<ArrayCost, array_count> arrays{};
  std::vector<Move> moves;  ///< of a run, in the order first met; empty in the closed form
  ArrayCost& operator[](Array a) { return arrays[size_t(a)]; }
  const ArrayCost& operator[](Array a) const { return arrays[size_t(a)]; }
};
int64 loaded_bytes(const Problem&, const Cost&);
int64 stored_bytes(const Problem&, const Cost&);
int64 extra_bytes(const Problem&, const Cost&);
int64 on_chip_bytes(const Cost&);

/// How an algorithm cuts the work: chunks of `rabe_staats` and tiles of the others, parts of `flash_decoding`.
/// `standard` has neither.
struct Schedule {
  TileSize tile;
  int64 parts = 8;
};

/// "standard", "rabe_staats", "flash1", "flash2", "flash3" (in two levels in fp8), "flash_decoding".
std::vector<std::string> costed_algorithms();
/// Not `rabe_staats`, which is differentiated as a whole. That of `flash3` and `flash_decoding` is FlashAttention 2's.
bool has_costed_backward(std::string_view algorithm);

enum class Pass { forward, backward };

/// The cost of one pass over the whole problem (all entries and heads; `direction` of the problem is not looked at).
/// Throws UsageError for an unknown algorithm or a schedule below 1; for what the published algorithms do not have
/// (softcap, ALiBi, bias, sink, dropout, descale, pages), and for a backward with grouped heads, whose sum over a group
/// is in none of the papers.
Cost cost_by_running(const Problem&, std::string_view algorithm, Pass, const Schedule&);
Cost cost_closed_form(const Problem&, std::string_view algorithm, Pass, const Schedule&);
/// Whether running takes seconds at most: no entry has more than 2^22 scores a head.
bool is_small_enough_to_run(const Problem&);

}  // namespace flashproof
