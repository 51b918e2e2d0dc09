#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "base/result.h"

namespace heddle::api {

/// An error as clients get it: OpenAI's object and the HTTP status that goes with it.
struct ApiError {
  int status = 500;
  std::string message{};  ///< For people: what, where, and what would be right.
  std::string type{};     ///< invalid_request_error, authentication_error, rate_limit_error, ...
  std::string param{};    ///< The field that is wrong; empty (null in JSON) where none is.
  std::string code{};     ///< For programs; empty (null in JSON) where there is none.
  std::int32_t retry_after = 0;  ///< Seconds for the Retry-After header; 0: none.
};

/// A value, or what to tell the client instead.
template <class T>
using Parsed = std::variant<T, ApiError>;

/// `text` up to so many bytes, and no broken character at its end.
[[nodiscard]] std::string_view shorten(std::string_view text, std::size_t bytes);

/// Status 400: `param` is wrong, and `message` says so. What clients put in either may be long, and
/// is shortened.
[[nodiscard]] ApiError invalid_request(std::string param, std::string message);
/// Status 400, code not_supported: `param` is known but not implemented.
[[nodiscard]] ApiError not_supported(std::string param, std::string message);
/// Status 404, code model_not_found; `known` are the names that would be right.
[[nodiscard]] ApiError model_not_found(const std::string& model, const std::string& known);
/// Status 429 with Retry-After.
[[nodiscard]] ApiError concurrency_limit(std::string message);
/// Status 503 with Retry-After: the server is ending, or full.
[[nodiscard]] ApiError unavailable(std::string message);

/// `message` with every path of this machine cut to its last part: "open /srv/models/x/config.json"
/// becomes "open config.json". URLs and paths of the API stay.
[[nodiscard]] std::string without_paths(std::string_view message);

/// What an error from within means to the client, without_paths().
[[nodiscard]] ApiError from_error(const Error& error);
/// The same where it is about a field.
[[nodiscard]] ApiError from_error(const Error& error, std::string param);

/// `{"error":{"message","type","param","code"}}`.
[[nodiscard]] std::string to_json(const ApiError& error);

}  // namespace heddle::api
