// Builds the physical buffers of a case, and reads them after the call. See memory_plan.h for the layout.
#include "fuzz/memory_plan.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>

#include "fuzz/kernel_library.h"
#include "reference/errors.h"

namespace flashproof {
namespace {

constexpr int64_t least_zone = 512;  // elements; at least two tokens, so that a row written one too far lands inside
constexpr int32_t no_page = 0x7fffffff;
constexpr int64_t spare_pages = 3;

uint32_t hash(uint64_t seed, uint64_t buffer, uint64_t element) {
  uint64_t x = seed * 0x9e3779b97f4a7c15u + buffer * 0xd1b54a32d192ed03u + element;
  // The finaliser of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return uint32_t((x ^ x >> 31) >> 16);
}

uint32_t sign_bit(DType dtype) { return 1u << (format_of(dtype).bits - 1); }

/// A NaN of any payload and sign.
uint32_t any_nan(DType dtype, uint32_t random) {
  const uint32_t first = infinity_bits(dtype) + 1, last = sign_bit(dtype) - 1;
  return (first + random % (last - first + 1)) | (random >> 31 ? sign_bit(dtype) : 0);
}

/// A multiple of 1/16 from -2 to 2, exact in every format down to 4 significand bits but for rounding.
uint32_t noise(DType dtype, uint32_t random) { return encode(dtype, (int(random % 65) - 32) / 16.0); }

/// A signalling NaN with an odd payload; outputs are never in 8 bits.
uint32_t poison(DType dtype, uint32_t random) {
  const uint32_t quiet = 1u << (format_of(dtype).precision - 2);
  return infinity_bits(dtype) | (random & (quiet - 1)) | 1 | (random >> 31 ? sign_bit(dtype) : 0);
}

void put(std::vector<uint8_t>& bytes, int64_t element, int64_t element_bytes, uint32_t bits) {
  std::memcpy(bytes.data() + element * element_bytes, &bits, element_bytes);  // little-endian
}

int64_t product(std::initializer_list<int64_t> factors) {
  int64_t result = 1;
  for (int64_t factor : factors)
    if (__builtin_mul_overflow(result, factor, &result))
      throw UsageError(
          "the sizes in memory overflow: slots, heads and head dim with row gap multiply to more than 2^63");
  return result;
}

// ---- where tokens stand

/// The physical token axis [batch, slot] of one side, and where each logical token stands among batch * slot.
struct Side {
  int64_t batch = 1, slot = 0;
  std::vector<int64_t> position;
};

Side compact_side(int64_t total) {
  Side side{1, total, std::vector<int64_t>(total)};
  std::iota(side.position.begin(), side.position.end(), 0);
  return side;
}

Side slotted_side(const Lengths& lengths, int64_t batch) {
  Side side;
  const bool packed = !lengths.packed.empty();
  if (packed) {
    side.slot = std::accumulate(lengths.packed.begin(), lengths.packed.end(), int64_t(0));
  } else {
    side.batch = batch, side.slot = lengths.slot;
    product({batch, lengths.slot});
  }
  int64_t begin = 0;
  for (int64_t b = 0; b < batch; begin += slot_length(lengths, b++))
    for (int64_t i = 0; i < used_length(lengths, b); ++i) side.position.push_back(begin + i);
  return side;
}

/// Pages in shuffled order; `table` is [batch, columns]. Of an odd seed at least one entry of each row is unused; of an
/// even one the row is as long as the longest slot needs, and behind the last stands a red zone: who looks up a page
/// for the keys that fill up a tile then reads another entry's page or past the table.
Side paged_side(const Problem& p, std::vector<int32_t>& table) {
  const int64_t page = p.paging->size;
  const auto pages_of = [&](int64_t tokens) { return (tokens + page - 1) / page; };
  const int64_t unused = int64_t(p.paging->seed % 2);
  int64_t pages = spare_pages, columns = 1;
  for (int64_t b = 0; b < p.batch; ++b) {
    pages += pages_of(used_length(p.k, b));
    columns = std::max(columns, pages_of(slot_length(p.k, b)) + unused);
  }
  if (product({p.batch, columns}) > no_page || pages > no_page)
    throw UsageError("the page table is too large: page numbers are 32-bit integers");
  std::vector<int32_t> order(pages);
  std::iota(order.begin(), order.end(), 0);
  for (int64_t i = pages - 1; i > 0; --i) std::swap(order[i], order[hash(p.paging->seed, 0, i) % (i + 1)]);

  Side side{pages, page, {}};
  table.assign(p.batch * columns, no_page);
  int64_t next = 0;
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t j = 0; j < used_length(p.k, b); ++j) {
      int32_t& entry = table[b * columns + j / page];
      if (j % page == 0) entry = order[next++];
      side.position.push_back(entry * page + j % page);
    }
  return side;
}

// ---- buffers

int64_t zone_for(int64_t token_elements) {
  const int64_t elements = std::max(least_zone, 2 * token_elements);
  return (elements + 255) / 256 * 256;  // the tensor starts at a multiple of 256 bytes
}

Buffer buffer_of(const char* name, int32_t dtype, int64_t element_bytes, int64_t elements, int64_t token_elements) {
  Buffer buffer;
  buffer.name = name;
  buffer.view.dtype = dtype;
  buffer.element_bytes = element_bytes;
  buffer.elements = elements;
  buffer.zone = zone_for(token_elements);
  return buffer;
}

int64_t bytes_of(DType dtype) { return format_of(dtype).bits / 8; }

/// [batch, slot, heads, width], in memory as is or as [batch, heads, slot, width], rows `gap` elements apart.
Buffer rows(const char* name, DType dtype, const Side& side, int64_t heads, int64_t width, bool heads_first,
            int64_t gap) {
  int64_t row;
  if (__builtin_add_overflow(width, gap, &row)) product({INT64_MAX, 2});
  Buffer buffer =
      buffer_of(name, int(dtype), bytes_of(dtype), product({side.batch, side.slot, heads, row}), product({heads, row}));
  buffer.heads = heads, buffer.width = width;
  buffer.head_stride = heads_first ? side.slot * row : row;
  const int64_t token_stride = heads_first ? row : heads * row;
  for (int64_t position : side.position)
    buffer.token.push_back(position / std::max<int64_t>(side.slot, 1) * side.slot * heads * row +
                           position % std::max<int64_t>(side.slot, 1) * token_stride);
  buffer.view.rank = 4;
  const int64_t shape[] = {side.batch, side.slot, heads, width};
  const int64_t stride[] = {side.slot * heads * row, token_stride, buffer.head_stride, 1};
  std::copy_n(shape, 4, buffer.view.shape);
  std::copy_n(stride, 4, buffer.view.stride);
  return buffer;
}

/// L: [batch, heads, slot].
Buffer row_statistics(const char* name, const Side& side, int64_t heads) {
  Buffer buffer = rows(name, DType::fp32, side, heads, 1, true, 0);
  buffer.view.rank = 3;
  const int64_t shape[] = {side.batch, heads, side.slot}, stride[] = {heads * side.slot, side.slot, 1};
  std::copy_n(shape, 3, buffer.view.shape);
  std::copy_n(stride, 3, buffer.view.stride);
  return buffer;
}

/// Row-major and without gaps.
Buffer plain(const char* name, int32_t dtype, int64_t element_bytes, std::span<const int64_t> shape) {
  int64_t elements = 1;
  for (int64_t extent : shape) elements = product({elements, extent});
  Buffer buffer = buffer_of(name, dtype, element_bytes, elements, 0);
  buffer.token = {0};
  buffer.width = elements;
  buffer.view.rank = int(shape.size());
  int64_t stride = 1;
  for (int axis = int(shape.size()) - 1; axis >= 0; --axis) {
    buffer.view.shape[axis] = shape[axis];
    buffer.view.stride[axis] = stride;
    stride *= shape[axis];
  }
  return buffer;
}

Buffer integers(const char* name, std::vector<int32_t> values) {
  const int64_t length = values.size();
  Buffer buffer = plain(name, FLASHPROOF_INT32, 4, {&length, 1});
  buffer.host = std::move(values);
  return buffer;
}

Buffer floats(const char* name, std::initializer_list<int64_t> shape) {
  return plain(name, FLASHPROOF_FP32, 4, {shape.begin(), shape.size()});
}

std::vector<int32_t> narrowed(const std::vector<int64_t>& values) { return {values.begin(), values.end()}; }

std::vector<int32_t> running_sum(const std::vector<int64_t>& lengths) {
  std::vector<int32_t> sums = {0};
  for (int64_t length : lengths) sums.push_back(int32_t(sums.back() + length));
  return sums;
}

/// All buffers with their sizes and views; no image yet.
void lay_out(MemoryPlan& plan, const Inputs& in, size_t workspace_bytes) {
  const Problem& p = in.problem;
  auto& at = plan.buffers;
  const DType out = output_dtype(p);
  const auto [first, gap] = p.layout;
  std::vector<int32_t> table;
  const Side q = slotted_side(p.q, p.batch);
  const Side k = p.paging ? paged_side(p, table) : slotted_side(p.k, p.batch);
  if (std::max({q.slot, k.slot}) > INT32_MAX)
    throw UsageError("a sequence longer than 2^31 - 1: lengths are 32-bit integers");

  at[buffer_q] = rows("q", p.dtype, q, p.heads, p.head_dim, first, gap);
  at[buffer_k] = rows("k", p.dtype, k, p.kv_heads, p.head_dim, first, gap);
  at[buffer_v] = rows("v", p.dtype, k, p.kv_heads, p.value_dim, first, gap);
  at[buffer_o] = rows("o", out, q, p.heads, p.value_dim, first, gap);
  at[buffer_lse] = row_statistics("lse", q, p.heads);
  const std::vector<int64_t>& bias_shape = in.bias.shape;
  if (p.bias) at[buffer_bias] = plain("bias", int(in.bias.dtype), bytes_of(in.bias.dtype), bias_shape);
  if (p.alibi == Alibi::per_head) at[buffer_slopes] = floats("slopes", {p.heads});
  if (p.alibi == Alibi::per_batch_and_head) at[buffer_slopes] = floats("slopes", {p.batch, p.heads});
  if (p.sink) at[buffer_sink] = floats("sink", {p.heads});
  if (p.descale) {
    at[buffer_q_descale] = floats("q_descale", {p.batch, p.kv_heads});
    at[buffer_k_descale] = floats("k_descale", {p.batch, p.kv_heads});
    at[buffer_v_descale] = floats("v_descale", {p.batch, p.kv_heads});
  }
  if (!p.q.packed.empty()) at[buffer_cu_seqlens_q] = integers("cu_seqlens_q", running_sum(p.q.packed));
  if (!p.k.packed.empty()) at[buffer_cu_seqlens_k] = integers("cu_seqlens_k", running_sum(p.k.packed));
  if (!p.q.used.empty()) at[buffer_seqused_q] = integers("seqused_q", narrowed(p.q.used));
  if (!p.k.used.empty()) at[buffer_seqused_k] = integers("seqused_k", narrowed(p.k.used));
  if (p.paging) at[buffer_page_table] = integers("page_table", std::move(table));
  at[buffer_workspace] = buffer_of("workspace", FLASHPROOF_INT32, 1, int64_t(workspace_bytes), 0);
  if (!has_backward(p)) return;

  const Side dk = p.paging ? compact_side(in.packing.total_k()) : k;
  at[buffer_d_o] = rows("d_o", p.dtype, q, p.heads, p.value_dim, first, gap);
  at[buffer_dq] = rows("dq", out, q, p.heads, p.head_dim, first, gap);
  at[buffer_dk] = rows("dk", out, dk, p.kv_heads, p.head_dim, first, gap);
  at[buffer_dv] = rows("dv", out, dk, p.kv_heads, p.value_dim, first, gap);
  if (p.sink) at[buffer_dsink] = floats("dsink", {p.heads});
  if (p.bias) at[buffer_dbias] = plain("dbias", FLASHPROOF_FP32, 4, bias_shape);
}

// ---- content

bool is_output(int id) { return id >= buffer_o && id <= buffer_dbias; }

/// What element `e` of the image holds before the data is written to it.
uint32_t outside(int id, const Buffer& buffer, const Placement& placement, int64_t e) {
  if (id == buffer_workspace) return poison(DType::fp32, hash(placement.poison, id, e / 4)) >> 8 * (e % 4) & 0xff;
  const uint32_t random = hash(placement.poison, id, e);
  if (buffer.view.dtype == FLASHPROOF_INT32) return random;
  const DType dtype = DType(buffer.view.dtype);
  if (is_output(id)) return poison(dtype, random);
  return placement.nan_outside ? any_nan(dtype, random) : noise(dtype, random);
}

void fill(int id, Buffer& buffer, const Placement& placement) {
  const int64_t count = buffer.elements + 2 * buffer.zone;
  buffer.image.resize(count * buffer.element_bytes);
  for (int64_t e = 0; e < count; ++e) put(buffer.image, e, buffer.element_bytes, outside(id, buffer, placement, e));
}

/// Calls visit(logical row, byte offset of the row in the image); a row is `width` elements.
template <class Visit>
void each_row(const Buffer& buffer, Visit visit) {
  for (size_t t = 0; t < buffer.token.size(); ++t)
    for (int64_t h = 0; h < buffer.heads; ++h)
      visit(int64_t(t) * buffer.heads + h,
            (buffer.zone + buffer.token[t] + h * buffer.head_stride) * buffer.element_bytes);
}

void scatter(Buffer& buffer, const void* logical) {
  const int64_t bytes = buffer.width * buffer.element_bytes;
  if (bytes == 0) return;
  each_row(buffer, [&](int64_t row, int64_t offset) {
    std::memcpy(buffer.image.data() + offset, static_cast<const uint8_t*>(logical) + row * bytes, bytes);
  });
}

/// [total_k]: 1 where no row of any head sees the key.
std::vector<uint8_t> hidden_keys(const Inputs& in) {
  std::vector<uint8_t> hidden(in.packing.total_k(), 1);
  for (int64_t b = 0; b < in.problem.batch; ++b) {
    const int64_t sq = in.packing.seq_q(b), sk = in.packing.seq_k(b), begin = in.packing.k_begin[b];
    for (int64_t i = 0; i < sq; ++i) {
      const KeyRange keys = visible_keys(in.problem.mask, sq, sk, i);
      for (int64_t j = keys.begin; j < keys.end; ++j)
        for (int64_t h = 0; hidden[begin + j] && h < (in.problem.bias ? in.problem.heads : 1); ++h)
          if (sees(in, b, h, i, j)) hidden[begin + j] = 0;
    }
  }
  return hidden;
}

/// Whether row (b, h, i) sees any key.
bool sees_any(const Inputs& in, int64_t b, int64_t h, int64_t i) {
  const KeyRange keys = visible_keys(in.problem.mask, in.packing.seq_q(b), in.packing.seq_k(b), i);
  if (!in.problem.bias) return keys.begin < keys.end;
  for (int64_t j = keys.begin; j < keys.end; ++j)
    if (sees(in, b, h, i, j)) return true;
  return false;
}

std::vector<uint8_t> rows_without_keys(const Inputs& in) {
  std::vector<uint8_t> without;
  for (int64_t b = 0; b < in.problem.batch; ++b)
    for (int64_t i = 0; i < in.packing.seq_q(b); ++i)
      for (int64_t h = 0; h < in.problem.heads; ++h) without.push_back(!in.problem.sink && !sees_any(in, b, h, i));
  return without;
}

/// What a hidden key holds. Backward multiplies p = 0 by <dO, v_j> and by softcap's derivative, which must stay finite
/// for the product to be 0: there 2^63 stands for the largest number, as 2^63 times dO up to 2^48 summed over 2^16
/// channels is below the largest fp32 number.
uint32_t hidden_bits(const Problem& p, bool bears_nan, uint32_t random) {
  if (bears_nan) return any_nan(p.dtype, random);
  const bool too_large = has_backward(p) && format_of(p.dtype).largest > 0x1p63;
  return (too_large ? encode(p.dtype, 0x1p63) : largest_bits(p.dtype)) | (random & 1 ? sign_bit(p.dtype) : 0);
}

void fill_hidden(MemoryPlan& plan, const Inputs& in, const Placement& placement) {
  const std::vector<uint8_t> hidden = hidden_keys(in);
  for (int id : {buffer_k, buffer_v}) {
    Buffer& buffer = plan.buffers[id];
    each_row(buffer, [&](int64_t row, int64_t offset) {
      if (!hidden[row / buffer.heads]) return;
      for (int64_t c = 0; c < buffer.width; ++c) {
        const int64_t e = offset / buffer.element_bytes + c;
        put(buffer.image, e, buffer.element_bytes,
            hidden_bits(in.problem, plan.conventions.bears_hidden_nan, hash(placement.poison, id, e)));
      }
    });
  }
}

void fill_inputs(MemoryPlan& plan, const Inputs& in) {
  auto& at = plan.buffers;
  const auto give = [&](BufferId id, const void* data) {
    if (!at[id].image.empty()) scatter(at[id], data);
  };
  give(buffer_q, in.q.bytes.data());
  give(buffer_k, in.k.bytes.data());
  give(buffer_v, in.v.bytes.data());
  give(buffer_d_o, in.d_o.bytes.data());
  give(buffer_bias, in.bias.bytes.data());
  give(buffer_slopes, in.slopes.data());
  give(buffer_sink, in.sinks.data());
  give(buffer_q_descale, in.q_descale.data());
  give(buffer_k_descale, in.k_descale.data());
  give(buffer_v_descale, in.v_descale.data());
  for (Buffer& buffer : at)
    if (!buffer.host.empty()) scatter(buffer, buffer.host.data());
}

void place(MemoryPlan& plan, Buffer& buffer) {
  buffer.memory = Allocation(plan.memory, buffer.image.size());
  buffer.memory.write(buffer.image.data());
  buffer.view.data = buffer.memory.data() + buffer.zone * buffer.element_bytes;
  buffer.view.memory = plan.memory;
}

void require_budget(__int128 needed) {
  if (needed > memory_budget())
    throw UnavailableError("the case needs " + std::to_string(double(needed) / (1 << 30)) + " GiB of memory, " +
                           std::to_string(double(memory_budget()) / (1 << 30)) + " GiB are there");
}

void check_budget(const MemoryPlan& plan) {
  __int128 bytes = 0;
  for (const Buffer& buffer : plan.buffers)
    bytes += (__int128(buffer.elements) + 2 * buffer.zone) * buffer.element_bytes;
  require_budget(3 * bytes);  // the image, the buffer itself, and what is read back
}

flashproof_integers integers_of(const Buffer& buffer) {
  if (buffer.host.empty()) return {};
  return {static_cast<const int32_t*>(buffer.view.data), buffer.host.data(), int64_t(buffer.host.size())};
}

}  // namespace

