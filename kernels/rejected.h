// How a C++ kernel answers across the C interface (flashproof_kernel.h): what is thrown below it becomes a status and a
// message.
#pragma once
#include <cstdio>
#include <stdexcept>
#include <string>

#include "kernels/flashproof_kernel.h"

namespace flashproof {

/// The problem, config or call is one that the kernel does not take; the message says why.
struct Rejected : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void reject_unless(bool legal, const char* reason) {
  if (!legal) throw Rejected(reason);
}

/// OK, or for Rejected REJECTED and for any other std::exception ERROR, with what it says, cut to `size` bytes.
template <class Function>
flashproof_status guarded(char* message, size_t size, Function&& function) {
  const auto say = [&](const std::exception& thrown, flashproof_status status) {
    std::snprintf(message, size, "%s", thrown.what());
    return status;
  };
  try {
    function();
    return FLASHPROOF_OK;
  } catch (const Rejected& reason) {
    return say(reason, FLASHPROOF_REJECTED);
  } catch (const std::exception& error) {
    return say(error, FLASHPROOF_ERROR);
  }
}

/// What flashproof_kernel.arithmetic returns: the function's text, valid until its next call on this thread; "", which
/// is unknown, where it throws a std::exception.
template <class Function>
const char* text_unless_thrown(Function&& function) {
  thread_local std::string text;
  try {
    text = function();
  } catch (const std::exception&) {
    text.clear();
  }
  return text.c_str();
}

}  // namespace flashproof
