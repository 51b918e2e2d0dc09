#include "api/error.h"

#include <utility>

#include "spec/json_writer.h"

namespace heddle::api {

namespace {

constexpr std::size_t kMessageMax = 2048;
constexpr std::size_t kParamMax = 128;
constexpr std::size_t kNameMax = 128;

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
          .message = "model \"" + shortened(model, kNameMax) + "\" does not exist; " +
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
  switch (error.code) {
    case Code::kInvalidArgument:
      return invalid_request("", error.message);
    case Code::kNotFound: {
      ApiError answer = invalid_request("", error.message);
      answer.status = 404;
      return answer;
    }
    case Code::kFailedPrecondition: {
      ApiError answer = invalid_request("", error.message);
      answer.status = 409;
      return answer;
    }
    case Code::kResourceExhausted:
      return concurrency_limit(error.message);
    case Code::kUnavailable:
      return unavailable(error.message);
    case Code::kDeadlineExceeded:
      return {.status = 504,
              .message = error.message,
              .type = "server_error",
              .code = "gateway_timeout"};
    case Code::kCancelled:
      // Nobody reads it: the number that logs have for a client that went away.
      return {.status = 499, .message = error.message, .type = "server_error", .code = "cancelled"};
    case Code::kCorrupt:
      return {
          .status = 500, .message = error.message, .type = "server_error", .code = "corrupt_model"};
  }
  return {.status = 500, .message = error.message, .type = "server_error"};
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
