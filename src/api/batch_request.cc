#include "api/batch_request.h"

#include <algorithm>
#include <array>

#include "api/body_reader.h"

namespace heddle::api {

namespace {

constexpr auto kEndpoints = std::to_array<std::string_view>(
    {"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"});
constexpr std::size_t kMetadataMost = 16;
constexpr std::size_t kMetadataKeyBytes = 64;
constexpr std::size_t kMetadataBytes = 512;

void read_metadata(BodyReader& body, BatchRequest& request) {
  const auto value = body.find("metadata");
  if (!value) {
    return;
  }
  simdjson::dom::object object;
  if (value->get_object().get(object) != simdjson::SUCCESS || object.size() > kMetadataMost) {
    body.reject("metadata", *value, "an object of at most 16 strings");
    return;
  }
  for (const auto& [key, entry] : object) {
    std::string_view text;
    if (entry.get_string().get(text) != simdjson::SUCCESS || text.size() > kMetadataBytes ||
        key.size() > kMetadataKeyBytes) {
      body.reject("metadata", *value, "names of at most 64 bytes, each with a string of 512");
      return;
    }
  }
  request.metadata = simdjson::minify(*value);
}

}  // namespace

Parsed<BatchRequest> parse_batch_request(std::string_view text) {
  BodyReader body(text);
  BatchRequest request;
  request.input = body.required_text("input_file_id", "the id of a file");
  request.endpoint = body.required_text("endpoint", "/v1/chat/completions");
  const std::string window = body.required_text("completion_window", "24h");
  read_metadata(body, request);
  if (!body.ok()) {
    return body.error();
  }
  if (std::ranges::find(kEndpoints, request.endpoint) == kEndpoints.end()) {
    return invalid_request("endpoint",
                           "endpoint: is \"" + request.endpoint +
                               "\"; want /v1/chat/completions, /v1/completions, "
                               "/v1/embeddings or /v1/responses");
  }
  if (window != "24h") {
    return invalid_request("completion_window",
                           "completion_window: is \"" + window + "\"; want 24h");
  }
  return request;
}

}  // namespace heddle::api
