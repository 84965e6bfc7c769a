// Certificates as files (JSON; keys in JSON.md), and which of them speaks of the GPU at hand.
//
// A user's lie in one folder, where `certify` puts them: $FLASHPROOF_CERTIFICATES, else
// $XDG_DATA_HOME/flashproof/certificates, else ~/.local/share/flashproof/certificates. Behind them come those that are
// part of the program: tests/certificates as it was when the program was built.
#pragma once
#include <string>
#include <vector>

#include "fuzz/kernel_library.h"
#include "kernels/hardware/certificate.h"

namespace flashproof {

std::string print(const Certificate&);
/// Throws UsageError for what is no certificate, is damaged, or is of another version.
Certificate parse_certificate(const std::string& text);

/// The user's folder, made when it is first written to; "" where the environment names none.
std::string certificate_folder();

/// Those of the folder by file name, then the program's. What cannot be read, or is no regular file, is named on stderr
/// and left out; so is a folder that is none, or that $FLASHPROOF_CERTIFICATES names and is not there.
std::vector<Certificate> read_certificates(const std::string& folder);

/// Writes it as the folder's only one of its GPU; gives the file's path. UnavailableError with the reason.
std::string keep(const Certificate&, const std::string& folder);

/// The GPU of this machine and its certificate, for code by that assembler ("" unknown). Certificates are read once in
/// a process.
GpuStanding gpu_standing(const std::string& assembler);

/// The same for a kernel's code; the host's kernels have none.
std::optional<GpuStanding> gpu_standing(const LoadedKernel&, const Problem&, const std::string& config);

/// Texts of tests/certificates. Written by oracle/cmake/flashproof_embed_certificates.cmake.
std::vector<std::string> shipped_certificates();

}  // namespace flashproof
