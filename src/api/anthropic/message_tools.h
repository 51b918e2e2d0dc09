#pragma once

#include "api/body_reader.h"
#include "api/tools.h"

namespace heddle::api {

/// Reads `tools` and `tool_choice` of a request to /v1/messages, whose tools are
/// `{"name", "description", "input_schema"}`. Anthropic's own tools, which have a type, are
/// refused. What is wrong is kept in `body`.
[[nodiscard]] ToolUse read_message_tools(BodyReader& body);

}  // namespace heddle::api
