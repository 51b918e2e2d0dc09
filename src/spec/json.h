#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace heddle::spec {

/// A template only so that Json, which holds such members, may be incomplete where it names them.
template <class Value>
struct JsonMemberOf {
  std::string key{};
  Value value{};
};

/// A JSON document held as plain values. For headers and configuration files, which are small and
/// must be checked strictly; requests have a reader of their own.
struct Json {
  using Array = std::vector<Json>;
  using Member = JsonMemberOf<Json>;
  using Object = std::vector<Member>;  ///< In the order of the text; keys are distinct.

  /// Integers are those that fit 64 signed bits; every other number is a double.
  std::variant<std::nullptr_t, bool, std::int64_t, double, std::string, Array, Object> value =
      nullptr;

  template <class T>
  [[nodiscard]] const T* as() const {
    return std::get_if<T>(&value);
  }
  [[nodiscard]] bool is_null() const { return as<std::nullptr_t>() != nullptr; }

  /// The member called `key`, or nullptr if there is none or this is no object.
  [[nodiscard]] const Json* find(std::string_view key) const;
};

/// Parses RFC 8259 JSON in UTF-8. kCorrupt, naming `where`, for anything else, for a key that
/// appears twice in one object (two readers may disagree about which one counts) and for nesting
/// deeper than 64.
[[nodiscard]] Result<Json> parse_json(std::string_view text, std::string_view where);

/// The value as it may stand in a message: `"silu"`, `-4`, `null`, `an array of 3`, `an object`.
[[nodiscard]] std::string describe(const Json& json);

}  // namespace heddle::spec
