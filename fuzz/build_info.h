// What this program was built from, for `--version` and the manifest of a campaign.
#pragma once

namespace flashproof {

struct BuildInfo {
  const char* version;   ///< e.g. "0.1.0"
  const char* commit;    ///< 12 hex digits, "-dirty" after them if tracked files had changed; "unknown" outside git
  const char* compiler;  ///< e.g. "GNU 12.2.0"
  const char* flags;     ///< of the C++ compiler
  const char* cuda;      ///< version of the CUDA compiler; "none" in a CPU-only build
};
const BuildInfo& build_info();

}  // namespace flashproof
