#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace heddle::spec {

/// Reads the inside of one JSON string as it comes, a byte at a time, escapes resolved (RFC 8259,
/// section 7). What is no escape, and halves of surrogate pairs, become U+FFFD. Owned by one
/// thread.
class JsonStringReader {
 public:
  /// Takes the next byte behind the opening quote, and appends to `out` what it completes. False
  /// when it is the closing quote, after which nothing may come.
  bool push(char c, std::string& out);

 private:
  void resolve(std::string& out);
  void add(std::uint32_t unit, std::string& out);

  std::string escape_{};    ///< One that is only begun, from its backslash on.
  std::uint32_t high_ = 0;  ///< The first half of a surrogate pair; 0: none.
};

/// All of the string whose inside is `inside`, as far as that goes.
[[nodiscard]] std::string json_string_text(std::string_view inside);

}  // namespace heddle::spec
