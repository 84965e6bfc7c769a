// What a call did to its buffers (memory_plan.h): writes outside the tensors, to inputs and past the used lengths,
// elements left unwritten; and the logical outputs.
#include <algorithm>
#include <cstring>
#include <optional>

#include "fuzz/memory_plan.h"
#include "oracle/verdict.h"

namespace flashproof {
namespace {

constexpr struct {
  BufferId buffer;
  OutputId output;
  bool backward;
} outputs_of_calls[output_count] = {
    {buffer_o, OutputId::o, false},        {buffer_lse, OutputId::lse, false}, {buffer_dq, OutputId::dq, true},
    {buffer_dk, OutputId::dk, true},       {buffer_dv, OutputId::dv, true},    {buffer_dsink, OutputId::dsink, true},
    {buffer_dbias, OutputId::dbias, true},
};

void note(std::string& finding, const std::string& what) {
  if (finding.empty()) finding = what;
}

bool changed(const Buffer& buffer, int64_t element) {
  const int64_t offset = element * buffer.element_bytes;
  return std::memcmp(buffer.image.data() + offset, buffer.after.data() + offset, buffer.element_bytes) != 0;
}

/// First changed element of [begin, end) of the image.
std::optional<int64_t> first_change(const Buffer& buffer, int64_t begin, int64_t end) {
  const auto first = buffer.image.begin() + begin * buffer.element_bytes;
  const auto last = buffer.image.begin() + end * buffer.element_bytes;
  const auto found = std::mismatch(first, last, buffer.after.begin() + begin * buffer.element_bytes).first;
  if (found == last) return std::nullopt;
  return (found - buffer.image.begin()) / buffer.element_bytes;
}

void inspect_zones(const Buffer& buffer, MemoryReport& report) {
  const int64_t begin = buffer.zone, end = buffer.zone + buffer.elements;
  if (const auto e = first_change(buffer, 0, begin))
    note(report.red_zone,
         std::string(buffer.name) + ": written " + std::to_string(begin - *e) + " elements before its start");
  if (const auto e = first_change(buffer, end, end + buffer.zone))
    note(report.red_zone,
         std::string(buffer.name) + ": written " + std::to_string(*e - end) + " elements past its end");
}

void inspect_unchanged(const Buffer& buffer, std::string& finding) {
  if (const auto e = first_change(buffer, buffer.zone, buffer.zone + buffer.elements))
    note(finding, std::string(buffer.name) + ": element " + std::to_string(*e - buffer.zone) + " was written");
}

/// What each element between the red zones is.
enum Region : uint8_t { gap, tail, data };

std::vector<Region> regions_of(const Buffer& buffer) {
  const flashproof_tensor& view = buffer.view;
  std::vector<Region> region(buffer.elements, gap);
  int64_t shape[4] = {1, 1, 1, 1}, stride[4] = {};
  for (int axis = 0; axis < view.rank; ++axis) {
    shape[axis] = view.shape[axis];
    stride[axis] = view.stride[axis];
  }
  for (int64_t a = 0; a < shape[0]; ++a)
    for (int64_t b = 0; b < shape[1]; ++b)
      for (int64_t c = 0; c < shape[2]; ++c)
        for (int64_t d = 0; d < shape[3]; ++d)
          region[a * stride[0] + b * stride[1] + c * stride[2] + d * stride[3]] = tail;
  for (int64_t token : buffer.token)
    for (int64_t h = 0; h < buffer.heads; ++h)
      std::fill_n(region.begin() + token + h * buffer.head_stride, buffer.width, data);
  return region;
}

/// Gaps untouched; tails as the convention says.
void inspect_outside(const Buffer& buffer, int32_t convention, MemoryReport& report) {
  const std::vector<Region> region = regions_of(buffer);
  for (int64_t e = 0; e < buffer.elements; ++e) {
    const int64_t at = buffer.zone + e;
    if (region[e] == gap && changed(buffer, at))
      note(report.red_zone,
           std::string(buffer.name) + ": element " + std::to_string(e) + " in the gap between rows was written");
    if (region[e] != tail || convention == FLASHPROOF_TAIL_UNDEFINED) continue;
    uint32_t bits = 0;
    std::memcpy(&bits, buffer.after.data() + at * buffer.element_bytes, buffer.element_bytes);
    if (convention == FLASHPROOF_TAIL_UNTOUCHED && changed(buffer, at))
      note(report.tail_touched,
           std::string(buffer.name) + ": element " + std::to_string(e) + " past the used length was written");
    if (convention == FLASHPROOF_TAIL_ZERO && decode(DType(buffer.view.dtype), bits) != 0)
      note(report.tail_touched,
           std::string(buffer.name) + ": element " + std::to_string(e) + " past the used length is not zero");
  }
}

/// Whether the kernel declares this row of O or L undefined, so that it may stay unwritten.
bool may_stay(const MemoryPlan& plan, OutputId id, int64_t row) {
  if (id == OutputId::o) return plan.conventions.empty_o == FLASHPROOF_EMPTY_O_UNDEFINED && plan.row_without_keys[row];
  if (id != OutputId::lse) return false;
  return plan.conventions.lse_base == FLASHPROOF_LSE_NONE ||
         (plan.conventions.empty_lse == FLASHPROOF_EMPTY_LSE_UNDEFINED && plan.row_without_keys[row]);
}

void inspect_written(const MemoryPlan& plan, const Problem& p, const Buffer& buffer, OutputId id,
                     std::string& finding) {
  for (size_t t = 0; finding.empty() && t < buffer.token.size(); ++t)
    for (int64_t h = 0; finding.empty() && h < buffer.heads; ++h) {
      const int64_t row = int64_t(t) * buffer.heads + h, first = buffer.zone + buffer.token[t] + h * buffer.head_stride;
      if (may_stay(plan, id, row)) continue;
      for (int64_t c = 0; c < buffer.width; ++c)
        if (!changed(buffer, first + c))
          return note(finding, print(locate(p, id, row * buffer.width + c)) + " was not written");
    }
}

}  // namespace

void inspect(const MemoryPlan& plan, const Problem& p, bool backward, MemoryReport& report) {
  std::array<bool, buffer_count> is_output{};
  for (const auto& call : outputs_of_calls) {
    const Buffer& buffer = plan.buffers[call.buffer];
    if (call.backward != backward || buffer.image.empty()) continue;
    is_output[call.buffer] = true;
    inspect_outside(buffer, plan.conventions.tail, report);
    inspect_written(plan, p, buffer, call.output, report.unwritten);
  }
  for (int id = 0; id < buffer_count; ++id) {
    const Buffer& buffer = plan.buffers[id];
    if (buffer.image.empty()) continue;
    inspect_zones(buffer, report);
    // The gradients' buffers are no part of a forward call: a write there went astray.
    const bool astray = !backward && id >= buffer_dq && id <= buffer_dbias;
    if (!is_output[id] && id != buffer_workspace)
      inspect_unchanged(buffer, astray ? report.red_zone : report.input_changed);
  }
}

void gather(const MemoryPlan& plan, bool backward, Outputs& outputs) {
  for (const auto& call : outputs_of_calls) {
    const Buffer& buffer = plan.buffers[call.buffer];
    Tensor& tensor = tensor_of(outputs, call.output);
    if ((call.backward && !backward) || buffer.image.empty() || tensor.bytes.empty()) continue;
    const int64_t bytes = buffer.width * buffer.element_bytes;
    for (size_t t = 0; t < buffer.token.size(); ++t)
      for (int64_t h = 0; h < buffer.heads; ++h)
        std::memcpy(
            tensor.bytes.data() + (int64_t(t) * buffer.heads + h) * bytes,
            buffer.after.data() + (buffer.zone + buffer.token[t] + h * buffer.head_stride) * buffer.element_bytes,
            bytes);
  }
}

}  // namespace flashproof
