#pragma once

#include <string>
#include <string_view>

namespace heddle::text {

/// U+FFFD, which stands for what is no character.
inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

/// Turns bytes that arrive in any portions into valid UTF-8. What cannot be part of a character
/// becomes U+FFFD, one for each maximal invalid part (Unicode 15, section 3.9, best practice for
/// U+FFFD substitution), so that the result does not depend on the portions.
class Utf8Stream {
 public:
  /// Appends to `out` every character that `bytes` completes. At most three bytes stay behind.
  void push(std::string_view bytes, std::string& out);

  /// Ends the text: an unfinished character becomes U+FFFD. The next push starts a new text.
  void flush(std::string& out);

 private:
  std::string pending_;  ///< A proper prefix of some character, or empty.
};

}  // namespace heddle::text
