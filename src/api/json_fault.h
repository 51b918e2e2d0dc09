#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace heddle::api {

/// Where a text stops being JSON that can be read, and why.
struct JsonFault {
  std::string path{};     ///< Such as "messages[0].content"; empty where no field is at fault.
  std::string message{};  ///< What is wrong there and what would be right; empty: not known.
};

/// Looks for what a parser has refused, up to `depth` brackets deep: numbers that 64 bits do not
/// hold, halves of surrogate pairs, escapes that there are not. Of anything else the message is
/// empty, and the path is that of the value in which the text breaks off.
[[nodiscard]] JsonFault find_json_fault(std::string_view text, std::size_t depth);

/// What of a JSON text makes its document large. Of a text that is none, a guess.
struct JsonCount {
  std::size_t parts = 0;   ///< Objects, lists, keys and strings.
  std::size_t commas = 0;  ///< Outside of strings: further members and items, such as numbers.
};
[[nodiscard]] JsonCount count_json(std::string_view text);

}  // namespace heddle::api
