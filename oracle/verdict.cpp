// Names and places of verdicts.
#include "oracle/verdict.h"

#include <algorithm>
#include <cstdio>

namespace flashproof {

const char* name_of(Status status) {
  constexpr const char* names[] = {"pass", "fail", "inconclusive", "rejected"};
  return names[int(status)];
}

Where locate(const Problem& p, OutputId output, int64_t index) {
  Where where{.output = output, .index = index};
  if (output == OutputId::dsink || index < 0) {
    where.head = index;
    return where;
  }
  if (output == OutputId::dbias) {  // [1|B, 1|H, 1|Sq, 1|Sk]: position is the query, channel the key
    const int64_t keys = p.bias->key ? max_used_length(p.k, p.batch) : 1,
                  rows = p.bias->query ? max_used_length(p.q, p.batch) : 1;
    const int64_t heads = p.bias->head ? p.heads : 1;
    where.channel = index % keys;
    where.position = index / keys % rows;
    where.head = index / keys / rows % heads;
    where.b = index / keys / rows / heads;
    return where;
  }
  const bool keys = output == OutputId::dk || output == OutputId::dv;
  const int64_t width = output == OutputId::lse                            ? 1
                        : output == OutputId::dq || output == OutputId::dk ? p.head_dim
                                                                           : p.value_dim;
  const int64_t heads = keys ? p.kv_heads : p.heads, token = index / width / heads;
  const Packing packing = packing_of(p);
  const std::vector<int64_t>& begins = keys ? packing.k_begin : packing.q_begin;
  where.channel = index % width;
  where.head = index / width % heads;
  where.b = std::upper_bound(begins.begin(), begins.end(), token) - begins.begin() - 1;
  where.position = token - begins[where.b];
  return where;
}

std::string print(const Where& where) {
  std::string name = name_of(where.output);
  if (where.index < 0) return name;
  const auto field = [](const char* key, int64_t value) { return std::string(key) + "=" + std::to_string(value); };
  switch (where.output) {
    case OutputId::dsink:
      return name + "[" + field("h", where.head) + "]";
    case OutputId::lse:
      return name + "[" + field("b", where.b) + " " + field("i", where.position) + " " + field("h", where.head) + "]";
    case OutputId::dbias:
      return name + "[" + field("b", where.b) + " " + field("h", where.head) + " " + field("i", where.position) + " " +
             field("j", where.channel) + "]";
    case OutputId::o:
    case OutputId::dq:
    case OutputId::dk:
    case OutputId::dv:
      break;
  }
  const bool keys = where.output == OutputId::dk || where.output == OutputId::dv;
  return name + "[" + field("b", where.b) + " " + field(keys ? "j" : "i", where.position) + " " +
         field("h", where.head) + " " + field("c", where.channel) + "]";
}

std::string bits_text(const Tensor& tensor, int64_t index) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%0*x", format_of(tensor.dtype).bits / 4, tensor.bits(index));
  return text;
}

}  // namespace flashproof
