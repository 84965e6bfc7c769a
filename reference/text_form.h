// Words and numbers of the text forms (problem, case, arithmetic): splitting, reading and printing.
//
// Floats print as the shortest decimal that reads back to the same bits; hexadecimal (0x1.8p-4) is read too.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace flashproof {

/// Throws UsageError "`WORD`: REASON".
[[noreturn]] void refuse_word(std::string_view word, const std::string& reason);

std::vector<std::string_view> split(std::string_view text, char separator);
/// Words between spaces, tabs and line ends; none is empty.
std::vector<std::string_view> split_words(std::string_view text);

/// The number that is all of `text`, which is a part of `word`; otherwise refuse_word. Unsigned numbers may be
/// hexadecimal. Floats are finite.
int64_t read_integer(std::string_view text, std::string_view word);
uint64_t read_unsigned(std::string_view text, std::string_view word);
float read_float(std::string_view text, std::string_view word);
double read_double(std::string_view text, std::string_view word);

std::string print_float(float);
std::string print_double(double);

/// The arguments of `NAME(x,y)` or the entries of `[x,y]`: what stands between `open` and a final `close`, split at
/// commas; none for `()` and `[]`. Refuses a text of another form.
std::vector<std::string_view> read_enclosed(std::string_view text, std::string_view open, char close,
                                            std::string_view word);

}  // namespace flashproof
