#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "api/answer_writer.h"

namespace heddle::api {

/// The writer of /v1/messages: an answer is a list of blocks (thinking, text, tool_use), and a
/// stream tells by named events how they begin, grow and end. White space that would stand alone in
/// a text before a call is left out.
/// @param prompt_tokens  What a stream says of the prompt as it begins; its end says how many of
///                       them were cached.
[[nodiscard]] std::unique_ptr<AnswerWriter> message_writer(AnswerHead head,
                                                           std::int64_t prompt_tokens);

/// Of POST /v1/messages/count_tokens.
[[nodiscard]] std::string message_count_json(std::int64_t tokens);

}  // namespace heddle::api
