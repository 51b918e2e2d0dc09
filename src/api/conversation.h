#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "api/body_reader.h"
#include "api/messages.h"
#include "api/requests.h"
#include "spec/json_writer.h"

namespace heddle::api {

/// A part of a conversation, as chat's messages.
struct Turns {
  std::string system{};        ///< What system and developer say before anybody else, joined.
  std::string json{};          ///< The other messages, commas between them.
  std::size_t text_bytes = 0;  ///< As that of Messages, `system` included.

  /// Puts `later` behind it.
  void append(Turns later);
};

/// Puts together the messages that chat templates know, of what an API has in other forms. Parts of
/// the assistant's turn gather until something else comes.
class Conversation {
 public:
  /// A message of that role. The assistant's is the text of a turn; a second one begins another.
  void message(std::string_view role, std::string_view content);
  /// What the assistant thought in the turn that goes on, or begins.
  void thought(std::string_view text);
  /// A call in the assistant's turn. `arguments` are as for arguments_json().
  void call(std::string_view id, std::string_view name, std::string_view arguments);
  /// What the call with this id came to.
  void result(std::string_view id, std::string_view output);
  /// All of it. A thought without a text or a call is left out.
  [[nodiscard]] Turns take();

 private:
  void close_turn();

  Turns turns_{};
  std::string reasoning_{};
  std::optional<std::string> text_{};
  std::string calls_{};
  std::size_t parts_left_ = kArgumentPartsMax;
};

/// The arguments of a function that takes one text: what a call of a custom tool becomes.
[[nodiscard]] std::string custom_arguments(std::string_view input);

/// Reads `input` of a request to /v1/responses. What is wrong is kept in `body`; items that only
/// tell of the doings of OpenAI's own tools are left out, with a warning.
[[nodiscard]] Turns read_turns(BodyReader& body);

/// All of a conversation as chat has it, the instructions (which may be empty) first.
[[nodiscard]] Messages chat_messages(std::string_view instructions, const Turns& turns);

}  // namespace heddle::api
