// Numbers and strings of known length, one after the other; see worker_protocol.h.
#include "fuzz/worker_protocol.h"

#include <cstring>
#include <type_traits>

namespace flashproof {
namespace {

constexpr size_t header_bytes = 1 + sizeof(uint64_t);
constexpr uint64_t longest_payload = 1ull << 42;  // above what 2^40 elements of 4 bytes take: not a length

class Writer {
 public:
  std::string bytes;

  template <class Number>
  void number(Number value) {
    static_assert(std::is_arithmetic_v<Number>);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(std::string_view value) {
    number<uint64_t>(value.size());
    bytes += value;
  }
  void tensor(const Tensor& value) {
    number<int32_t>(int(value.dtype));
    number<uint64_t>(value.shape.size());
    for (int64_t extent : value.shape) number(extent);
    text({reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size()});
  }
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  template <class Number>
  Number number() {
    Number value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string text() { return std::string(take(number<uint64_t>())); }
  Tensor tensor() {
    Tensor value;
    value.dtype = DType(number<int32_t>());
    for (uint64_t rank = number<uint64_t>(); rank > 0; --rank) value.shape.push_back(number<int64_t>());
    const std::string_view bytes = take(number<uint64_t>());
    value.bytes.assign(bytes.begin(), bytes.end());
    return value;
  }
  void end() const {
    if (!rest_.empty()) throw TornMessage("bytes are left over");
  }

 private:
  std::string_view take(uint64_t count) {
    if (count > rest_.size()) throw TornMessage("it ends early");
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }

  std::string_view rest_;
};

}  // namespace

std::string encode(const Request& request) {
  Writer out;
  out.text(print(request.run.c));
  out.number(request.run.placement.nan_outside);
  out.number(request.run.placement.largest_hidden);
  out.number(request.run.placement.poison);
  out.number<int32_t>(int(request.run.mutation));
  for (int power : {request.run.scaling.q, request.run.scaling.v, request.run.scaling.d_o}) out.number<int32_t>(power);
  out.text(request.config);
  out.number(request.memory_bytes);
  out.number(request.threads);
  return out.bytes;
}

Request decode_request(std::string_view bytes) {
  Reader in(bytes);
  Request request;
  request.run.c = parse_case(in.text());
  request.run.placement.nan_outside = in.number<bool>();
  request.run.placement.largest_hidden = in.number<bool>();
  request.run.placement.poison = in.number<uint64_t>();
  request.run.mutation = IllegalMutation(in.number<int32_t>());
  for (int* power : {&request.run.scaling.q, &request.run.scaling.v, &request.run.scaling.d_o})
    *power = in.number<int32_t>();
  request.config = in.text();
  request.memory_bytes = in.number<int64_t>();
  request.threads = in.number<int32_t>();
  in.end();
  return request;
}

std::string encode(const RunResult& result) {
  Writer out;
  out.number<int32_t>(int(result.status));
  out.text(result.message);
  out.number(result.seconds);
  const MemoryReport& memory = result.memory;
  for (const std::string* finding : {&memory.red_zone, &memory.input_changed, &memory.unwritten, &memory.tail_touched})
    out.text(*finding);
  for (int id = 0; id < output_count; ++id) out.tensor(tensor_of(result.outputs, OutputId(id)));
  return out.bytes;
}

RunResult decode_result(std::string_view bytes) {
  Reader in(bytes);
  RunResult result;
  result.status = RunStatus(in.number<int32_t>());
  result.message = in.text();
  result.seconds = in.number<double>();
  MemoryReport& memory = result.memory;
  for (std::string* finding : {&memory.red_zone, &memory.input_changed, &memory.unwritten, &memory.tail_touched})
    *finding = in.text();
  for (int id = 0; id < output_count; ++id) tensor_of(result.outputs, OutputId(id)) = in.tensor();
  in.end();
  return result;
}

std::string framed(Tag tag, std::string_view payload) {
  Writer out;
  out.number(uint8_t(tag));
  out.text(payload);
  return out.bytes;
}

bool take_frame(std::string& bytes, Frame& frame) {
  if (bytes.size() < header_bytes) return false;
  uint64_t length;
  std::memcpy(&length, bytes.data() + 1, sizeof length);
  if (uint8_t(bytes[0]) > uint8_t(Tag::internal_error) || length > longest_payload)
    throw TornMessage("not the start of a frame");
  if (bytes.size() - header_bytes < length) return false;
  frame.tag = Tag(bytes[0]);
  frame.payload = bytes.substr(header_bytes, length);
  bytes.erase(0, header_bytes + length);
  return true;
}

}  // namespace flashproof
