// Reading and writing safetensors, with a JSON reader for just the header's shape: no nesting is open-ended, nothing
// recurses.
#include "reference/safetensors.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "reference/errors.h"

namespace flashproof {

namespace {

constexpr uint64_t longest_header = 100'000'000;  // the limit of the reference implementation

struct ElementWord {
  std::string_view word;
  int bits;
};
constexpr ElementWord element_words[] = {{"BOOL", 8}, {"U8", 8},   {"I8", 8},   {"F8_E5M2", 8}, {"F8_E4M3", 8},
                                         {"U16", 16}, {"I16", 16}, {"F16", 16}, {"BF16", 16},   {"U32", 32},
                                         {"I32", 32}, {"F32", 32}, {"U64", 64}, {"I64", 64},    {"F64", 64}};
constexpr std::array<const char*, dtype_count> format_words = {"F32", "BF16", "F16", "F8_E4M3", "F8_E5M2"};

/// Bytes of a tensor; nothing for an unknown word, a negative extent or a product beyond int64.
std::optional<int64_t> byte_count(const std::string& dtype, const std::vector<int64_t>& shape) {
  const auto found = std::find_if(std::begin(element_words), std::end(element_words),
                                  [&](const ElementWord& e) { return e.word == dtype; });
  if (found == std::end(element_words)) return {};
  int64_t bytes = found->bits / 8;
  for (const int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes)) return {};
  }
  return bytes;
}

struct Entry {
  std::string dtype;
  std::vector<int64_t> shape, offsets;
};

/// A cursor over the header. Offsets in messages count from the file's first byte.
class Header {
 public:
  Header(const std::string& path, std::string_view text) : path_(path), text_(text) {}

  [[noreturn]] void refuse(const std::string& reason) const {
    throw UsageError(path_ + ": byte " + std::to_string(8 + at_) + ": " + reason);
  }

