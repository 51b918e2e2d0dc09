#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "api/body_reader.h"
#include "api/requests.h"

namespace heddle::api {

/// Reads `messages` for the chat template: roles checked, contents that are lists
/// of text parts joined, arguments of calls as JSON where OpenAI has them as a string. What is
/// wrong is kept in `body`.
[[nodiscard]] Messages read_messages(BodyReader& body);

/// Values that the arguments of all calls of a request may hold together: a string is one part of a
/// body, whatever it holds, and templates need many times its bytes.
inline constexpr std::size_t kArgumentPartsMax = std::size_t{1} << 16U;

/// Arguments of a call as templates want them: the JSON object that `text` holds, or a string where
/// it holds none, or more values than `parts_left`, which it takes them from.
[[nodiscard]] std::string arguments_json(std::string_view text, std::size_t& parts_left);

/// Arguments that a model wrote, as the JSON object that they are; {} where they are none, as those
/// of a call that was cut off.
[[nodiscard]] std::string object_json(std::string_view text);

}  // namespace heddle::api
