#pragma once

#include <string>

#include "api/body_reader.h"
#include "api/requests.h"

namespace heddle::api {

/// Reads `instructions` and `input` of a request to /v1/responses into the JSON array of messages
/// that chat templates know. There the thoughts, texts and calls of one turn are items of their
/// own; here they become one message. What is wrong is kept in `body`.
[[nodiscard]] Messages read_conversation(BodyReader& body);

}  // namespace heddle::api
