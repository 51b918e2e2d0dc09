#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "api/body_reader.h"
#include "api/requests.h"
#include "spec/json_writer.h"

namespace heddle::api {

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
  [[nodiscard]] Messages take();

 private:
  void close_turn();

  spec::JsonWriter json_ = std::move(spec::JsonWriter().begin_array());
  std::size_t text_bytes_ = 0;
  std::string reasoning_{};
  std::optional<std::string> text_{};
  std::string calls_{};
};

/// Reads `instructions` and `input` of a request to /v1/responses into the JSON array of messages
/// that chat templates know. There the thoughts, texts and calls of one turn are items of their
/// own; here they become one message. What is wrong is kept in `body`.
[[nodiscard]] Messages read_conversation(BodyReader& body);

}  // namespace heddle::api
