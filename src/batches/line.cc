#include "batches/line.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "api/object_text.h"
#include "spec/json_writer.h"

namespace heddle::batches {

using api::ObjectText;

namespace {

constexpr std::string_view kIdBegin = R"({"id":"batch_req_)";

std::optional<Fault> wrong(std::string code, std::string message) {
  return Fault{.code = std::move(code), .message = std::move(message)};
}

/// What is wrong with what stands beside the body.
std::optional<Fault> wrong_frame(const ObjectText& line,
                                 const Request& request,
                                 std::string_view endpoint) {
  if (request.custom_id.empty() || request.custom_id.size() > kCustomIdBytesMax) {
    return wrong(
        "invalid_custom_id",
        "custom_id: want a string of 1 to " + std::to_string(kCustomIdBytesMax) + " bytes");
  }
  if (line.string("method") != "POST") {
    return wrong("invalid_method", "method: want \"POST\"");
  }
  if (line.string("url") != endpoint) {
    return wrong("mismatched_url",
                 "url: want \"" + std::string(endpoint) + "\", as the batch has it");
  }
  return std::nullopt;
}

std::optional<Fault> wrong_body(const Result<ObjectText>& body, Request& request) {
  if (!body) {
    return wrong("invalid_body", "body: " + body.error().message);
  }
  if (body->is_true("stream")) {
    return wrong("invalid_body", "stream: a batch has no streams; leave it out");
  }
  request.model = body->string("model").value_or("");
  if (request.model.empty()) {
    return wrong("invalid_body", "model: is missing; want the name of a model");
  }
  return std::nullopt;
}

std::string line_id(const std::string& batch, std::size_t number) {
  return "batch_req_" + batch.substr(batch.find('_') + 1) + "_" + std::to_string(number);
}

/// JSON on one line: what ends lines cannot be inside of strings.
void write_body(spec::JsonWriter& json, std::string body) {
  if (ObjectText::scan(body)) {
    std::ranges::replace(body, '\n', ' ');
    std::ranges::replace(body, '\r', ' ');
    json.json(body);
  } else {
    json.string(body);
  }
}

}  // namespace

ReadLine read_line(std::string_view text, std::string_view endpoint) {
  ReadLine read;
  const Result<ObjectText> line = ObjectText::scan(text);
  if (!line) {
    read.fault = wrong("invalid_json_line", line.error().message);
    return read;
  }
  read.request.custom_id = line->string("custom_id").value_or("");
  read.fault = wrong_frame(*line, read.request, endpoint);
  if (read.fault) {
    return read;
  }
  const std::string_view body = line->find("body").value_or("");
  read.fault = wrong_body(ObjectText::scan(body), read.request);
  if (!read.fault) {
    read.request.body = body;
  }
  return read;
}

std::string answer_line(const std::string& batch,
                        std::size_t number,
                        const std::string& custom_id,
                        int status,
                        const std::string& request_id,
                        std::string body) {
  spec::JsonWriter json;
  json.begin_object().key("id").string(line_id(batch, number));
  json.key("custom_id").string(custom_id).key("response").begin_object();
  json.key("status_code").integer(status).key("request_id").string(request_id).key("body");
  write_body(json, std::move(body));
  json.end_object().key("error").null().end_object();
  return std::move(json).take() + "\n";
}

std::string fault_line(const std::string& batch,
                       std::size_t number,
                       const std::string& custom_id,
                       const Fault& fault) {
  spec::JsonWriter json;
  json.begin_object().key("id").string(line_id(batch, number)).key("custom_id");
  if (custom_id.empty()) {
    json.null();
  } else {
    json.string(custom_id);
  }
  json.key("response").null().key("error").begin_object().key("code").string(fault.code);
  json.key("message").string(fault.message).key("line").integer(number + 1);
  json.end_object().end_object();
  return std::move(json).take() + "\n";
}

std::optional<std::size_t> number_of(std::string_view written) {
  if (!written.starts_with(kIdBegin)) {
    return std::nullopt;
  }
  const std::string_view id =
      written.substr(kIdBegin.size(), written.find('"', kIdBegin.size()) - kIdBegin.size());
  const std::string_view digits = id.substr(std::min(id.rfind('_') + 1, id.size()));
  std::size_t number = 0;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const bool whole = failure == std::errc() && end == digits.data() + digits.size();
  return whole ? std::optional(number) : std::nullopt;
}

}  // namespace heddle::batches
