// Messages between the engine and a worker: frames of a tag, a length (8 bytes, little-endian) and a payload.
//
//   engine -> worker   request, or with its problem and config alone ask_supports, ask_arithmetic
//   worker -> engine   ready, once; then for each request
//                      kernel_begins, kernel_ends (once each where the kernel is called), then one of
//                      result, last_result (the worker's device is lost: it ends), or a refusal with its text:
//                      usage_error, unavailable, internal_error
//
// The result of a question has no outputs: its message is the reason of a rejection, or the arithmetic.
//
// Both sides are the same program, so the format has no version; a frame that does not decode is a torn answer.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "oracle/check.h"

namespace flashproof {

enum class Tag : uint8_t {
  request,
  ask_supports,
  ask_arithmetic,
  ready,
  kernel_begins,
  kernel_ends,
  result,
  last_result,
  usage_error,
  unavailable,
  internal_error
};

struct Frame {
  Tag tag = Tag::request;
  std::string payload;
};

struct Request {
  Run run;
  std::string config;
  int64_t memory_bytes = 0;  ///< address space of a CPU kernel; 0 = no limit
  int32_t threads = 0;       ///< default_threads of the engine's thread, for the worker's
};

/// The bytes are not what the other side would send.
struct TornMessage : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::string encode(const Request&);
std::string encode(const RunResult&);
/// Throw TornMessage; decode_request also what parse_case throws.
Request decode_request(std::string_view);
RunResult decode_result(std::string_view);

std::string framed(Tag, std::string_view payload);
/// Takes the first whole frame out of `bytes`; false while there is none. Throws TornMessage for an unknown tag or a
/// length that no answer has.
bool take_frame(std::string& bytes, Frame&);

}  // namespace flashproof
