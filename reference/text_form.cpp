// Words and numbers of the text forms.
#include "reference/text_form.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "reference/errors.h"

namespace flashproof {

void refuse_word(std::string_view word, const std::string& reason) {
  throw UsageError("`" + std::string(word) + "`: " + reason);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::vector<std::string_view> split_words(std::string_view text) {
  constexpr std::string_view blanks = " \t\r\n";
  std::vector<std::string_view> words;
  for (size_t begin = text.find_first_not_of(blanks); begin != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(blanks, begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = text.find_first_not_of(blanks, end);
  }
  return words;
}

namespace {

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

void check_read(std::from_chars_result result, std::string_view text, std::string_view word, const char* wanted) {
  if (result.ec == std::errc::result_out_of_range) refuse_word(word, std::string(text) + " is out of range");
  if (result.ec != std::errc() || result.ptr != text.data() + text.size()) {
    refuse_word(word, "`" + std::string(text) + "` is not " + wanted);
  }
}

template <typename Float>
Float read_finite(std::string_view text, std::string_view word) {
  std::string_view digits = text;
  const bool negative = take_prefix(digits, "-");
  const auto format = take_prefix(digits, "0x") ? std::chars_format::hex : std::chars_format::general;
  Float value = 0;
  check_read(std::from_chars(digits.data(), digits.data() + digits.size(), value, format), digits, word, "a number");
  if (!std::isfinite(value) || digits.starts_with('-')) {
    refuse_word(word, "`" + std::string(text) + "` is not a finite number");
  }
  return negative ? -value : value;
}

template <typename Float>
std::string print_shortest(Float value) {
  char buffer[64];
  return std::string(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
}

}  // namespace

int64_t read_integer(std::string_view text, std::string_view word) {
  int64_t value = 0;
  check_read(std::from_chars(text.data(), text.data() + text.size(), value), text, word, "a whole number");
  return value;
}

uint64_t read_unsigned(std::string_view text, std::string_view word) {
  std::string_view digits = text;
  const int base = take_prefix(digits, "0x") ? 16 : 10;
  uint64_t value = 0;
  check_read(std::from_chars(digits.data(), digits.data() + digits.size(), value, base), digits, word,
             "a whole number of at least 0");
  return value;
}

float read_float(std::string_view text, std::string_view word) { return read_finite<float>(text, word); }
double read_double(std::string_view text, std::string_view word) { return read_finite<double>(text, word); }
std::string print_float(float value) { return print_shortest(value); }
std::string print_double(double value) { return print_shortest(value); }

std::vector<std::string_view> read_enclosed(std::string_view text, std::string_view open, char close,
                                            std::string_view word) {
  if (!take_prefix(text, open) || !text.ends_with(close)) {
    refuse_word(word, "expected `" + std::string(open) + "..." + close + "`");
  }
  text.remove_suffix(1);
  return text.empty() ? std::vector<std::string_view>() : split(text, ',');
}

}  // namespace flashproof
