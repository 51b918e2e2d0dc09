#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/conversation.h"
#include "api/error.h"
#include "api/requests.h"

namespace heddle::api {

/// A body of POST /v1/responses, as the chat that it amounts to. The chat's messages are those of
/// the body alone.
struct ResponseRequest {
  ChatRequest chat{};
  std::string instructions{};
  Turns input{};
  std::optional<std::string> previous{};  ///< `previous_response_id`: what `input` continues.
  bool store = false;
  std::vector<std::string> custom_tools{};  ///< Names.
  /// What the response repeats of its request: members of a JSON object, commas between them.
  std::string settings{};
};

/// As the parsers of requests.h. What was not done as asked is in `warnings` of the settings.
[[nodiscard]] Parsed<ResponseRequest> parse_response_request(std::string_view body);

}  // namespace heddle::api
