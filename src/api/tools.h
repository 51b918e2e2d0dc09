#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/body_reader.h"

namespace heddle::api {

/// A function that the model may call.
struct Tool {
  std::string name{};
  std::string parameters{};  ///< The JSON schema of its arguments.
  bool custom = false;       ///< In responses: it takes a text, which is its argument `input`.
};

enum class ToolChoice : std::uint8_t {
  kNone,      ///< No calls; the model does not hear of the tools.
  kAuto,      ///< The model decides.
  kRequired,  ///< At least one call.
  kNamed,     ///< A call of the tool `named`.
};

/// The tools of a request and how they may be used.
struct ToolUse {
  std::string json{};        ///< Chat's form of `tools`, for the template; empty without any.
  std::vector<Tool> list{};  ///< The same; names are distinct.
  ToolChoice choice = ToolChoice::kNone;
  std::string named{};
  bool parallel = true;  ///< Several calls in one answer.

  /// Whether the answer must consist of calls.
  [[nodiscard]] bool forced() const {
    return choice == ToolChoice::kRequired || choice == ToolChoice::kNamed;
  }
  /// Whether there may be more than one call.
  [[nodiscard]] bool several() const { return parallel && choice != ToolChoice::kNamed; }
};

/// Reads `tools`, `tool_choice` and `parallel_tool_calls` of a chat. What is wrong is kept in
/// `body`.
[[nodiscard]] ToolUse read_chat_tools(BodyReader& body);
/// The same of a request to /v1/responses, where a tool's name and parameters stand beside its
/// type. A custom tool is a function of one text. Tools that OpenAI's servers run are left out,
/// with a warning, unless they are forced.
[[nodiscard]] ToolUse read_response_tools(BodyReader& body);

}  // namespace heddle::api
