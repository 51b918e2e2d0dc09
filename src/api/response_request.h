#pragma once

#include <string>
#include <string_view>

#include "api/error.h"
#include "api/requests.h"

namespace heddle::api {

/// A body of POST /v1/responses, as the chat that it amounts to.
struct ResponseRequest {
  ChatRequest chat{};
  /// What the response repeats of its request: members of a JSON object, commas between them.
  std::string settings{};
};

/// As the parsers of requests.h. Responses are not kept, so what needs earlier ones is refused.
[[nodiscard]] Parsed<ResponseRequest> parse_response_request(std::string_view body);

}  // namespace heddle::api
