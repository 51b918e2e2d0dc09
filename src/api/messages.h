#pragma once

#include <string>
#include <string_view>

#include "api/body_reader.h"
#include "api/requests.h"

namespace heddle::api {

/// Reads `messages` for the chat template: roles checked, contents that are lists
/// of text parts joined, arguments of calls as JSON where OpenAI has them as a string. What is
/// wrong is kept in `body`.
[[nodiscard]] Messages read_messages(BodyReader& body);

/// Arguments of a call as templates want them: the JSON object that `text` holds, or a string where
/// it holds none.
[[nodiscard]] std::string arguments_json(std::string_view text);

}  // namespace heddle::api
