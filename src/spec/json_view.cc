#include "spec/json_view.h"

namespace heddle::spec {

const Json* value_at(const Json& json, JsonPath path) {
  const Json* at = &json;
  for (const std::string_view key : path) {
    at = at->find(key);
    if (at == nullptr) {
      return nullptr;
    }
  }
  return at;
}

std::string text_at(const Json& json, JsonPath path) {
  if (const auto* whole = value_at<std::int64_t>(json, path)) {
    return std::to_string(*whole);
  }
  const auto* string = value_at<std::string>(json, path);
  return string == nullptr ? std::string() : *string;
}

double number_at(const Json& json, JsonPath path) {
  if (const auto* whole = value_at<std::int64_t>(json, path)) {
    return static_cast<double>(*whole);
  }
  const auto* real = value_at<double>(json, path);
  return real == nullptr ? 0 : *real;
}

const Json::Array& items_at(const Json& json, JsonPath path) {
  static const Json::Array none;
  const auto* array = value_at<Json::Array>(json, path);
  return array == nullptr ? none : *array;
}

}  // namespace heddle::spec
