// A case: a problem, a data recipe and edits, with one text form that can be typed back in.
//
//   bf16 h2 q3 k40 d64 causal data=normal seed=7 keys=0-3,17 set=k[0,2,0,5]:0x3f80
//
// Edits are made by reduction. Index maps say which source position each remaining index takes its data from
// (`keys=0,5,9`: three keys are left, with the data of source keys 0, 5 and 9); `set` gives one element a bit pattern.
// The problem's sizes are those after the edits.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "reference/problem.h"
#include "reference/recipe.h"

namespace flashproof {

/// Source positions by axis; an empty list is the identity. Each list's length is the axis's extent in the problem
/// (rows and keys: of the largest used length; shorter entries use its beginning). Positions may repeat and come in any
/// order.
struct IndexMaps {
  std::vector<int64_t> batches, rows, keys, heads, kv_heads, channels, value_channels;
  bool operator==(const IndexMaps&) const = default;
};

/// Element (b, position, head, channel) of an operand, counted in the problem as it is, set to `bits`. For bias (b, i,
/// h, j), 0 on broadcast axes; for slope and the descales (b, 0, head, 0), b = 0 for slopes per head; for sink (0, 0,
/// h, 0).
struct SetElement {
  Operand operand = Operand::q;
  int64_t b = 0, position = 0, head = 0, channel = 0;
  uint32_t bits = 0;
  bool operator==(const SetElement&) const = default;
};

/// A safetensors file as data (recipe.family == Family::file): tensors Q [heads, seq, dim], K and V [kv_heads, seq,
/// dim], or those names with the prefix LAYER (`data=file:PATH#LAYER first=row,key,head`). Query head h reads stored
/// query head first_head + h; kv head g reads g + the kv head of first_head. Row i of entry b reads stored row
/// first_row + 97 b + i, key j stored key first_key + 97 b + j. All of these wrap around (repeat). Channels past the
/// stored dim are 0 in q and k, which leaves scores as they are, and wrap around in v; a smaller head dim cuts. The
/// stored numbers are rounded once to the problem's dtype; those beyond its largest number become that. The scale is
/// the problem's. In the text, a blank, `#` or `%` of the path is written %20, %23 or %25.
struct FileData {
  std::string path, layer;
  int64_t first_row = 0, first_key = 0, first_head = 0;
  bool operator==(const FileData&) const = default;
};

struct Case {
  Problem problem;
  Recipe recipe;
  FileData file;
  IndexMaps maps;
  std::vector<SetElement> sets;
  bool operator==(const Case&) const = default;
};

/// Canonical text; parse_case(print(c)) == c.
std::string print(const Case&);
/// Throws UsageError for what validate refuses and for maps, elements and parameters that do not fit the problem.
void validate(const Case&);
/// Throws UsageError with the offending word, the nearest right one and an example.
Case parse_case(std::string_view text);
/// "normal", "outliers", ...: the family's name in the text.
const char* name_of(Family);
/// 16 hexadecimal digits of a hash of the canonical text: the case's id.
std::string case_id(const Case&);

}  // namespace flashproof
