#include "api/anthropic/message_tools.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "spec/json_writer.h"

namespace heddle::api {

namespace dom = simdjson::dom;

namespace {

constexpr std::size_t kMessageToolsMax = 128;
constexpr std::size_t kToolNameMax = 128;

bool is_tool_name(std::string_view name) {
  return !name.empty() && name.size() <= kToolNameMax &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_' || c == '-' || c == '.';
         });
}

void add_message_tool(BodyReader& body,
                      const std::string& where,
                      dom::element value,
                      ToolUse& use) {
  if (!value.is_object()) {
    body.reject(where, value, R"(an object with "name" and "input_schema")");
    return;
  }
  std::string_view type = "custom";
  (void)value["type"].get_string().get(type);
  if (type != "custom") {
    body.fail(not_supported(where,
                            where + ".type: is \"" + std::string(type) +
                                "\"; Anthropic runs such tools, heddle knows those of the client"));
    return;
  }
  std::string_view name;
  if (value["name"].get_string().get(name) != simdjson::SUCCESS || !is_tool_name(name)) {
    body.fail(invalid_request(
        where, where + ".name: want 1 to 128 letters, digits, underscores, dots or dashes"));
    return;
  }
  dom::element schema;
  if (value["input_schema"].get(schema) != simdjson::SUCCESS || !schema.is_object()) {
    body.fail(invalid_request(
        where, where + ".input_schema: is missing; want a JSON schema, which is an object"));
    return;
  }
  if (std::any_of(use.list.begin(), use.list.end(), [&name](const Tool& other) {
        return other.name == name;
      })) {
    body.fail(invalid_request(where, where + ".name: \"" + std::string(name) + "\" occurs twice"));
    return;
  }
  Tool tool{.name = std::string(name), .parameters = R"({"type":"object"})"};
  if (dom::object(schema).size() > 0) {
    tool.parameters = simdjson::minify(schema);
  }
  spec::JsonWriter json;
  json.begin_object().key("type").string("function").key("function").begin_object();
  json.key("name").string(name);
  std::string_view description;
  if (value["description"].get_string().get(description) == simdjson::SUCCESS) {
    json.key("description").string(description);
  }
  json.key("parameters").json(tool.parameters).end_object().end_object();
  use.json += (use.list.empty() ? "[" : ",") + json.text();
  use.list.push_back(std::move(tool));
}

void read_message_choice(BodyReader& body, ToolUse& use) {
  constexpr std::string_view kWant =
      R"({"type": "auto"}, "any" or "none", or {"type": "tool", "name": ...} with a tool's name)";
  use.choice = use.list.empty() ? ToolChoice::kNone : ToolChoice::kAuto;
  const std::optional<dom::element> value = body.find("tool_choice");
  if (!value) {
    return;
  }
  std::string_view type;
  if (!value->is_object() || (*value)["type"].get_string().get(type) != simdjson::SUCCESS) {
    body.reject("tool_choice", *value, kWant);
    return;
  }
  bool alone = false;
  (void)(*value)["disable_parallel_tool_use"].get_bool().get(alone);
  use.parallel = !alone;
  if (type == "none") {
    use.choice = ToolChoice::kNone;
  } else if (type == "any") {
    use.choice = ToolChoice::kRequired;
  } else if (type == "tool") {
    std::string_view name;
    (void)(*value)["name"].get_string().get(name);
    use.choice = ToolChoice::kNamed;
    use.named = name;
  } else if (type != "auto") {
    body.reject("tool_choice", *value, kWant);
    return;
  }
  const bool known = std::any_of(use.list.begin(), use.list.end(), [&use](const Tool& tool) {
    return use.choice != ToolChoice::kNamed || tool.name == use.named;
  });
  if (use.forced() && !known) {
    body.reject("tool_choice", *value, kWant);
  }
}

}  // namespace

ToolUse read_message_tools(BodyReader& body) {
  ToolUse use;
  if (const std::optional<dom::element> tools = body.find("tools")) {
    dom::array list;
    if (tools->get_array().get(list) != simdjson::SUCCESS || list.size() > kMessageToolsMax) {
      body.reject("tools", *tools, "a list of up to 128 tools");
      return use;
    }
    std::size_t index = 0;
    for (const dom::element item : list) {
      add_message_tool(body, "tools[" + std::to_string(index++) + "]", item, use);
    }
    use.json += use.list.empty() ? "" : "]";
  }
  read_message_choice(body, use);
  return use;
}

}  // namespace heddle::api
