#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "text/chat_template.h"
#include "text/text_model.h"

/// What a model is told of tools that its own chat template does not speak of.
namespace heddle::text {

/// Asks for an answer of calls in ToolFormat::kGeneric.
/// @param tools    JSON array of {"type": "function", "function": {"name": ...}}.
/// @param named    The only tool to speak of; empty for all.
/// @param several  Whether there may be more than one call.
[[nodiscard]] std::string tool_instructions(std::string_view tools,
                                            std::string_view named,
                                            bool several);

/// `chat` as a prompt that tells `instructions`: at the end of the system message that the
/// conversation begins with, or in one of their own, or, where the template refuses such messages,
/// before the text of the first user message. A template that leaves system messages out, as of a
/// model that takes no instructions, leaves these out as well. Fails as TextModel::render.
[[nodiscard]] Result<std::string> render_with_instructions(const TextModel& model,
                                                           const Chat& chat,
                                                           std::string_view instructions);

}  // namespace heddle::text
