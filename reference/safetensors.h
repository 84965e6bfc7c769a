// Safetensors files: eight bytes of header length, a JSON header, the tensors' bytes.
//
// Format: huggingface/safetensors README ("Format"): little-endian length N, then N bytes of JSON
//   {"NAME": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [begin, end]}, ..., "__metadata__": {"key": "text"}}
// with offsets into the bytes that follow, which the tensors cover without holes or overlap.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "reference/formats.h"

namespace flashproof {

struct SafeTensor {
  std::string dtype;  ///< the file's word: "BF16", "F16", "F32", "F8_E4M3", "F8_E5M2", "F64", "I32", ...
  std::vector<int64_t> shape;
  std::vector<uint8_t> bytes;  ///< row-major, little-endian
  bool operator==(const SafeTensor&) const = default;
};

struct SafeTensors {
  std::map<std::string, SafeTensor> tensors;
  std::map<std::string, std::string> metadata;
  bool operator==(const SafeTensors&) const = default;
};

/// Throws UnavailableError where the file cannot be opened, UsageError for content that is not a whole safetensors
/// file, naming the file, the byte offset and the reason. No size in the file is believed before it is checked against
/// its length.
SafeTensors read_safetensors(const std::string& path);

/// Written to PATH.PID.tmp and renamed, so that PATH is never half a file. Throws UsageError for a tensor whose bytes
/// do not fit its shape, UnavailableError where the file cannot be written.
void write_safetensors(const std::string& path, const SafeTensors& file);

/// The words for our formats, and back; nothing for other words.
const char* safetensors_word(DType dtype);
std::optional<DType> dtype_of_word(const std::string& word);

}  // namespace flashproof
