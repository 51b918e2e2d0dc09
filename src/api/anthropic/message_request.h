#pragma once

#include <string_view>

#include "api/error.h"
#include "api/requests.h"

namespace heddle::api {

/// A body of POST /v1/messages, as the chat that it amounts to. As the parsers of requests.h; what
/// Anthropic runs itself (its tools, containers, MCP servers) is refused.
[[nodiscard]] Parsed<ChatRequest> parse_message_request(std::string_view body);

/// A body of POST /v1/messages/count_tokens: the same without what bounds and shapes an answer.
[[nodiscard]] Parsed<ChatRequest> parse_message_count_request(std::string_view body);

}  // namespace heddle::api
