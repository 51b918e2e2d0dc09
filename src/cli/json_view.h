#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "spec/json.h"

/// Looking into answers of a server that may be of another version: what is not there is empty.
namespace heddle::cli {

/// The string, or number in digits, at the end of a path of keys.
[[nodiscard]] std::string text(const spec::Json& json,
                               std::initializer_list<std::string_view> path);
/// The number there; 0 where there is none.
[[nodiscard]] double number(const spec::Json& json, std::initializer_list<std::string_view> path);
/// The list there.
[[nodiscard]] const spec::Json::Array& items(const spec::Json& json,
                                             std::initializer_list<std::string_view> path);

}  // namespace heddle::cli
