// See json_text.h.
#include "fuzz/json_text.h"

#include <cmath>

#include <nlohmann/json.hpp>

namespace flashproof {
namespace {

using Json = nlohmann::ordered_json;

/// A kernel's message may hold bytes that are no UTF-8; they must not end the program.
std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace

JsonText::JsonText(const std::string& string) : text_(dump(string)) {}

JsonText::JsonText(double number)
    : text_(std::isfinite(number) ? dump(number)
            : std::isnan(number)  ? "\"nan\""
            : number > 0          ? "\"inf\""
                                  : "\"-inf\"") {}

JsonText::JsonText(const std::vector<std::string>& strings) : text_(dump(strings)) {}

JsonText JsonText::raw(std::string text) {
  JsonText json;
  json.text_ = std::move(text);
  return json;
}

JsonText json_object(const std::vector<JsonMember>& members) {
  Json object = Json::object();
  for (const auto& [key, value] : members) object[key] = Json::parse(value.text());
  return JsonText::raw(dump(object));
}

JsonText json_array(const std::vector<JsonText>& values) {
  Json array = Json::array();
  for (const JsonText& value : values) array.push_back(Json::parse(value.text()));
  return JsonText::raw(dump(array));
}

}  // namespace flashproof
