#pragma once

#include "api/body_reader.h"
#include "api/requests.h"

namespace heddle::api {

/// Reads what chat and plain completions have in common. What is wrong is kept in `body`.
[[nodiscard]] GenerationParams read_generation_params(BodyReader& body);

/// Reads `messages` into a JSON array for the chat template: roles checked, contents that are lists
/// of text parts joined. What is wrong is kept in `body`.
[[nodiscard]] std::string read_messages(BodyReader& body);

/// Reads `chat_template_kwargs` (and `reasoning_effort`, which is one) into a JSON object.
[[nodiscard]] std::string read_template_variables(BodyReader& body);

}  // namespace heddle::api
