#pragma once

#include <string>
#include <string_view>

#include "api/error.h"

/// Errors in the form that clients of a path expect.
namespace heddle::api {

/// Whether `path`, also below a prefix, belongs to Anthropic's messages.
[[nodiscard]] bool is_anthropic(std::string_view path);

/// The body of an answer to a request for `path`: to_json(error), or under /v1/messages, as
/// Anthropic's API has it, `{"type":"error","error":{"type","message"}}` with the type that goes
/// with the status.
[[nodiscard]] std::string error_text(const ApiError& error, std::string_view path);

/// The same as what ends a stream of events that has begun.
[[nodiscard]] std::string error_events(const ApiError& error, std::string_view path);

}  // namespace heddle::api
