#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "text/tokenizer.h"
#include "text/utf8_stream.h"

namespace heddle::text {

/// Decodes one token at a time. What push and flush return, put together, is exactly what
/// Tokenizer::decode gives for all the ids at once, and each part of it is valid UTF-8.
///
/// Text is held back only while a later token could change it: an unfinished character of a
/// byte-level tokenizer (three bytes at most), or a run of byte-fallback tokens, which decodes to
/// U+FFFD as a whole if any part of it is invalid and so is known only when it ends.
///
/// Amortised O(bytes of the token) for each push. Owned by one thread.
class Detokenizer {
 public:
  Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, ShowSpecial special);

  /// Text that became final with `id`. An id that no token has adds nothing.
  std::string push(TokenId id);

  /// The rest of the text, after the last token. The next push starts a new text.
  std::string flush();

 private:
  void end_byte_run(std::string& out);
  void strip_start(std::string& out);

  std::shared_ptr<const Tokenizer> tokenizer_;
  ShowSpecial special_;
  bool started_ = false;          ///< A token was decoded.
  std::uint32_t strip_left_ = 0;  ///< How many characters may still go from the start.
  std::string byte_run_;          ///< Byte-fallback tokens since the last other one.
  Utf8Stream fragments_;
};

}  // namespace heddle::text
