#include "spec/json.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include <simdjson.h>

namespace heddle::spec {
namespace {

constexpr std::size_t kDepthMax = 64;
constexpr std::size_t kShownMax = 60;  // Characters of a string that a message repeats.

namespace dom = simdjson::dom;

/// The first key that appears twice, if one does.
std::string_view duplicate_key(const Json::Object& object) {
  std::vector<std::string_view> keys;
  keys.reserve(object.size());
  for (const Json::Member& member : object) {
    keys.push_back(member.key);
  }
  std::sort(keys.begin(), keys.end());
  const auto found = std::adjacent_find(keys.begin(), keys.end());
  return found == keys.end() ? std::string_view() : *found;
}

/// Copies a parsed element out. The parser has bounded the depth of the recursion.
class Copier {
 public:
  explicit Copier(std::string_view where) : where_(where) {}

  Result<Json> copy(dom::element element) {
    switch (element.type()) {
      case dom::element_type::ARRAY:
        return copy_array(dom::array(element));
      case dom::element_type::OBJECT:
        return copy_object(dom::object(element));
      case dom::element_type::STRING:
        return Json{std::string(std::string_view(element))};
      case dom::element_type::INT64:
        return Json{std::int64_t{element}};
      case dom::element_type::UINT64:  // Only what does not fit int64 has this type.
        return Json{static_cast<double>(std::uint64_t{element})};
      case dom::element_type::DOUBLE:
        return Json{double{element}};
      case dom::element_type::BOOL:
        return Json{bool{element}};
      case dom::element_type::NULL_VALUE:
        return Json{};
    }
    return Json{};
  }

 private:
  Result<Json> copy_array(dom::array array) {
    Json::Array out;
    out.reserve(array.size());
    for (const dom::element item : array) {
      Result<Json> value = copy(item);
      if (!value) {
        return value;
      }
      out.push_back(std::move(value).value());
    }
    return Json{std::move(out)};
  }

  Result<Json> copy_object(dom::object object) {
    Json::Object out;
    out.reserve(object.size());
    for (const dom::key_value_pair member : object) {
      Result<Json> value = copy(member.value);
      if (!value) {
        return value;
      }
      out.push_back({std::string(member.key), std::move(value).value()});
    }
    // The doubled key may be empty, hence the look at the pointer.
    if (const std::string_view key = duplicate_key(out); key.data() != nullptr) {
      return Error{Code::kCorrupt,
                   fmt::format("{}: the key \"{}\" appears twice in one object", where_, key)};
    }
    return Json{std::move(out)};
  }

  std::string_view where_;
};

}  // namespace

const Json* Json::find(std::string_view key) const {
  if (const Object* object = as<Object>()) {
    for (const Json::Member& member : *object) {
      if (member.key == key) {
        return &member.value;
      }
    }
  }
  return nullptr;
}

Result<Json> parse_json(std::string_view text, std::string_view where) {
  dom::parser parser;
  dom::element root;
  simdjson::error_code error = parser.allocate(text.size(), kDepthMax);
  if (error == simdjson::SUCCESS) {
    error = parser.parse(text.data(), text.size(), /*realloc_if_needed=*/true).get(root);
  }
  if (error != simdjson::SUCCESS) {
    return Error{Code::kCorrupt,
                 fmt::format("{}: not valid JSON: {}", where, simdjson::error_message(error))};
  }
  return Copier(where).copy(root);
}

std::string describe(const Json& json) {
  if (const auto* text = json.as<std::string>()) {
    const bool whole = text->size() <= kShownMax;
    return fmt::format("\"{}{}\"", text->substr(0, kShownMax), whole ? "" : "...");
  }
  if (const auto* array = json.as<Json::Array>()) {
    return fmt::format("an array of {}", array->size());
  }
  if (const auto* integer = json.as<std::int64_t>()) {
    return fmt::format("{}", *integer);
  }
  if (const auto* number = json.as<double>()) {
    return fmt::format("{}", *number);
  }
  if (const auto* boolean = json.as<bool>()) {
    return *boolean ? "true" : "false";
  }
  return json.is_null() ? "null" : "an object";
}

}  // namespace heddle::spec
