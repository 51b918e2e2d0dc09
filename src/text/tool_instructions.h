#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "text/chat_template.h"
#include "text/text_model.h"

/// Tools in the prompt of a model whose own chat template does not speak of them.
namespace heddle::text {

/// Asks for an answer of calls in ToolFormat::kGeneric.
/// @param tools    JSON array of {"type": "function", "function": {"name": ...}}.
/// @param named    The only tool to speak of; empty for all.
/// @param several  Whether there may be more than one call.
[[nodiscard]] std::string tool_instructions(std::string_view tools,
                                            std::string_view named,
                                            bool several);

/// `chat` as the prompt of a model whose template knows nothing of tools. Fails as
/// TextModel::render.
///
/// Earlier calls become text of the assistant's, in ToolFormat::kGeneric, and their results text of
/// the user's, as templates refuse roles that they do not know.
///
/// @param instructions  Are told, if not empty, at the end of the system message that the
///                      conversation begins with, or in one of their own, or, where the template
///                      refuses such messages, before the text of the first user message. A
///                      template that leaves system messages out leaves these out as well.
[[nodiscard]] Result<std::string> render_plainly(const TextModel& model,
                                                 const Chat& chat,
                                                 std::string_view instructions);

}  // namespace heddle::text
