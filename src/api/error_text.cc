#include "api/error_text.h"

#include <algorithm>
#include <array>
#include <utility>

#include "api/sse.h"
#include "spec/json_writer.h"

namespace heddle::api {

namespace {

constexpr int kUnavailable = 503;
constexpr int kOverloaded = 529;

constexpr std::string_view kMessages = "/v1/messages";
constexpr auto kOllamaPaths = std::to_array<std::string_view>({"/api/blobs",
                                                               "/api/chat",
                                                               "/api/copy",
                                                               "/api/create",
                                                               "/api/delete",
                                                               "/api/embed",
                                                               "/api/embeddings",
                                                               "/api/generate",
                                                               "/api/ps",
                                                               "/api/pull",
                                                               "/api/push",
                                                               "/api/show",
                                                               "/api/tags"});

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
    case kUnavailable:
    case kOverloaded:
      return "overloaded_error";
    case 504:
      return "timeout_error";
    default:
      return status < 500 ? "invalid_request_error" : "api_error";
  }
}

/// Whether `path` has `wanted`, and then ends or goes on below it.
bool leads_to(std::string_view path, std::string_view wanted) {
  const std::size_t at = path.find(wanted);
  if (at == std::string_view::npos) {
    return false;
  }
  const std::string_view rest = path.substr(at + wanted.size());
  return rest.empty() || rest.front() == '/';
}

}  // namespace

bool is_anthropic(std::string_view path) {
  return leads_to(path, kMessages);
}

ApiForm form_of(std::string_view path) {
  if (is_anthropic(path)) {
    return ApiForm::kAnthropic;
  }
  const bool ollama = std::any_of(kOllamaPaths.begin(),
                                  kOllamaPaths.end(),
                                  [path](std::string_view one) { return leads_to(path, one); });
  return ollama ? ApiForm::kOllama : ApiForm::kOpenAi;
}

int error_status(const ApiError& error, std::string_view path) {
  const bool overloaded = error.status == kUnavailable && is_anthropic(path);
  return overloaded ? kOverloaded : error.status;
}

std::string error_text(const ApiError& error, std::string_view path, std::string_view request_id) {
  spec::JsonWriter json;
  switch (form_of(path)) {
    case ApiForm::kOpenAi:
      return to_json(error);
    case ApiForm::kOllama:
      json.begin_object().key("error").string(error.message).end_object();
      return std::move(json).take();
    case ApiForm::kAnthropic:
      break;
  }
  json.begin_object().key("type").string("error").key("error").begin_object();
  json.key("type").string(anthropic_type(error.status)).key("message").string(error.message);
  json.end_object();
  if (!request_id.empty()) {
    json.key("request_id").string(request_id);
  }
  json.end_object();
  return std::move(json).take();
}

std::string error_events(const ApiError& error,
                         std::string_view path,
                         std::string_view request_id) {
  const std::string text = error_text(error, path, request_id);
  switch (form_of(path)) {
    case ApiForm::kAnthropic:
      return sse_event("error", text);
    case ApiForm::kOllama:
      return text + "\n";
    case ApiForm::kOpenAi:
      break;
  }
  return sse_event(text) + sse_event(kDone);
}

}  // namespace heddle::api
