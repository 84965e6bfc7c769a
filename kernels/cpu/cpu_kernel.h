// What the CPU kernels share: config text, which problems they take, their Arithmetic, and the loops over entries and
// heads.
//
// A kernel is an algorithm of reference/ for one head, with fp32 arithmetic; it has its own file and its own table.
#pragma once
#include <span>
#include <string>

#include "kernels/cpu/call_view.h"

namespace flashproof {

struct CpuTiles {
  int64_t tile_m = 64, tile_n = 64;  ///< 0: the whole side is one tile
  int64_t splits = 1;                ///< parts of the keys
  int64_t levels = 1;                ///< 2: each tile's P v from zero, then added
};
constexpr int64_t largest_tile = 256, largest_split = 64;

/// One head's algorithm. `tunables` are the config keys it takes, of tile_m, tile_n, splits, levels; the rest stay
/// `defaults`. `order` and `normalized` are words of reference/arithmetic.h.
struct HeadAlgorithm {
  std::span<const char* const> tunables;
  CpuTiles defaults;
  const char *order, *normalized;
  HeadOutputs<float> (*forward)(const RoundedOps&, const Head<float>&, const CpuTiles&);
  void (*backward)(const RoundedOps&, const Head<float>&, const CpuTiles&, const HeadOutputs<float>& stored,
                   HeadGradients<float>&);
  /// A tile of keys that a row does not see, but another row of its tile does, leaves the row's O and L as they are.
  bool hidden_tiles_change_nothing = true;
};

/// FlashAttention 2's backward, which FlashDecoding and FlashAttention 3 have too.
void backward_by_key_tiles(const RoundedOps&, const Head<float>&, const CpuTiles&, const HeadOutputs<float>& stored,
                           HeadGradients<float>&);

/// "tile_m=64,tile_n=32" (commas or spaces). Throws Rejected for another key or a value out of range.
CpuTiles parse_config(const HeadAlgorithm&, const char* config);

/// REJECTED, with a message, for whatever is not a legal problem; else OK.
flashproof_status cpu_supports(const HeadAlgorithm&, const flashproof_problem*, const char* config, char* message,
                               size_t message_size);
/// The Arithmetic's text, valid until the next call on this thread; "" for a config that the kernel does not take.
const char* cpu_arithmetic(const HeadAlgorithm&, const flashproof_problem*, const char* config);
flashproof_status cpu_forward(const HeadAlgorithm&, const flashproof_call*, const char* config, char* message,
                              size_t message_size);
flashproof_status cpu_backward(const HeadAlgorithm&, const flashproof_call*, const char* config, char* message,
                               size_t message_size);

constexpr uint64_t cpu_features =
    FLASHPROOF_FEATURE_BACKWARD | FLASHPROOF_FEATURE_CAUSAL | FLASHPROOF_FEATURE_WINDOW | FLASHPROOF_FEATURE_TOP_LEFT |
    FLASHPROOF_FEATURE_GQA | FLASHPROOF_FEATURE_PACKED | FLASHPROOF_FEATURE_SEQUSED | FLASHPROOF_FEATURE_PAGED |
    FLASHPROOF_FEATURE_VALUE_DIM | FLASHPROOF_FEATURE_SOFTCAP | FLASHPROOF_FEATURE_ALIBI | FLASHPROOF_FEATURE_BIAS |
    FLASHPROOF_FEATURE_SINK | FLASHPROOF_FEATURE_DROPOUT | FLASHPROOF_FEATURE_DESCALE | FLASHPROOF_FEATURE_STRIDES |
    FLASHPROOF_FEATURE_SCALE | FLASHPROOF_FEATURE_NEGATIVE_OFFSET;
constexpr uint32_t cpu_dtypes = 1u << FLASHPROOF_FP32 | 1u << FLASHPROOF_BF16 | 1u << FLASHPROOF_FP16 |
                                1u << FLASHPROOF_E4M3 | 1u << FLASHPROOF_E5M2;

/// The defaults, and an entry's bits depend on nothing but its own data; those of a row's O and L, where hidden tiles
/// change nothing, on no other row. Tiles begin at multiples of tile_n, and parts of split keys depend on Sk alone.
constexpr flashproof_conventions cpu_conventions(const HeadAlgorithm& algorithm) {
  flashproof_conventions conventions = FLASHPROOF_DEFAULT_CONVENTIONS;
  conventions.deterministic =
      algorithm.hidden_tiles_change_nothing ? FLASHPROOF_DETERMINISTIC_ROWS : FLASHPROOF_DETERMINISTIC_BATCH;
  return conventions;
}

/// The table of a CPU kernel; `tunables` as flashproof_kernel has them. A template, since C functions carry no data.
template <const HeadAlgorithm& algorithm>
constexpr flashproof_kernel cpu_kernel(const char* name, const char* tunables) {
  return {
      .struct_size = sizeof(flashproof_kernel),
      .abi = FLASHPROOF_ABI,
      .name = name,
      .version = "1",
      .memory = FLASHPROOF_HOST,
      .dtypes = cpu_dtypes,
      .features = cpu_features,
      .max_head_dim = 0,
      .head_dim_multiple = 1,
      .conventions = cpu_conventions(algorithm),
      .tunables = tunables,
      .arithmetic = [](const flashproof_problem* problem,
                       const char* config) { return cpu_arithmetic(algorithm, problem, config); },
      .supports = [](const flashproof_problem* problem, const char* config, char* message,
                     size_t size) { return cpu_supports(algorithm, problem, config, message, size); },
      .workspace_size = nullptr,
      .forward = [](const flashproof_call* call, const char* config, void*, char* message,
                    size_t size) { return cpu_forward(algorithm, call, config, message, size); },
      .backward = [](const flashproof_call* call, const char* config, void*, char* message,
                     size_t size) { return cpu_backward(algorithm, call, config, message, size); },
  };
}

}  // namespace flashproof