  void skip_blanks() {
    while (at_ < text_.size() && std::strchr(" \t\r\n", text_[at_]) && text_[at_] != 0) ++at_;
  }
  bool take(char wanted) {
    skip_blanks();
    if (at_ == text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }
  void expect(char wanted) {
    if (!take(wanted)) refuse(std::string("expected `") + wanted + "` in the JSON header");
  }

  std::string read_string() {
    expect('"');
    std::string text;
    while (at_ < text_.size() && text_[at_] != '"') {
      if (static_cast<unsigned char>(text_[at_]) < 0x20) refuse("a control character inside a string");
      if (text_[at_] != '\\')
        text += text_[at_++];
      else
        ++at_, read_escape(text);
    }
    expect('"');
    return text;
  }

  std::vector<int64_t> read_integers() {
    std::vector<int64_t> list;
    expect('[');
    if (take(']')) return list;
    do list.push_back(read_integer());
    while (take(','));
    expect(']');
    return list;
  }

  /// Calls read(key) for each member of an object; a key stands once.
  template <typename Read>
  void read_object(Read read) {
    std::vector<std::string> keys;
    expect('{');
    if (take('}')) return;
    do {
      const std::string key = read_string();
      if (std::find(keys.begin(), keys.end(), key) != keys.end()) refuse("`" + key + "` stands twice");
      keys.push_back(key);
      expect(':');
      read(key);
    } while (take(','));
    expect('}');
  }

  void expect_end() {
    skip_blanks();
    if (at_ != text_.size()) refuse("text after the end of the JSON header");
  }

 private:
  int64_t read_integer() {
    skip_blanks();
    int64_t value = 0;
    const char* begin = text_.data() + at_;
    const auto result = std::from_chars(begin, text_.data() + text_.size(), value);
    if (result.ec != std::errc() || value < 0) refuse("expected a whole number of at least 0");
    at_ += size_t(result.ptr - begin);
    return value;
  }

  uint32_t read_four_digits() {
    uint32_t code = 0;
    const char* begin = text_.data() + at_;
    if (text_.size() - at_ < 4 || std::from_chars(begin, begin + 4, code, 16).ptr != begin + 4) {
      refuse("\\u needs four hexadecimal digits");
    }
    at_ += 4;
    return code;
  }

  void read_escape(std::string& text) {
    constexpr std::string_view names = "\"\\/bfnrt", letters = "\"\\/\b\f\n\r\t";
    if (at_ == text_.size()) refuse("the header ends inside a string");
    const char name = text_[at_++];
    if (name != 'u') {
      const size_t found = names.find(name);
      if (found == std::string_view::npos) refuse(std::string("unknown escape \\") + name);
      text += letters[found];
      return;
    }
    uint32_t code = read_four_digits();
    if (code >> 10 == 0xd800 >> 10 && text_.substr(at_, 2) == "\\u") {  // two surrogates make one code point
      at_ += 2;
      const uint32_t low = read_four_digits();
      if (low >> 10 != 0xdc00 >> 10) refuse("half a surrogate pair");
      code = 0x10000 + ((code & 0x3ff) << 10 | (low & 0x3ff));
    }
    append_utf8(text, code);
  }

  static void append_utf8(std::string& text, uint32_t code) {
    const int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    constexpr uint32_t lead[] = {0, 0xc0, 0xe0, 0xf0};
    text += char(lead[more] | code >> (6 * more));
    for (int n = more - 1; n >= 0; --n) text += char(0x80 | (code >> (6 * n) & 0x3f));
  }

  const std::string& path_;
  std::string_view text_;
  size_t at_ = 0;
};

Entry read_entry(Header& header, const std::string& name) {
  Entry entry;
  int seen = 0;
  header.read_object([&](const std::string& key) {
    ++seen;
    if (key == "dtype")
      entry.dtype = header.read_string();
    else if (key == "shape")
      entry.shape = header.read_integers();
    else if (key == "data_offsets")
      entry.offsets = header.read_integers();
    else
      header.refuse("tensor `" + name + "` has an unknown member `" + key + "`");
  });
  if (seen != 3 || entry.offsets.size() != 2)
    header.refuse("tensor `" + name + "` needs dtype, shape and two data_offsets");
  return entry;
}

/// Names and entries in the file's order; metadata into `file`.
std::vector<std::pair<std::string, Entry>> read_header(const std::string& path, std::string_view text,
                                                       SafeTensors& file) {
  std::vector<std::pair<std::string, Entry>> entries;
  Header header(path, text);
  header.read_object([&](const std::string& name) {
    if (name == "__metadata__") {
      header.read_object([&](const std::string& key) { file.metadata[key] = header.read_string(); });
    } else {
      entries.emplace_back(name, read_entry(header, name));
    }
  });
  header.expect_end();
  return entries;
}

/// What is wrong with the entries, whose bytes must cover [0, data_size) in order of their offsets; "" where nothing
/// is.
std::string fault_of(std::vector<std::pair<std::string, Entry>> entries, uint64_t data_size) {
  std::sort(entries.begin(), entries.end(),
            [](const auto& x, const auto& y) { return x.second.offsets < y.second.offsets; });
  int64_t covered = 0;
  for (const auto& [name, entry] : entries) {
    const auto bytes = byte_count(entry.dtype, entry.shape);
    const int64_t begin = entry.offsets[0], end = entry.offsets[1];
    const std::string tensor = "tensor `" + name + "`: ";
    if (!bytes) return tensor + "unknown dtype `" + entry.dtype + "`, or a shape whose product overflows";
    if (begin != covered)
      return tensor + "starts at offset " + std::to_string(begin) + ", the one before ends at " +
             std::to_string(covered);
    if (end < begin || end - begin != *bytes) {
      return tensor + "has " + std::to_string(end - begin) + " bytes, its shape and dtype need " +
             std::to_string(*bytes);
    }
    if (uint64_t(end) > data_size) {
      return tensor + "ends at offset " + std::to_string(end) + ", and the file has " + std::to_string(data_size) +
             " bytes of data";
    }
    covered = end;
  }
  if (uint64_t(covered) != data_size)
    return "bytes after the last tensor, which ends at offset " + std::to_string(covered);
  return "";
}

std::string quote(std::string_view text) {
  std::string out = "\"";
  for (const char letter : text) {
    char code[8];
    std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned char>(letter));
    if (static_cast<unsigned char>(letter) < 0x20)
      out += code;
    else if (letter == '"' || letter == '\\')
      out += {'\\', letter};
    else
      out += letter;
  }
  return out + "\"";
}

