#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace heddle::text {

/// Finds the end of a generated text: the first place where one of several strings is complete,
/// wherever the borders of the portions fall (of two complete at the same place, the longer one).
///
/// Holds back only what could still turn out to be the start of a stop string. Text and stop
/// strings being UTF-8, it never splits a character. Linear in text times number of stop strings
/// (Knuth, Morris and Pratt, 1977). Owned by one thread.
class StopStrings {
 public:
  /// What one portion of text gives.
  struct Found {
    std::string text{};                 ///< Final: shown to the client before anything later.
    std::optional<std::size_t> stop{};  ///< Index of the stop string that ended the text.
  };

  /// kInvalidArgument for an empty stop string or one that is not UTF-8, naming its index.
  static Result<StopStrings> make(std::vector<std::string> stops);

  /// Takes the next portion. Once a stop was found the text has ended and nothing more may come.
  Found push(std::string_view text);

  /// What was held back, when the text ends without a stop string.
  std::string flush();

 private:
  /// One stop string being looked for.
  struct Search {
    std::string wanted{};
    /// border[n]: length of the longest proper prefix of wanted that ends its first n bytes.
    std::vector<std::size_t> border{};
    std::size_t matched = 0;  ///< Bytes of wanted that end the text so far.

    explicit Search(std::string stop);
    /// Whether the text, with this byte, ends in wanted.
    bool advance(char byte);
  };

  explicit StopStrings(std::vector<std::string> stops);

  std::vector<Search> searches_;
  std::string held_;  ///< The end of the text that may be the start of a stop string.
  bool ended_ = false;
};

}  // namespace heddle::text