int64_t memory_budget() {
  const int64_t physical = int64_t(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  return limit.rlim_cur == RLIM_INFINITY ? physical : std::min<int64_t>(physical, limit.rlim_cur);
}

void require_memory_for(const Problem& p) {
  const flashproof_problem n = abi_problem(p);
  const __int128 rows = __int128(n.total_q) * n.heads, keys = __int128(n.total_k) * n.kv_heads;
  __int128 elements = rows * (n.head_dim + n.value_dim + 1) + keys * (n.head_dim + n.value_dim);
  if (p.bias)
    elements += __int128(p.bias->batch ? n.batch : 1) * (p.bias->head ? n.heads : 1) *
                (p.bias->query ? n.max_seq_q : 1) * (p.bias->key ? n.max_seq_k : 1);
  require_budget(elements * format_of(p.dtype).bits / 8 * (has_backward(p) ? 2 : 1));
}

MemoryPlan plan_memory(const Inputs& in, const Placement& placement, const flashproof_kernel& kernel,
                       size_t workspace_bytes) {
  MemoryPlan plan;
  plan.memory = flashproof_memory(kernel.memory);
  plan.problem = abi_problem(in.problem);
  plan.conventions = kernel.conventions;
  lay_out(plan, in, workspace_bytes);
  check_budget(plan);
  for (int id = 0; id < buffer_count; ++id)
    if (plan.buffers[id].element_bytes > 0) fill(id, plan.buffers[id], placement);
  fill_inputs(plan, in);
  if (placement.largest_hidden) fill_hidden(plan, in, placement);
  plan.row_without_keys = rows_without_keys(in);
  for (Buffer& buffer : plan.buffers)
    if (!buffer.image.empty()) place(plan, buffer);
  return plan;
}

flashproof_call forward_call(const MemoryPlan& plan) {
  const auto& at = plan.buffers;
  flashproof_call call = {};
  call.struct_size = sizeof call;
  call.problem = &plan.problem;
  call.q = at[buffer_q].view, call.k = at[buffer_k].view, call.v = at[buffer_v].view;
  call.o = at[buffer_o].view, call.lse = at[buffer_lse].view;
  call.bias = at[buffer_bias].view, call.slopes = at[buffer_slopes].view, call.sink = at[buffer_sink].view;
  call.q_descale = at[buffer_q_descale].view, call.k_descale = at[buffer_k_descale].view;
  call.v_descale = at[buffer_v_descale].view;
  call.cu_seqlens_q = integers_of(at[buffer_cu_seqlens_q]), call.cu_seqlens_k = integers_of(at[buffer_cu_seqlens_k]);
  call.seqused_q = integers_of(at[buffer_seqused_q]), call.seqused_k = integers_of(at[buffer_seqused_k]);
  call.page_table = integers_of(at[buffer_page_table]);
  call.workspace = at[buffer_workspace].view.data;
  call.workspace_size = at[buffer_workspace].elements;
  return call;
}

flashproof_call backward_call(const MemoryPlan& plan) {
  const auto& at = plan.buffers;
  flashproof_call call = forward_call(plan);
  call.d_o = at[buffer_d_o].view;
  call.dq = at[buffer_dq].view, call.dk = at[buffer_dk].view, call.dv = at[buffer_dv].view;
  call.dsink = at[buffer_dsink].view, call.dbias = at[buffer_dbias].view;
  return call;
}

void keep_forward(MemoryPlan& plan) {
  for (int id : {buffer_o, buffer_lse}) plan.buffers[id].image = plan.buffers[id].after;
}

void give_forward(MemoryPlan& plan, const Tensor& o, const Tensor& lse, const Placement& placement) {
  for (int id : {buffer_o, buffer_lse}) {
    Buffer& buffer = plan.buffers[id];
    for (int64_t e = 0; e < buffer.elements + 2 * buffer.zone; ++e) {
      const uint32_t random = hash(placement.poison, id, e);
      const DType dtype = DType(buffer.view.dtype);
      put(buffer.image, e, buffer.element_bytes, placement.nan_outside ? any_nan(dtype, random) : noise(dtype, random));
    }
    scatter(buffer, (id == buffer_o ? o : lse).bytes.data());
    buffer.memory.write(buffer.image.data());
  }
}

void poison_workspace(MemoryPlan& plan, uint64_t seed) {
  Buffer& buffer = plan.buffers[buffer_workspace];
  fill(buffer_workspace, buffer, {.poison = seed});
  buffer.memory.write(buffer.image.data());
}

void read_back(MemoryPlan& plan) {
  for (Buffer& buffer : plan.buffers)
    if (!buffer.image.empty()) {
      buffer.after.resize(buffer.image.size());
      buffer.memory.read(buffer.after.data());
    }
}

}  // namespace flashproof
