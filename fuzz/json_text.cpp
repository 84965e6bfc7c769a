// See json_text.h; strings are escaped as RFC 8259 section 7 says.
#include "fuzz/json_text.h"

#include <charconv>
#include <cmath>
#include <cstdio>

namespace flashproof {
namespace {

std::string quoted(const std::string& string) {
  std::string text = "\"";
  for (const char c : string) {
    char escape[8];
    if (c == '"' || c == '\\')
      text += '\\', text += c;
    else if (c == '\n')
      text += "\\n";
    else if (static_cast<unsigned char>(c) < 0x20)
      std::snprintf(escape, sizeof escape, "\\u%04x", c), text += escape;
    else
      text += c;
  }
  return text + "\"";
}

}  // namespace

JsonText::JsonText(const std::string& string) : text_(quoted(string)) {}

JsonText::JsonText(double number) {
  if (!std::isfinite(number)) {
    text_ = std::isnan(number) ? "\"nan\"" : number > 0 ? "\"inf\"" : "\"-inf\"";
    return;
  }
  char digits[40];
  text_.assign(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
}

JsonText::JsonText(const std::vector<std::string>& strings) {
  text_ = json_array(std::vector<JsonText>(strings.begin(), strings.end())).text();
}

JsonText JsonText::raw(std::string text) {
  JsonText json;
  json.text_ = std::move(text);
  return json;
}

JsonText json_object(const std::vector<JsonMember>& members) {
  std::string text = "{";
  for (const auto& [key, value] : members) text += (text.size() > 1 ? ", " : "") + quoted(key) + ": " + value.text();
  return JsonText::raw(text + "}");
}

JsonText json_array(const std::vector<JsonText>& values) {
  std::string text = "[";
  for (const JsonText& value : values) text += (text.size() > 1 ? ", " : "") + value.text();
  return JsonText::raw(text + "]");
}

}  // namespace flashproof
