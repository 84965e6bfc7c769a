// Sources as they were when the program was built, and all of ours that they include. Written by
// oracle/cmake/flashproof_embed_sources.cmake.
#pragma once
#include <string_view>

namespace flashproof {

struct EmbeddedSource {
  const char* path;  ///< in the project: "kernels/ptx.cuh"
  std::string_view text;
};
struct EmbeddedSources {
  const EmbeddedSource* list;
  int count;
  const EmbeddedSource* begin() const { return list; }
  const EmbeddedSource* end() const { return list + count; }
};
/// The device headers: every header that a kernel of the run-time compiler may include. By path, ascending.
EmbeddedSources embedded_sources();
/// The models of kernels/hardware: all that their arithmetic follows from, the host's tiles of them too.
EmbeddedSources model_sources();

}  // namespace flashproof
