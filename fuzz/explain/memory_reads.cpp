// STRIDE, PAGED and OVF: inputs read from the wrong place of the memory in which they stood, outputs at offsets that
// wrap.
//
// The run's memory is laid out again (fuzz/memory_plan.h); what a wrong address holds, NaN between the data included,
// is what the hypothetical kernel reads.
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <unordered_map>

#include <fmt/format.h>

#include "fuzz/explain/hypothesis.h"

namespace flashproof {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

/// Bits of the element at an offset from the tensor's first; NaN's where the offset leaves buffer and red zones.
uint32_t bits_at(const Buffer& buffer, int64_t offset) {
  const int64_t element = buffer.zone + offset;
  uint32_t bits = 0;
  if (element < 0 || (element + 1) * buffer.element_bytes > int64_t(buffer.image.size()))
    return encode(DType(buffer.view.dtype), nan);
  std::memcpy(&bits, buffer.image.data() + element * buffer.element_bytes, buffer.element_bytes);
  return bits;
}

/// Where token number t stands on the physical axes [batch, slot].
struct PhysicalToken {
  int64_t batch, slot;
};
PhysicalToken physical_token(const Buffer& buffer, int64_t t) {
  const int64_t batch_stride = std::max<int64_t>(buffer.view.stride[0], 1),
                stride = std::max<int64_t>(buffer.view.stride[1], 1);
  return {buffer.token[t] / batch_stride, buffer.token[t] % batch_stride / stride};
}

struct Operands {
  const char *id, *words;
  std::vector<std::pair<BufferId, Tensor Inputs::*>> members;
};
const std::vector<Operands>& operands() {
  static const std::vector<Operands> all = {
      {"q", "Q", {{buffer_q, &Inputs::q}}},
      {"k", "K", {{buffer_k, &Inputs::k}}},
      {"v", "V", {{buffer_v, &Inputs::v}}},
      {"kv", "K and V", {{buffer_k, &Inputs::k}, {buffer_v, &Inputs::v}}},
      {"do", "dO", {{buffer_d_o, &Inputs::d_o}}},
      {"qkv", "Q, K and V", {{buffer_q, &Inputs::q}, {buffer_k, &Inputs::k}, {buffer_v, &Inputs::v}}}};
  return all;
}

/// The strides [batch, slot, head] that a kernel takes a buffer to have.
using Strides = std::array<int64_t, 3>;
using WrongStrides = std::function<Strides(const Problem&, const Buffer&)>;

Tensor read_with(const Buffer& buffer, const Tensor& right, const Strides& strides) {
  Tensor wrong = right;
  for (size_t t = 0; t < buffer.token.size(); ++t) {
    const PhysicalToken at = physical_token(buffer, int64_t(t));
    for (int64_t h = 0; h < buffer.heads; ++h)
      for (int64_t c = 0; c < buffer.width; ++c)
        wrong.set_bits((int64_t(t) * buffer.heads + h) * buffer.width + c,
                       bits_at(buffer, at.batch * strides[0] + at.slot * strides[1] + h * strides[2] + c));
  }
  return wrong;
}

void add_strides(Hypotheses& list, const std::string& id, const std::string& words, const WrongStrides& strides) {
  for (const Operands& operand : operands())
    add_mistake(list, id + "-" + operand.id, "STRIDE", operand.words + (" " + words),
                [=](const Observation& o) -> std::optional<Mistake> {
                  std::vector<std::pair<Tensor Inputs::*, Tensor>> reads;
                  bool differ = false;
                  for (const auto& [buffer_id, member] : operand.members) {
                    const Buffer& buffer = o.memory->buffers[buffer_id];
                    if (buffer.image.empty()) return std::nullopt;
                    reads.emplace_back(member, read_with(buffer, o.in.*member, strides(o.in.problem, buffer)));
                    differ |= !(reads.back().second == o.in.*member);
                  }
                  if (!differ) return std::nullopt;
                  Mistake mistake;
                  mistake.inputs = [reads](Inputs& in) {
                    for (const auto& [member, tensor] : reads) in.*member = tensor;
                  };
                  return mistake;
                });
}

void add_stride_hypotheses(Hypotheses& list) {
  add_strides(list, "gap-ignored", "is read as if there were no gap between rows",
              [](const Problem& p, const Buffer& b) {
                const int64_t row = b.width + p.layout.row_gap;
                return Strides{b.view.stride[0] / row * b.width, b.view.stride[1] / row * b.width,
                               b.head_stride / row * b.width};
              });
  add_strides(list, "heads-last", "is read as [batch, row, head]", [](const Problem& p, const Buffer& b) {
    const int64_t row = b.width + p.layout.row_gap;
    return Strides{b.view.stride[0], b.heads * row, row};
  });
  add_strides(list, "heads-first", "is read as [batch, head, row]", [](const Problem& p, const Buffer& b) {
    const int64_t row = b.width + p.layout.row_gap;
    return Strides{b.view.stride[0], row, b.view.shape[1] * row};
  });
  add_strides(list, "batch-stride-rows", "is read with a batch stride of rows times row stride",
              [](const Problem&, const Buffer& b) {
                return Strides{b.view.shape[1] * b.view.stride[1], b.view.stride[1], b.head_stride};
              });
  add_strides(list, "batch-stride-heads", "is read with a batch stride of heads times head stride",
              [](const Problem&, const Buffer& b) {
                return Strides{b.heads * b.head_stride, b.view.stride[1], b.head_stride};
              });
  add_strides(list, "batch-stride-0", "is read as if every entry were the first", [](const Problem&, const Buffer& b) {
    return Strides{0, b.view.stride[1], b.head_stride};
  });
  add_strides(list, "head-stride-width", "is read with a head stride of the head dim",
              [](const Problem&, const Buffer& b) {
                return Strides{b.view.stride[0], b.view.stride[1], b.width};
              });
  add_strides(list, "row-stride-width", "is read with a row stride of the head dim",
              [](const Problem&, const Buffer& b) {
                return Strides{b.view.stride[0], b.width, b.head_stride};
              });
  add_strides(list, "row-stride-heads", "is read with a row stride of heads times head dim",
              [](const Problem&, const Buffer& b) {
                return Strides{b.view.stride[0], b.heads * b.width, b.head_stride};
              });
}

// ---- pages

/// The slot on the physical axis from which a kernel reads key j of entry b, given the page table.
struct Pages {
  int64_t size, columns;
  const std::vector<int32_t>& table;
  int64_t slot(int64_t b, int64_t j) const { return int64_t(table[b * columns + j / size]) * size + j % size; }
};
using WrongSlot = std::function<int64_t(const Pages&, int64_t b, int64_t j)>;

Tensor read_pages(const Inputs& in, const Buffer& buffer, const Tensor& right, const Pages& pages,
                  const WrongSlot& slot) {
  Tensor wrong = right;
  for (int64_t b = 0; b < in.problem.batch; ++b)
    for (int64_t j = 0; j < in.packing.seq_k(b); ++j) {
      const int64_t at = slot(pages, b, j), token = in.packing.k_begin[b] + j;
      for (int64_t h = 0; h < buffer.heads; ++h)
        for (int64_t c = 0; c < buffer.width; ++c)
          wrong.set_bits((token * buffer.heads + h) * buffer.width + c,
                         bits_at(buffer, at / pages.size * buffer.view.stride[0] +
                                             at % pages.size * buffer.view.stride[1] + h * buffer.head_stride + c));
    }
  return wrong;
}

void add_pages(Hypotheses& list, const std::string& id, const std::string& words, const WrongSlot& slot) {
  for (const Operands& operand : {operands()[1], operands()[2], operands()[3]})
    add_mistake(list, id + "-" + operand.id, "PAGED", operand.words + (": " + words),
                [=](const Observation& o) -> std::optional<Mistake> {
                  if (!o.in.problem.paging) return std::nullopt;
                  const Buffer& table = o.memory->buffers[buffer_page_table];
                  const Pages pages{o.in.problem.paging->size, table.view.shape[1], table.host};
                  std::vector<std::pair<Tensor Inputs::*, Tensor>> reads;
                  bool differ = false;
                  for (const auto& [buffer_id, member] : operand.members) {
                    reads.emplace_back(member,
                                       read_pages(o.in, o.memory->buffers[buffer_id], o.in.*member, pages, slot));
                    differ |= !(reads.back().second == o.in.*member);
                  }
                  if (!differ) return std::nullopt;
                  Mistake mistake;
                  mistake.inputs = [reads](Inputs& in) {
                    for (const auto& [member, tensor] : reads) in.*member = tensor;
                  };
                  return mistake;
                });
}

void add_page_hypotheses(Hypotheses& list) {
  for (const int64_t run : {2, 4, 8, 16, 32, 64, 128, 256}) {
    add_pages(list, fmt::format("one-page-for-{}-keys", run),
              fmt::format("one page id is taken for {} keys, which may span several pages", run),
              [run](const Pages& pages, int64_t b, int64_t j) {
                return pages.slot(b, j / run * run) / pages.size * pages.size + j % pages.size;
              });
    add_pages(list, fmt::format("read-on-for-{}-keys", run),
              fmt::format("{} keys are read on from the place of the first, which may lie in several pages", run),
              [run](const Pages& pages, int64_t b, int64_t j) { return pages.slot(b, j / run * run) + j % run; });
  }
  add_pages(list, "pages-in-order", "the page table is ignored: pages in order",
            [](const Pages& pages, int64_t b, int64_t j) { return b * (pages.columns - 1) * pages.size + j; });
  add_pages(list, "pages-of-entry-0", "the page table of entry 0 is taken for every entry",
            [](const Pages& pages, int64_t, int64_t j) { return pages.slot(0, j); });
  add_pages(list, "pages-first-only", "the first page id is taken for all keys: they are read on from it",
            [](const Pages& pages, int64_t b, int64_t j) { return pages.slot(b, 0) + j; });
  add_pages(list, "page-repeated", "the first page is read for every page",
            [](const Pages& pages, int64_t b, int64_t j) { return pages.slot(b, j % pages.size); });
  add_pages(list, "next-page", "the page id after the right one is taken",
            [](const Pages& pages, int64_t b, int64_t j) {
              const int64_t entry = std::min(b * pages.columns + j / pages.size + 1, int64_t(pages.table.size()) - 1);
              return std::min<int64_t>(pages.table[entry], int64_t(1) << 40) * pages.size + j % pages.size;
            });
}

// ---- offsets that wrap

/// An output whose offsets are taken modulo 2^bits: the last element written to a place stays.
void add_wrapping(Hypotheses& list, OutputId id, BufferId buffer_id, int bits, bool by_row) {
  const auto predict = [=](const Observation& o) -> std::optional<Prediction> {
    const Buffer& buffer = o.memory->buffers[buffer_id];
    const ObservedOutput& output = o[id];
    const int64_t size = int64_t(1) << bits;
    if (output.state.empty() || buffer.elements <= size) return std::nullopt;
    std::unordered_map<int64_t, double> written;
    const int64_t tokens = int64_t(buffer.token.size());
    const auto for_each = [&](auto visit) {
      for (int64_t h = 0; h < buffer.heads; ++h)
        for (int64_t t = 0; t < tokens; ++t)
          for (int64_t c = 0; c < buffer.width; ++c)
            visit(buffer.token[t] + h * buffer.head_stride, c, (t * buffer.heads + h) * buffer.width + c);
    };
    for_each([&](int64_t row, int64_t c, int64_t index) {
      written[by_row ? row % size + c : (row + c) % size] = output.truth[index];
    });
    Prediction prediction;
    prediction.values[id].assign(output.truth.size(), nan);
    for_each([&](int64_t row, int64_t c, int64_t index) {
      const auto found = written.find(row + c);
      if (found != written.end()) prediction.values[id][index] = found->second;
    });
    return prediction;
  };
  list.push_back({fmt::format("{}-offset-wraps-{}{}", name_of(id), bits, by_row ? "" : "-by-element"),
                  "OVF",
                  fmt::format("the offset of a row of {} wraps at 2^{}", name_of(id), bits),
                  predict,
                  {},
                  by_row ? 0 : 0.01,
                  false});
}

}  // namespace

void add_memory_hypotheses(Hypotheses& list) {
  add_stride_hypotheses(list);
  add_page_hypotheses(list);
  const std::pair<OutputId, BufferId> outputs[] = {{OutputId::o, buffer_o},
                                                   {OutputId::lse, buffer_lse},
                                                   {OutputId::dq, buffer_dq},
                                                   {OutputId::dk, buffer_dk},
                                                   {OutputId::dv, buffer_dv}};
  for (const auto& [id, buffer] : outputs)
    for (const int bits : {15, 16})
      for (const bool by_row : {true, false}) add_wrapping(list, id, buffer, bits, by_row);
}

}  // namespace flashproof
