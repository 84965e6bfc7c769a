// SHA-256 (FIPS 180-4): names plug-ins, manifests and compiled kernels by content.
#pragma once
#include <string>
#include <string_view>

namespace flashproof {

/// 64 lowercase hexadecimal digits.
std::string sha256(std::string_view bytes);
/// Of a file's content; throws UnavailableError with the system's reason when it cannot be read.
std::string sha256_of_file(const std::string& path);

}  // namespace flashproof
