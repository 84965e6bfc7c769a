// JSON as text, for what the verbs print: objects keep the order in which they are written.
//
// nlohmann's printer behind a light header: its own costs each file that includes it three seconds of compilation.
#pragma once
#include <concepts>
#include <string>
#include <utility>
#include <vector>

namespace flashproof {

/// One value, already as text.
class JsonText {
 public:
  JsonText(const std::string& string);
  JsonText(const char* string) : JsonText(std::string(string)) {}
  JsonText(bool truth) : text_(truth ? "true" : "false") {}
  JsonText(double number);  ///< shortest decimal that reads back; "inf", "-inf" and "nan" as strings
  template <std::integral Integer>
  JsonText(Integer number) : text_(std::to_string(number)) {}
  JsonText(const std::vector<std::string>& strings);
  /// Text that is JSON already.
  static JsonText raw(std::string text);
  const std::string& text() const { return text_; }

 private:
  JsonText() = default;
  std::string text_;
};

using JsonMember = std::pair<std::string, JsonText>;
JsonText json_object(const std::vector<JsonMember>& members);
JsonText json_array(const std::vector<JsonText>& values);

}  // namespace flashproof
