#include "api/error_text.h"

#include <utility>

#include "api/sse.h"
#include "spec/json_writer.h"

namespace heddle::api {

namespace {

constexpr std::string_view kMessages = "/v1/messages";

std::string_view anthropic_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    case 504:
      return "timeout_error";
    default:
      return status < 500 ? "invalid_request_error" : "api_error";
  }
}

}  // namespace

bool is_anthropic(std::string_view path) {
  const std::size_t at = path.find(kMessages);
  if (at == std::string_view::npos) {
    return false;
  }
  const std::string_view rest = path.substr(at + kMessages.size());
  return rest.empty() || rest.front() == '/';
}

std::string error_text(const ApiError& error, std::string_view path) {
  if (!is_anthropic(path)) {
    return to_json(error);
  }
  spec::JsonWriter json;
  json.begin_object().key("type").string("error").key("error").begin_object();
  json.key("type").string(anthropic_type(error.status)).key("message").string(error.message);
  json.end_object().end_object();
  return std::move(json).take();
}

std::string error_events(const ApiError& error, std::string_view path) {
  const std::string text = error_text(error, path);
  return is_anthropic(path) ? sse_event("error", text) : sse_event(text) + sse_event(kDone);
}

}  // namespace heddle::api
