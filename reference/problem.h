// One attention problem: shapes, dtypes, lengths, mask, modifiers, scale and direction, as plain data with one text
// form.
//
// The meaning of every field and the grammar of the text form stand in reference/README.md. A problem holds no tensor
// data: see reference/recipe.h and reference/inputs.h.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/formats.h"
#include "reference/visible.h"

namespace flashproof {

constexpr int problem_grammar_version = 1;

/// How the tokens of one side (query or key) lie in memory.
struct Lengths {
  int64_t slot = 1;             ///< dense: tokens a batch entry has room for; ignored when packed is not empty
  std::vector<int64_t> packed;  ///< cu_seqlens form: the length of each entry's slot, one an entry; empty = dense
  std::vector<int64_t> used;    ///< seqused: the used length of each entry, at most its slot; empty = the whole slot
  bool operator==(const Lengths& other) const {
    return packed == other.packed && used == other.used && (!packed.empty() || slot == other.slot);
  }
};

enum class Alibi { none, per_head, per_batch_and_head };

/// Additive bias of shape [1|B, 1|H, 1|Sq, 1|Sk]; Sq, Sk are the largest used lengths of the batch.
struct Bias {
  bool batch = false, head = false, query = false, key = false;  ///< false: broadcast over that axis
  bool fp32 = false;                                             ///< else in the input dtype
  bool operator==(const Bias&) const = default;
};

struct Dropout {
  float rate = 0;     ///< 0 <= rate < 1
  uint64_t seed = 0;  ///< Philox key
  bool operator==(const Dropout&) const = default;
};

/// Keys and values in pages of `size` slots; the page table is a shuffle of all pages drawn from `seed`.
struct Paging {
  uint64_t seed = 0;
  int64_t size = 16;
  bool operator==(const Paging&) const = default;
};

/// Order of the axes in memory and unused elements between rows.
struct Layout {
  bool heads_first = false;  ///< false: [B, S, H, d]; true: [B, H, S, d] (dense only)
  int64_t row_gap = 0;       ///< elements left unused after each row of head_dim elements (row stride = d + row_gap)
  bool operator==(const Layout&) const = default;
};

enum class Direction {
  forward,
  backward,        ///< forward, then backward reading the kernel's own O and L
  backward_exact,  ///< backward alone, reading the correctly rounded exact O and L
};

struct Problem {
  DType dtype = DType::bf16;  ///< of q, k, v and dO; O, dQ, dK, dV have output_dtype(problem)
  int64_t batch = 1;
  int64_t heads = 1;
  int64_t kv_heads = 1;  ///< divides heads; query head h reads kv head h / (heads / kv_heads)
  Lengths q, k;
  int64_t head_dim = 64;       ///< of q and k
  int64_t value_dim = 64;      ///< of v and O
  std::optional<float> scale;  ///< default: 1/sqrt(head_dim) rounded to fp32
  Mask mask;                   ///< causal, window, alignment (reference/visible.h)
  float softcap = 0;           ///< 0: off
  Alibi alibi = Alibi::none;
  std::optional<Bias> bias;
  bool sink = false;
  std::optional<Dropout> dropout;
  bool descale = false;  ///< fp8: q, k, v descales per batch and kv head
  std::optional<Paging> paging;
  Layout layout;
  Direction direction = Direction::forward;
  bool operator==(const Problem&) const = default;
};

/// The scale in force, fp32.
float scale_of(const Problem&);
/// dtype of O, dQ, dK, dV: the input's; bf16 for fp8 inputs.
DType output_dtype(const Problem&);
bool has_backward(const Problem&);
/// Slot length of entry b on one side (room in memory), and its used length Sq or Sk.
int64_t slot_length(const Lengths&, int64_t b);
int64_t used_length(const Lengths&, int64_t b);
int64_t max_used_length(const Lengths&, int64_t batch);

/// Throws UsageError naming the field, its value and what is legal; sizes whose products overflow int64 or whose
/// logical tensors exceed 2^40 elements are refused here, before anything is allocated.
void validate(const Problem&);

/// The canonical text, e.g. `bf16 b2 h8/2 q1 k4096 d128 causal window=128,0`; parse_problem(print(p)) == p for each
/// legal p.
std::string print(const Problem&);
/// Throws UsageError with the offending word, the nearest right one and an example.
Problem parse_problem(std::string_view text);

}  // namespace flashproof
