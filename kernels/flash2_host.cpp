// Refusals, the choice of a TileConfig, the declaration of the arithmetic, and pointers and strides.
#include "kernels/flash2_host.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <string_view>
#include <tuple>

#include "reference/philox.h"

namespace flashproof::flash2 {
namespace {

constexpr float log2_e = 1.44269502f;             // log2(e) rounded to fp32
constexpr int64_t most_heads_or_entries = 65535;  // blocks along y and z of a grid (CUDA C++ Programming Guide)

/// Whether scores are scaled and modified before the exponential, not in its argument, whose factor has to be above 0
/// and finite: times infinity, the reference 0 of a row without keys would be NaN.
bool is_scaled(const flashproof_problem& p) {
  return p.softcap != 0 || p.alibi || p.bias || p.sink || p.descale || !(p.scale > 0) ||
         !std::isfinite(p.scale * log2_e);
}

/// 2 log2(e) / cap: 2^(s times it) is e^(2 s / cap).
float softcap_argument(const flashproof_problem& p) {
  return p.softcap == 0 ? 0 : float(2 * 1.4426950408889634 / double(p.softcap));
}

bool has_tile(const TileConfig& entry, const Config& config) {
  return config.tile_m == 0 || (entry.tile_m == config.tile_m && entry.tile_n == config.tile_n &&
                                entry.stages == config.stages && entry.warps == config.warps);
}

/// What counts when two entries hold the problem; the lesser is better.
std::tuple<int, int, int> cost(const TileConfig& entry, const flashproof_problem& p) {
  const bool mostly_idle = entry.tile_m > 2 * std::max<int64_t>(p.max_seq_q, 1);
  return {int(entry.features), entry.head_dim + entry.value_dim, mostly_idle ? entry.tile_m : 0};
}

template <class Accept>
int best(std::span<const TileConfig> table, const flashproof_problem& p, Accept accept) {
  int best = -1;
  for (size_t n = 0; n < table.size(); ++n) {
    const TileConfig& entry = table[n];
    if (int(entry.dtype) != p.dtype || entry.head_dim < p.head_dim || entry.value_dim < p.value_dim || !accept(entry))
      continue;
    if (best < 0 || cost(entry, p) < cost(table[size_t(best)], p)) best = int(n);
  }
  return best;
}

void parse_tile(std::string_view text, Config& config) {
  constexpr int most = 1024;  // more is never feasible
  int* const numbers[] = {&config.tile_m, &config.tile_n, &config.stages, &config.warps};
  const char *at = text.data(), *end = at + text.size();
  for (int* number : numbers) {
    const auto [stop, error] = std::from_chars(at, end, *number);
    const bool is_last = number == numbers[3];
    if (error != std::errc() || *number < 1 || *number > most || (is_last ? stop != end : stop == end || *stop != 'x'))
      throw Rejected("config 'tile=" + std::string(text) +
                     "': a tile is MxNxSTAGESxWARPS, each from 1 to 1024, e.g. 128x64x2x4");
    if (!is_last) at = stop + 1;
  }
}

Rows rows_of(const flashproof_tensor& t, const char* name) {
  const int64_t bytes = format_of(DType(t.dtype)).bits / 8;
  const auto aligned = [&](int axis) { return t.shape[axis] <= 1 || t.stride[axis] * bytes % 16 == 0; };
  const int64_t token_bytes = t.stride[1] * bytes;
  if (token_bytes > INT32_MAX || token_bytes < INT32_MIN)
    throw Rejected(std::string("tokens of ") + name + " lie 2^31 bytes apart or more");
  return {t.data, t.stride[0] * bytes, t.stride[2] * bytes, int(token_bytes),
          uint64_t(t.data) % 16 == 0 && aligned(0) && aligned(1) && aligned(2)};
}

ByHead by_head(const flashproof_tensor& t) {
  return {static_cast<const float*>(t.data), t.rank == 2 ? t.stride[0] : 0, t.stride[t.rank == 2 ? 1 : 0]};
}

void check_tensor(const flashproof_tensor& t, const char* name, int32_t dtype) {
  const bool empty = std::any_of(t.shape, t.shape + t.rank, [](int64_t length) { return length == 0; });
  if (t.data == nullptr && !empty) throw Rejected(std::string("tensor ") + name + " is absent");
  if (t.dtype != dtype) throw Rejected(std::string("tensor ") + name + " has not the dtype that the problem gives it");
}

void check_integers(const flashproof_integers& integers, const char* name, int64_t least) {
  if (integers.data == nullptr || integers.length < least)
    throw Rejected(std::string(name) + " must hold " + std::to_string(least) + " integers or more");
}

/// What the problem speaks of is there. The numbers are in the kernel's memory: lengths and pages are taken as given.
void check_call(const flashproof_call& call) {
  const flashproof_problem& p = *call.problem;
  check_tensor(call.q, "q", p.dtype), check_tensor(call.k, "k", p.dtype), check_tensor(call.v, "v", p.dtype);
  check_tensor(call.o, "o", p.out_dtype), check_tensor(call.lse, "lse", FLASHPROOF_FP32);
  if (p.bias) check_tensor(call.bias, "bias", call.bias.dtype == FLASHPROOF_FP32 ? FLASHPROOF_FP32 : p.dtype);
  if (p.alibi) check_tensor(call.slopes, "slopes", FLASHPROOF_FP32);
  if (p.sink) check_tensor(call.sink, "sink", FLASHPROOF_FP32);
  if (p.descale) {
    check_tensor(call.q_descale, "q_descale", FLASHPROOF_FP32);
    check_tensor(call.k_descale, "k_descale", FLASHPROOF_FP32);
    check_tensor(call.v_descale, "v_descale", FLASHPROOF_FP32);
  }
  if (p.packed_q) check_integers(call.cu_seqlens_q, "cu_seqlens_q", p.batch + 1);
  if (p.packed_k) check_integers(call.cu_seqlens_k, "cu_seqlens_k", p.batch + 1);
  if (p.used_q) check_integers(call.seqused_q, "seqused_q", p.batch);
  if (p.used_k) check_integers(call.seqused_k, "seqused_k", p.batch);
  if (p.page_size > 0 && p.max_seq_k > 0) check_integers(call.page_table, "page_table", p.batch);
}

int window_side(int64_t side) { return side < 0 || side > open_side ? open_side : int(side); }

void add_modifiers(const flashproof_call& call, Call& c) {
  const flashproof_problem& p = *call.problem;
  if (p.page_size > 0) {
    c.page_table = call.page_table.data, c.pages_an_entry = call.page_table.length / p.batch;
    c.page_size = divisor_of(uint32(std::min<int64_t>(p.page_size, longest_sequence)));
  }
  c.softcap = p.softcap, c.softcap_argument = softcap_argument(p);
  if (p.alibi) c.slopes = by_head(call.slopes);
  if (p.sink) c.sink = by_head(call.sink);
  if (p.descale)
    c.q_descale = by_head(call.q_descale), c.k_descale = by_head(call.k_descale), c.v_descale = by_head(call.v_descale);
  if (p.bias) {
    c.bias = {call.bias.data, call.bias.dtype == FLASHPROOF_FP32, {}};
    for (int axis = 0; axis < 4; ++axis) c.bias.stride[axis] = call.bias.shape[axis] == 1 ? 0 : call.bias.stride[axis];
  }
  c.dropout_seed = p.dropout_seed;
  c.dropped_words = dropout_threshold(p.dropout_rate);
}

}  // namespace

std::string tile_name(const Config& c) {
  return std::to_string(c.tile_m) + "x" + std::to_string(c.tile_n) + "x" + std::to_string(c.stages) + "x" +
         std::to_string(c.warps);
}
std::string tile_name(const TileConfig& c) { return tile_name(Config{c.tile_m, c.tile_n, c.stages, c.warps}); }

std::string tile_values(std::span<const TileConfig> table) {
  std::set<std::tuple<int, int, int, int>> tiles;
  for (const TileConfig& c : table) tiles.insert({c.tile_m, c.tile_n, c.stages, c.warps});
  std::string list;
  for (const auto& [m, n, stages, warps] : tiles)
    list += (list.empty() ? "" : ",") + tile_name(Config{m, n, stages, warps});
  return list;
}

Config parse_config(const char* text, bool is_simulated) {
  Config config;
  std::set<std::string_view> keys;
  std::string_view rest = text == nullptr ? "" : text;
  while (!rest.empty()) {
    const size_t end = rest.find_first_of(", ");
    const std::string_view word = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (word.empty()) continue;
    if (!keys.insert(word.substr(0, word.find('='))).second)
      throw Rejected("config '" + std::string(word) + "': the key stands there twice");
    if (word.starts_with("tile=")) {
      parse_tile(word.substr(5), config);
    } else if (is_simulated && word.starts_with("schedule=")) {
      const auto [stop, error] = std::from_chars(word.data() + 9, word.data() + word.size(), config.schedule);
      if (error != std::errc() || stop != word.data() + word.size() || config.schedule > most_schedule)
        throw Rejected("config '" + std::string(word) + "': a schedule is an integer from 0 to " +
                       std::to_string(most_schedule));
    } else {
      throw Rejected("config '" + std::string(word) + "' is not " +
                     (is_simulated ? "tile=... or schedule=..." : "tile=..."));
    }
  }
  return config;
}

void check_problem(const flashproof_problem& p) {
  const flashproof_kernel any = describe("flash2", FLASHPROOF_HOST);
  const char* reason = flashproof_reason_against(&any, &p);
  reject_unless(reason == nullptr, reason);
  reject_unless(!p.backward, "there is no backward yet");
  reject_unless(!is_fp8(DType(p.dtype)) || (p.head_dim % 16 == 0 && p.value_dim % 16 == 0),
                "in fp8, head_dim and value_dim must be multiples of 16");
  reject_unless(p.max_seq_q <= longest_sequence && p.max_seq_k <= longest_sequence,
                "a sequence is longer than 2^29 tokens");
  reject_unless(p.heads <= most_heads_or_entries && p.batch <= most_heads_or_entries,
                "more than 65535 heads or entries");
  reject_unless(std::isfinite(softcap_argument(p)), "the softcap is so small that 2 log2(e) / cap overflows");
}

Features needed_features(const flashproof_problem& p) {
  return is_scaled(p) || p.dropout_rate != 0 || p.page_size > 0 ? Features::general : Features::plain;
}

int find(std::span<const TileConfig> table, const flashproof_problem& p, const Config& config) {
  const Features needed = needed_features(p);
  return best(table, p, [&](const TileConfig& entry) { return entry.features >= needed && has_tile(entry, config); });
}

int choose(std::span<const TileConfig> table, const flashproof_problem& p, const Config& config) {
  const int n = find(table, p, config);
  if (n < 0 && config.tile_m != 0)
    throw Rejected("tile " + tile_name(config) + " is not compiled for this dtype and these head dims");
  reject_unless(n >= 0, "no kernel is compiled for this dtype and these head dims");
  return n;
}

bool is_aligned(const Call& call) { return call.q.aligned && call.k.aligned && call.v.aligned && call.o.aligned; }

int choose_for_call(std::span<const TileConfig> table, int chosen, const Call& call, const flashproof_problem& p,
                    const Config& config) {
  if (is_aligned(call)) return chosen;
  const auto general = [&](const TileConfig& entry) {
    return entry.features == Features::general && entry.tile_n == table[size_t(chosen)].tile_n;
  };
  int n = best(table, p, [&](const TileConfig& entry) { return general(entry) && has_tile(entry, config); });
  if (n < 0) n = best(table, p, general);
  reject_unless(n >= 0, "no kernel with this tile_n is compiled for rows that are not aligned to 16 bytes");
  return n;
}

std::string arithmetic_text(const flashproof_problem& p, const TileConfig& config, const char* chip) {
  const bool fp8 = is_fp8(config.dtype);
  const std::string weights = fp8 ? "e4m3 pscale=8" : config.dtype == DType::bf16 ? "bf16" : "fp16";
  return "tile=" + std::to_string(config.tile_m) + "x" + std::to_string(config.tile_n) + " order=ascending " +
         (fp8 ? "scores=tc-pair:2 values=tc-pair:8" : "scores=tc values=tc") + " levels=1 exp=ex2 " +
         (is_scaled(p) ? "arg=sub2 scaled=yes" : "arg=fma2 scaled=no") +
         " tanh=accurate s=fp32 prescaled=no p=" + weights +
         " normalized=no dropout=output rowsum=4 owner=m16n8 splits=1 division=reciprocal log=polynomial" +
         (*chip ? std::string(" chip=") + chip : "");
}

Call call_of(const flashproof_call& call) {
  const flashproof_problem& p = *call.problem;
  check_call(call);
  Call c = {};
  c.q = rows_of(call.q, "q"), c.k = rows_of(call.k, "k"), c.v = rows_of(call.v, "v"), c.o = rows_of(call.o, "o");
  c.lse = static_cast<float*>(call.lse.data);
  c.lse_batch_stride = call.lse.stride[0], c.lse_head_stride = call.lse.stride[1],
  c.lse_token_stride = call.lse.stride[2];
  c.q_side = {call.cu_seqlens_q.data, call.seqused_q.data, int(p.max_seq_q)};
  c.k_side = {call.cu_seqlens_k.data, call.seqused_k.data, int(p.max_seq_k)};
  c.group = int(p.heads / p.kv_heads);
  c.head_dim = int(p.head_dim), c.value_dim = int(p.value_dim);
  c.top_left = p.top_left != 0;
  c.window_left = window_side(p.window_left), c.window_right = p.causal ? 0 : window_side(p.window_right);
  c.last_rows_first = c.window_right != open_side;
  c.scaled = is_scaled(p);
  c.scale = p.scale;
  c.exponent_factor = c.scaled ? log2_e : p.scale * log2_e;
  c.unit = c.scaled ? 1 : p.scale;
  c.dropout_factor = float(1 / (1 - double(p.dropout_rate)));
  add_modifiers(call, c);
  return c;
}

Grid grid_of(const flashproof_problem& p, const TileConfig& config) {
  return {unsigned((p.max_seq_q + config.tile_m - 1) / config.tile_m), unsigned(p.heads), unsigned(p.batch)};
}

flashproof_kernel describe(const char* name, flashproof_memory memory) {
  flashproof_kernel k = {};
  k.struct_size = sizeof k;
  k.abi = FLASHPROOF_ABI;
  k.name = name;
  k.version = "1";
  k.memory = memory;
  k.dtypes = 1u << FLASHPROOF_BF16 | 1u << FLASHPROOF_FP16 | 1u << FLASHPROOF_E4M3 | 1u << FLASHPROOF_E5M2;
  k.features = FLASHPROOF_FEATURE_CAUSAL | FLASHPROOF_FEATURE_WINDOW | FLASHPROOF_FEATURE_TOP_LEFT |
               FLASHPROOF_FEATURE_GQA | FLASHPROOF_FEATURE_PACKED | FLASHPROOF_FEATURE_SEQUSED |
               FLASHPROOF_FEATURE_PAGED | FLASHPROOF_FEATURE_VALUE_DIM | FLASHPROOF_FEATURE_SOFTCAP |
               FLASHPROOF_FEATURE_ALIBI | FLASHPROOF_FEATURE_BIAS | FLASHPROOF_FEATURE_SINK |
               FLASHPROOF_FEATURE_DROPOUT | FLASHPROOF_FEATURE_DESCALE | FLASHPROOF_FEATURE_STRIDES |
               FLASHPROOF_FEATURE_SCALE | FLASHPROOF_FEATURE_NEGATIVE_OFFSET;
  k.max_head_dim = 256;
  k.head_dim_multiple = 8;
  k.conventions = FLASHPROOF_DEFAULT_CONVENTIONS;
  k.conventions.deterministic = FLASHPROOF_DETERMINISTIC_ROWS;
  return k;
}

}  // namespace flashproof::flash2
