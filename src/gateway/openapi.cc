#include "gateway/openapi.h"

#include <algorithm>
#include <set>
#include <utility>

#include "api/error_text.h"
#include "spec/json_writer.h"

namespace heddle::gateway {

using spec::JsonWriter;

namespace {

constexpr std::string_view kErrors = R"({
"OpenAiError":{"type":"object","properties":{"error":{"type":"object","properties":{
"message":{"type":"string"},"type":{"type":"string"},"param":{"type":["string","null"]},
"code":{"type":["string","null"]}}}}},
"AnthropicError":{"type":"object","properties":{"type":{"const":"error"},
"error":{"type":"object","properties":{"type":{"type":"string"},"message":{"type":"string"}}},
"request_id":{"type":"string"}}},
"OllamaError":{"type":"object","properties":{"error":{"type":"string"}}})";

/// The method as the document has it: "post".
std::string method_key(std::string_view method) {
  std::string key(method);
  std::transform(
      key.begin(), key.end(), key.begin(), [](char c) { return static_cast<char>(c - 'A' + 'a'); });
  return key;
}

std::string_view error_name(std::string_view path) {
  switch (api::form_of(path)) {
    case api::ApiForm::kAnthropic:
      return "AnthropicError";
    case api::ApiForm::kOllama:
      return "OllamaError";
    case api::ApiForm::kOpenAi:
      break;
  }
  return "OpenAiError";
}

std::string_view role_name(Access access) {
  switch (access) {
    case Access::kOpen:
      return "none";
    case Access::kAny:
      return "any";
    case Access::kInference:
      return "inference";
    case Access::kMetrics:
      return "metrics";
    case Access::kAdmin:
      break;
  }
  return "admin";
}

const Operation* operation_of(const Route& route) {
  const auto all = operations();
  const auto found = std::find_if(all.begin(), all.end(), [&route](const Operation& one) {
    return one.route.method == route.method && one.route.path == route.path;
  });
  return found == all.end() ? nullptr : &*found;
}

void write_reference(JsonWriter& json, std::string_view name) {
  json.begin_object().key("$ref");
  json.string("#/components/schemas/" + std::string(name)).end_object();
}

void write_request(JsonWriter& json, std::string_view name) {
  json.key("requestBody").begin_object().key("required").boolean(true);
  json.key("content").begin_object().key("application/json").begin_object().key("schema");
  write_reference(json, name);
  const auto all = request_schemas();
  const auto found = std::find_if(
      all.begin(), all.end(), [name](const RequestSchema& one) { return one.name == name; });
  if (found != all.end()) {
    json.key("example").json(found->example);
  }
  json.end_object().end_object().end_object();
}

void write_answers(JsonWriter& json, std::string_view path, const Operation* operation) {
  json.key("responses").begin_object();
  json.key("200").begin_object().key("description").string("the answer");
  if (operation != nullptr && !operation->stream.empty()) {
    json.key("content").begin_object().key("application/json").begin_object().end_object();
    json.key(operation->stream).begin_object().end_object().end_object();
  }
  json.end_object();
  json.key("default").begin_object().key("description").string("what is wrong");
  json.key("content").begin_object().key("application/json").begin_object().key("schema");
  write_reference(json, error_name(path));
  json.end_object().end_object().end_object().end_object();
}

void write_operation(JsonWriter& json, const Endpoint& endpoint) {
  const Operation* operation = operation_of(endpoint.route);
  json.key(method_key(endpoint.route.method)).begin_object();
  if (operation != nullptr) {
    json.key("summary").string(operation->summary);
    json.key("tags").begin_array().string(operation->tag).end_array();
    if (!operation->request.empty()) {
      write_request(json, operation->request);
    }
  }
  json.key("x-heddle-role").string(role_name(endpoint.access));
  if (endpoint.access == Access::kOpen) {
    json.key("security").begin_array().end_array();
  }
  write_answers(json, endpoint.route.path, operation);
  json.end_object();
}

/// All methods of a path.
void write_path(JsonWriter& json, const Routing& routing, std::string_view path) {
  json.key(path).begin_object();
  if (path.ends_with("{id}")) {
    json.key("parameters").begin_array().begin_object().key("name").string("id");
    json.key("in").string("path").key("required").boolean(true);
    json.key("description").string("it may have slashes");
    json.key("schema").begin_object().key("type").string("string").end_object();
    json.end_object().end_array();
  }
  for (const Endpoint& endpoint : routing.endpoints) {
    if (endpoint.route.path == path) {
      write_operation(json, endpoint);
    }
  }
  json.end_object();
}

void write_components(JsonWriter& json) {
  json.key("components")
      .begin_object()
      .key("securitySchemes")
      .json(R"({"bearer":{"type":"http","scheme":"bearer"},)"
            R"("key":{"type":"apiKey","in":"header","name":"x-api-key"}})");
  std::string schemas(kErrors);
  for (const RequestSchema& one : request_schemas()) {
    JsonWriter name;
    name.string(one.name);
    schemas += ",\n" + name.text() + ":" + std::string(one.schema);
  }
  json.key("schemas").json(schemas + "}").end_object();
}

}  // namespace

std::string openapi_json(const Routing& routing, std::string_view version) {
  JsonWriter json;
  json.begin_object().key("openapi").string("3.1.0").key("info").begin_object();
  json.key("title").string("heddle").key("version").string(version);
  json.key("summary").string(
      "many language models behind one endpoint, with the APIs of OpenAI, Anthropic and Ollama");
  json.end_object();
  json.key("security").json(R"([{"bearer":[]},{"key":[]}])");
  json.key("paths").begin_object();
  std::set<std::string_view> told;
  for (const Endpoint& endpoint : routing.endpoints) {
    const bool page = endpoint.route.path.starts_with("/ui");  // For browsers alone.
    if (!page && told.insert(endpoint.route.path).second) {
      write_path(json, routing, endpoint.route.path);
    }
  }
  json.end_object();
  write_components(json);
  json.end_object();
  return std::move(json).take();
}

}  // namespace heddle::gateway
