// Kernels compiled at run time: one instantiation of a kernel template becomes machine code of one chip, by NVRTC.
//
// NVRTC (CUDA Toolkit, 12.0 or later) is opened when it is first asked for and never linked. The headers that a kernel
// may include are part of the program (kernels/embedded_sources.h), so no source tree and no CUDA header is needed.
// Contraction is off, as everywhere: a*b+c rounds twice. Machine code is kept by content: what was compiled once from
// the same text, headers, options and version of NVRTC is read back. Safe to call from several threads and processes at
// once.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace flashproof {

/// Where the compiler is, and where machine code is kept.
struct CompilerPlaces {
  std::string library;  ///< NVRTC's file; "": libnvrtc.so.13, then libnvrtc.so.12, where the loader looks
  std::string cache;    ///< a folder, made when missing; "": nothing is kept
};
/// $FLASHPROOF_NVRTC; $FLASHPROOF_CACHE, else $XDG_CACHE_HOME/flashproof, else ~/.cache/flashproof.
CompilerPlaces compiler_places();

/// "NVRTC 13.0 (libnvrtc.so.13)"; "" where there is none, with the reason.
std::string run_time_compiler(const CompilerPlaces&, std::string& reason);

/// "NVRTC 13.0", which is all that it says of its assembler; "" where there is none.
std::string run_time_assembler(const CompilerPlaces& = compiler_places());

/// Why it makes no code for the chip ("sm_90a"): there is no NVRTC, or one that does not know it. "": it does.
std::string why_no_target(const std::string& architecture, const CompilerPlaces& = compiler_places());

/// A translation unit and the kernel wanted of it.
struct KernelText {
  std::string text;                     ///< includes device headers by their path in the project
  std::string kernel;                   ///< C++ name, with the arguments of a template
  std::string architecture = "sm_90a";  ///< the chip
};

struct CompiledKernel {
  std::string cubin;   ///< machine code
  std::string symbol;  ///< the kernel's name in it
  std::string log;     ///< the compiler's warnings and the assembler's report
  double seconds = 0;  ///< what compiling took
  bool cached = false;
};

/// Throws UnavailableError where there is no NVRTC, and std::runtime_error with all that the compiler said when it does
/// not compile. A folder that cannot be written costs the cache alone; that is said on stderr, once.
CompiledKernel compile_kernel(const KernelText&, const CompilerPlaces& = compiler_places());

/// What the assembler says that the kernel takes of a thread's registers and local memory.
struct KernelResources {
  int registers = 0, stack_bytes = 0, spill_store_bytes = 0, spill_load_bytes = 0;
};
/// Nothing when the log holds no report.
std::optional<KernelResources> resources_of(const CompiledKernel&);

}  // namespace flashproof