std::string header_of(const SafeTensors& file) {
  std::string text = "{";
  if (!file.metadata.empty()) {
    text += "\"__metadata__\":{";
    for (const auto& [key, value] : file.metadata) text += quote(key) + ":" + quote(value) + ",";
    text.back() = '}';
    text += ",";
  }
  uint64_t offset = 0;
  for (const auto& [name, tensor] : file.tensors) {
    text += quote(name) + ":{\"dtype\":" + quote(tensor.dtype) + ",\"shape\":[";
    for (size_t n = 0; n < tensor.shape.size(); ++n) text += (n == 0 ? "" : ",") + std::to_string(tensor.shape[n]);
    text +=
        "],\"data_offsets\":[" + std::to_string(offset) + "," + std::to_string(offset + tensor.bytes.size()) + "]},";
    offset += tensor.bytes.size();
  }
  if (text.back() == ',')
    text.back() = '}';
  else
    text += "}";
  return text + std::string((8 - text.size() % 8) % 8, ' ');
}

}  // namespace

SafeTensors read_safetensors(const std::string& path) {
  std::error_code failure;
  const auto refuse = [&](const std::string& reason) { throw UsageError(path + ": " + reason); };
  if (std::filesystem::exists(path, failure) && !std::filesystem::is_regular_file(path, failure))
    refuse("is a folder or device, a safetensors file is needed");
  std::ifstream in(path, std::ios::binary);
  if (!in) throw UnavailableError(path + ": cannot be opened: " + std::strerror(errno));
  const uint64_t size = std::filesystem::file_size(path, failure);
  if (failure) throw UnavailableError(path + ": " + failure.message());
  if (size < 10) refuse("byte " + std::to_string(size) + ": the file ends before a header");

  std::array<unsigned char, 8> prefix{};
  in.read(reinterpret_cast<char*>(prefix.data()), 8);
  uint64_t length = 0;
  for (int n = 7; n >= 0; --n) length = length << 8 | prefix[size_t(n)];
  if (length > size - 8 || length > longest_header) {
    refuse("byte 0: the header is said to have " + std::to_string(length) + " bytes, and " + std::to_string(size - 8) +
           " follow; not a safetensors file, or cut short");
  }
  std::string text(length, '\0');
  in.read(text.data(), std::streamsize(length));
  SafeTensors file;
  const auto entries = read_header(path, text, file);
  const std::string fault = fault_of(entries, size - 8 - length);
  if (!fault.empty()) refuse("byte " + std::to_string(8 + length) + ": " + fault);
  for (const auto& [name, entry] : entries) {
    SafeTensor& tensor = file.tensors[name];
    tensor = {entry.dtype, entry.shape, std::vector<uint8_t>(size_t(entry.offsets[1] - entry.offsets[0]))};
    in.seekg(std::streamoff(8 + length) + entry.offsets[0]);
    in.read(reinterpret_cast<char*>(tensor.bytes.data()), std::streamsize(tensor.bytes.size()));
  }
  if (!in) throw UnavailableError(path + ": reading failed");
  return file;
}

void write_safetensors(const std::string& path, const SafeTensors& file) {
  for (const auto& [name, tensor] : file.tensors) {
    const auto bytes = byte_count(tensor.dtype, tensor.shape);
    if (!bytes || uint64_t(*bytes) != tensor.bytes.size()) {
      throw UsageError("tensor `" + name + "`: its " + std::to_string(tensor.bytes.size()) +
                       " bytes do not fit its shape and dtype `" + tensor.dtype + "`");
    }
  }
  const std::string header = header_of(file), part = path + "." + std::to_string(getpid()) + ".tmp";
  std::array<char, 8> prefix{};
  for (int n = 0; n < 8; ++n) prefix[size_t(n)] = char(uint64_t(header.size()) >> (8 * n));
  std::ofstream out(part, std::ios::binary | std::ios::trunc);
  out.write(prefix.data(), 8).write(header.data(), std::streamsize(header.size()));
  for (const auto& [name, tensor] : file.tensors) {
    out.write(reinterpret_cast<const char*>(tensor.bytes.data()), std::streamsize(tensor.bytes.size()));
  }
  out.close();
  if (!out || std::rename(part.c_str(), path.c_str()) != 0) {
    const std::string reason = std::strerror(errno);
    std::remove(part.c_str());
    throw UnavailableError(path + ": cannot be written: " + reason);
  }
}

const char* safetensors_word(DType dtype) { return format_words[size_t(dtype)]; }

std::optional<DType> dtype_of_word(const std::string& word) {
  const auto found = std::find(format_words.begin(), format_words.end(), word);
  if (found == format_words.end()) return {};
  return DType(found - format_words.begin());
}

}  // namespace flashproof
