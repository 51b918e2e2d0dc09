#include "gguf/metadata_fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace heddle::gguf {

std::int64_t MetadataFields::integer(std::string_view key, std::optional<std::int64_t> fallback) {
  const Value* value = file_.find(key);
  if (value == nullptr) {
    if (!fallback) {
      fail({Code::kCorrupt, fmt::format("{}: key \"{}\" is missing", file_.name, key)});
    }
    return fallback.value_or(1);
  }
  if (const auto* number = std::get_if<std::int64_t>(value)) {
    return *number;
  }
  const auto* array = std::get_if<Array>(value);
  const bool one =
      array != nullptr && !array->integers.empty() &&
      std::ranges::count(array->integers, array->integers.front()) == std::ssize(array->integers);
  if (!one) {
    reject(key, "it must be an integer, or an array of equal ones");
  }
  return one ? array->integers.front() : fallback.value_or(1);
}

std::string MetadataFields::decimal(std::string_view key) {
  const Value* value = file_.find(key);
  if (value == nullptr) {
    return "";
  }
  if (const auto* number = std::get_if<float>(value); number != nullptr && std::isfinite(*number)) {
    return fmt::format("{}", *number);
  }
  if (const auto* number = std::get_if<double>(value);
      number != nullptr && std::isfinite(*number)) {
    return fmt::format("{}", *number);
  }
  if (const auto* number = std::get_if<std::int64_t>(value)) {
    return fmt::format("{}", *number);
  }
  reject(key, "it must be a finite number");
  return "";
}

double MetadataFields::number(std::string_view key, double fallback) {
  const std::string text = decimal(key);
  double number = fallback;
  (void)std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

bool MetadataFields::boolean(std::string_view key, bool fallback) {
  const Value* value = file_.find(key);
  const auto* flag = value != nullptr ? std::get_if<bool>(value) : nullptr;
  if (value != nullptr && flag == nullptr) {
    reject(key, "it must be a bool");
  }
  return flag != nullptr ? *flag : fallback;
}

std::string MetadataFields::text(std::string_view key) {
  const Value* value = file_.find(key);
  const auto* text = value != nullptr ? std::get_if<std::string>(value) : nullptr;
  if (value != nullptr && text == nullptr) {
    reject(key, "it must be a string");
  }
  return text != nullptr ? *text : "";
}

const Array* MetadataFields::texts(std::string_view key) {
  const Value* value = file_.find(key);
  const auto* array = value != nullptr ? std::get_if<Array>(value) : nullptr;
  const bool right = array != nullptr && array->type == ValueType::kText;
  return this->array(key, "strings", right, right ? array->texts.size() : 0);
}

const Array* MetadataFields::integers(std::string_view key) {
  const Value* value = file_.find(key);
  const auto* array = value != nullptr ? std::get_if<Array>(value) : nullptr;
  const bool right = array != nullptr && array->type != ValueType::kText &&
                     array->type != ValueType::kArray && array->type != ValueType::kF32 &&
                     array->type != ValueType::kF64;
  return this->array(key, "integers", right, right ? array->integers.size() : 0);
}

const Array* MetadataFields::numbers(std::string_view key) {
  const Value* value = file_.find(key);
  const auto* array = value != nullptr ? std::get_if<Array>(value) : nullptr;
  const bool right =
      array != nullptr && (array->type == ValueType::kF32 || array->type == ValueType::kF64);
  return this->array(key, "numbers", right, right ? array->numbers.size() : 0);
}

const Array* MetadataFields::array(std::string_view key,
                                   std::string_view of,
                                   bool right,
                                   std::size_t kept) {
  const Value* value = file_.find(key);
  if (value == nullptr) {
    return nullptr;
  }
  const auto* array = std::get_if<Array>(value);
  if (!right || array == nullptr || kept != array->count) {
    reject(key, fmt::format("it must be an array of {}", of));
    return nullptr;
  }
  return array;
}

void MetadataFields::reject(std::string_view key, std::string_view right, Code code) {
  const Value* value = file_.find(key);
  fail({code,
        fmt::format("{}: key \"{}\" is {}; {}",
                    file_.name,
                    key,
                    value != nullptr ? describe(*value) : "missing",
                    right)});
}

void MetadataFields::fail(Error error) {
  if (ok()) {
    status_ = std::move(error);
  }
}

}  // namespace heddle::gguf
