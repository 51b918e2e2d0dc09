#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/error.h"
#include "base/ids.h"
#include "gateway/text_reading.h"
#include "text/chat_template.h"
#include "text/text_model.h"

namespace heddle::gateway {

/// A conversation on its way to tokens, in steps for the text pool.
class ChatReading {
 public:
  /// All is lent until the last step.
  /// @param continued     The text of the last message, where that is to be gone on with.
  /// @param instructions  For text::render_plainly, where the template does not know of tools.
  /// @param begun         What stands after all that, which the model goes on from.
  ChatReading(const text::TextModel& model,
              const text::Chat& chat,
              text::SpecialTokens special,
              TextBounds bounds,
              std::optional<std::string> instructions = {},
              std::string_view begun = {},
              std::optional<std::string> continued = {})
      : model_(model),
        chat_(chat),
        instructions_(std::move(instructions)),
        begun_(begun),
        continued_(std::move(continued)),
        special_(special),
        bounds_(std::move(bounds)) {}

  /// As that of TextReading; the first renders.
  bool step();
  /// The last bytes of what was rendered.
  [[nodiscard]] std::string end() const;
  [[nodiscard]] api::Parsed<std::vector<TokenId>> take();

 private:
  const text::TextModel& model_;
  const text::Chat& chat_;
  std::optional<std::string> instructions_;
  std::string_view begun_;
  std::optional<std::string> continued_;
  text::SpecialTokens special_;
  TextBounds bounds_;
  std::optional<Result<std::string>> prompt_{};
  std::optional<TextReading> reading_{};
};

/// What a conversation that cannot be rendered means to the client.
[[nodiscard]] api::ApiError conversation_error(const Error& error);

}  // namespace heddle::gateway
