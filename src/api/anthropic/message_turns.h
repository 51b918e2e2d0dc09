#pragma once

#include <string>

#include "api/body_reader.h"
#include "api/requests.h"

namespace heddle::api {

/// A conversation as Anthropic's API has it.
struct MessageTurns {
  Messages messages{};
  /// Where the last turn is the assistant's and has no calls: its text, which the model goes on
  /// from. It is no part of `messages`.
  std::string answer_begins{};
};

/// Reads `system` and `messages` of a request to /v1/messages. Contents are texts or lists of
/// blocks of the types text, thinking, tool_use, tool_result, and document where it is a text.
/// Messages of one role that follow on each other are one turn. What is wrong is kept in `body`.
[[nodiscard]] MessageTurns read_message_turns(BodyReader& body);

}  // namespace heddle::api
