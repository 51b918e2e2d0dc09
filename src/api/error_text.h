#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "api/error.h"

/// Errors in the form that clients of a path expect.
namespace heddle::api {

/// Whose API a path belongs to, also below a prefix.
enum class ApiForm : std::uint8_t {
  kOpenAi,     ///< And all that is nobody else's.
  kAnthropic,  ///< /v1/messages and what is below it.
  kOllama,     ///< /api/chat and such.
};
[[nodiscard]] ApiForm form_of(std::string_view path);
/// Whether that is Anthropic's.
[[nodiscard]] bool is_anthropic(std::string_view path);

/// The status of an answer to a request for `path`: that of the error or, where Anthropic's clients
/// know a server that is overloaded by 529, that.
[[nodiscard]] int error_status(const ApiError& error, std::string_view path);

/// The body of an answer to a request for `path`:
///
/// - to_json(error);
/// - as Anthropic's API has it, `{"type":"error","error":{"type","message"},"request_id"}` with the
///   type that goes with the status;
/// - as Ollama's has it, `{"error":"message"}`.
/// @param request_id  Left out where it is empty.
[[nodiscard]] std::string error_text(const ApiError& error,
                                     std::string_view path,
                                     std::string_view request_id = {});

/// The same as what ends a stream that has begun: of events or, for Ollama's clients, of lines.
[[nodiscard]] std::string error_events(const ApiError& error,
                                       std::string_view path,
                                       std::string_view request_id = {});

}  // namespace heddle::api
