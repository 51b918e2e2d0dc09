#include "spec/json_fields.h"

#include <utility>

#include <fmt/format.h>

namespace heddle::spec {

JsonFields::JsonFields(const Json& object, std::string where)
    : object_(object), where_(std::move(where)) {
  if (object.as<Json::Object>() == nullptr) {
    fail(fmt::format("{}expected an object, found {}", where_, describe(object)));
  }
}

const Json* JsonFields::find(std::string_view key) const {
  const Json* value = object_.find(key);
  return value != nullptr && !value->is_null() ? value : nullptr;
}

std::int64_t JsonFields::integer(std::string_view key,
                                 IntegerRange range,
                                 std::optional<std::int64_t> fallback) {
  const Json* value = find(key);
  if (value == nullptr && fallback) {
    return *fallback;
  }
  const auto* integer = value != nullptr ? value->as<std::int64_t>() : nullptr;
  if (integer == nullptr || *integer < range.least || *integer > range.most) {
    reject(key, fmt::format("it must be an integer from {} to {}", range.least, range.most));
    return fallback.value_or(range.least);
  }
  return *integer;
}

double JsonFields::number(std::string_view key, NumberRange range, std::optional<double> fallback) {
  const Json* value = find(key);
  if (value == nullptr && fallback) {
    return *fallback;
  }
  std::optional<double> number;
  if (value != nullptr && value->as<double>() != nullptr) {
    number = *value->as<double>();
  } else if (value != nullptr && value->as<std::int64_t>() != nullptr) {
    number = static_cast<double>(*value->as<std::int64_t>());
  }
  if (!number || !(*number >= range.least && *number <= range.most)) {
    reject(key, fmt::format("it must be a number from {} to {}", range.least, range.most));
    return fallback.value_or(range.least);
  }
  return *number;
}

bool JsonFields::boolean(std::string_view key, bool fallback) {
  const Json* value = find(key);
  if (value == nullptr) {
    return fallback;
  }
  if (const bool* boolean = value->as<bool>()) {
    return *boolean;
  }
  reject(key, "it must be true or false");
  return fallback;
}

std::string JsonFields::text(std::string_view key) {
  const Json* value = find(key);
  if (value == nullptr) {
    return {};
  }
  if (const auto* text = value->as<std::string>()) {
    return *text;
  }
  reject(key, "it must be a string");
  return {};
}

void JsonFields::reject(std::string_view key, std::string_view right) {
  const Json* value = object_.find(key);
  reject_as(key, value != nullptr ? describe(*value) : "missing", right);
}

void JsonFields::reject_as(std::string_view key, std::string_view value, std::string_view right) {
  fail(fmt::format("{}{} is {}; {}", where_, key, value, right));
}

void JsonFields::adopt(const JsonFields& part) {
  if (ok() && !part.ok()) {
    status_ = part.status();
  }
}

void JsonFields::fail(std::string message) {
  if (ok()) {
    status_ = Error{Code::kInvalidArgument, std::move(message)};
  }
}

}  // namespace heddle::spec
