#include "api/error.h"

#include <algorithm>
#include <utility>

#include "spec/json_writer.h"

namespace heddle::api {

namespace {

constexpr std::size_t kMessageMax = 2048;
constexpr std::size_t kParamMax = 128;
constexpr std::size_t kModelNameMax = 128;

std::string shortened(std::string text, std::size_t bytes) {
  const std::size_t kept = shorten(text, bytes).size();
  if (kept < text.size()) {
    text.resize(kept);
    text += "...";
  }
  return text;
}

void text_or_null(spec::JsonWriter& json, const std::string& text) {
  if (text.empty()) {
    json.null();
  } else {
    json.string(text);
  }
}

bool begins_path(std::string_view text, std::size_t at) {
  constexpr std::string_view kBefore = " \t\n\"'`([{<=,;:";
  return text[at] == '/' && (at == 0 || kBefore.find(text[at - 1]) != std::string_view::npos);
}

}  // namespace

std::string_view shorten(std::string_view text, std::size_t bytes) {
  if (text.size() <= bytes) {
    return text;
  }
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xC0U) == 0x80U) {
    --bytes;
  }
  return text.substr(0, bytes);
}

std::string without_paths(std::string_view message) {
  constexpr std::string_view kQuotes = "\"'`";
  constexpr std::string_view kUrlEnds = " \t\n\"'`";
  constexpr std::string_view kAfter = " \t\n\"'`)]}>,;:";
  std::string told;
  for (std::size_t at = 0; at < message.size();) {
    const std::string_view rest = message.substr(at);
    const bool url = rest.starts_with("://");
    if (!url && !begins_path(message, at)) {
      told += message[at++];
      continue;
    }
    const char before = at > 0 ? message[at - 1] : ' ';
    const bool quoted = kQuotes.find(before) != std::string_view::npos;
    const std::string_view after = url ? kUrlEnds : kAfter;
    const std::size_t found = quoted ? rest.find(before) : rest.find_first_of(after);
    const std::size_t end = std::min(found, rest.size());
    std::string_view word = rest.substr(0, end);
    at += end;
    if (!url && !word.starts_with("/v1/") && !word.starts_with("/api/")) {  // Those are the API's.
      const std::string_view named = word.substr(0, word.find_last_not_of('/') + 1);
      const std::size_t slash = named.rfind('/');
      word = slash == 0 || slash == std::string_view::npos ? word : named.substr(slash + 1);
    }
    told += word;
  }
  return told;
}

ApiError invalid_request(std::string param, std::string message) {
  return {.status = 400,
          .message = shortened(std::move(message), kMessageMax),
          .type = "invalid_request_error",
          .param = shortened(std::move(param), kParamMax)};
}

ApiError not_supported(std::string param, std::string message) {
  ApiError error = invalid_request(std::move(param), std::move(message));
  error.code = "not_supported";
  return error;
}

ApiError model_not_found(const std::string& model, const std::string& known) {
  return {.status = 404,
          .message = "model \"" + shortened(model, kModelNameMax) + "\" does not exist; " +
                     (known.empty() ? "no models are configured" : "there are " + known),
          .type = "invalid_request_error",
          .param = "model",
          .code = "model_not_found"};
}

ApiError concurrency_limit(std::string message) {
  return {.status = 429,
          .message = std::move(message),
          .type = "rate_limit_error",
          .code = "concurrency_limit",
          .retry_after = 1};
}

ApiError unavailable(std::string message) {
  return {.status = 503,
          .message = std::move(message),
          .type = "server_error",
          .code = "service_unavailable",
          .retry_after = 5};
}

ApiError from_error(const Error& error) {
  std::string message = without_paths(error.message);
  switch (error.code) {
    case Code::kInvalidArgument:
      return invalid_request("", std::move(message));
    case Code::kNotFound: {
      ApiError answer = invalid_request("", std::move(message));
      answer.status = 404;
      return answer;
    }
    case Code::kFailedPrecondition: {
      ApiError answer = invalid_request("", std::move(message));
      answer.status = 409;
      return answer;
    }
    case Code::kResourceExhausted:
      return concurrency_limit(std::move(message));
    case Code::kUnavailable:
      return unavailable(std::move(message));
    case Code::kDeadlineExceeded:
      return {.status = 504,
              .message = std::move(message),
              .type = "server_error",
              .code = "gateway_timeout"};
    case Code::kCancelled:
      // Nobody reads it: the number that logs have for a client that went away.
      return {.status = 499,
              .message = std::move(message),
              .type = "server_error",
              .code = "cancelled"};
    case Code::kCorrupt:
      return {.status = 500,
              .message = std::move(message),
              .type = "server_error",
              .code = "corrupt_model"};
  }
  return {.status = 500, .message = std::move(message), .type = "server_error"};
}

ApiError from_error(const Error& error, std::string param) {
  ApiError answer = from_error(error);
  answer.param = std::move(param);
  return answer;
}

std::string to_json(const ApiError& error) {
  spec::JsonWriter json;
  json.begin_object().key("error").begin_object();
  json.key("message").string(error.message).key("type").string(error.type).key("param");
  text_or_null(json, error.param);
  json.key("code");
  text_or_null(json, error.code);
  json.end_object().end_object();
  return std::move(json).take();
}

}  // namespace heddle::api
