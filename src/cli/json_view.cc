#include "cli/json_view.h"

namespace heddle::cli {

namespace {

const spec::Json* follow(const spec::Json& json, std::initializer_list<std::string_view> path) {
  const spec::Json* at = &json;
  for (const std::string_view key : path) {
    at = at->find(key);
    if (at == nullptr) {
      return nullptr;
    }
  }
  return at;
}

}  // namespace

std::string text(const spec::Json& json, std::initializer_list<std::string_view> path) {
  const spec::Json* found = follow(json, path);
  if (found == nullptr) {
    return {};
  }
  if (const auto* whole = found->as<std::int64_t>()) {
    return std::to_string(*whole);
  }
  const auto* string = found->as<std::string>();
  return string == nullptr ? std::string() : *string;
}

double number(const spec::Json& json, std::initializer_list<std::string_view> path) {
  const spec::Json* found = follow(json, path);
  if (found == nullptr) {
    return 0;
  }
  if (const auto* whole = found->as<std::int64_t>()) {
    return static_cast<double>(*whole);
  }
  const auto* real = found->as<double>();
  return real == nullptr ? 0 : *real;
}

const spec::Json::Array& items(const spec::Json& json,
                               std::initializer_list<std::string_view> path) {
  static const spec::Json::Array kNone;
  const spec::Json* found = follow(json, path);
  const auto* array = found == nullptr ? nullptr : found->as<spec::Json::Array>();
  return array == nullptr ? kNone : *array;
}

}  // namespace heddle::cli
