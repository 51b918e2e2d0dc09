#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "spec/json.h"

/// Looking into what another program wrote, which may be of another version: what is not there, or
/// of another type, is absent. What has to be right is read with json_fields.h.
namespace heddle::spec {

/// Keys of objects, each in the one before.
using JsonPath = std::initializer_list<std::string_view>;

/// The value at the end of a path; nullptr where there is none.
[[nodiscard]] const Json* value_at(const Json& json, JsonPath path);

/// The value there if it is a `T`, as Json holds them; else nullptr.
template <class T>
[[nodiscard]] const T* value_at(const Json& json, JsonPath path) {
  const Json* found = value_at(json, path);
  return found == nullptr ? nullptr : found->as<T>();
}

/// The string there, or whole number in digits; else empty.
[[nodiscard]] std::string text_at(const Json& json, JsonPath path);
/// The number there; else 0.
[[nodiscard]] double number_at(const Json& json, JsonPath path);
/// The list there; else an empty one.
[[nodiscard]] const Json::Array& items_at(const Json& json, JsonPath path);

}  // namespace heddle::spec
