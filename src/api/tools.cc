#include "api/tools.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "spec/json_writer.h"

namespace heddle::api {

namespace dom = simdjson::dom;

namespace {

constexpr std::size_t kToolsMax = 128;
constexpr std::size_t kFunctionNameMax = 64;

constexpr const char* kCustomParameters =
    R"({"type":"object","properties":{"input":{"type":"string"}},"required":["input"],)"
    R"("additionalProperties":false})";

/// Where a tool's name and parameters are, and a choice's name.
enum class Form : std::uint8_t { kChat, kResponses };

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= kFunctionNameMax &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_' || c == '-' || c == '.';
         });
}

/// The object that holds the name: the tool's `function`, or in responses the tool itself.
std::optional<dom::object> function_of(BodyReader& body,
                                       const std::string& where,
                                       dom::element value,
                                       Form form) {
  dom::object object;
  std::string_view type;
  if (value.get_object().get(object) != simdjson::SUCCESS ||
      object.at_key("type").get_string().get(type) != simdjson::SUCCESS) {
    body.fail(invalid_request(
        where, where + ": is " + describe(value) + R"(; want an object of type "function")"));
    return std::nullopt;
  }
  const bool custom = form == Form::kResponses && type == "custom";
  if (type != "function" && !custom) {
    body.fail(not_supported(
        where, where + ".type: is \"" + std::string(type) + R"("; only "function" is supported)"));
    return std::nullopt;
  }
  dom::object function = object;
  if (form == Form::kChat &&
      object.at_key("function").get_object().get(function) != simdjson::SUCCESS) {
    body.fail(invalid_request(where, where + ".function: is missing; want {\"name\": ...}"));
    return std::nullopt;
  }
  return function;
}

std::string name_of(BodyReader& body, const std::string& where, dom::object function) {
  std::string_view name;
  if (function.at_key("name").get_string().get(name) != simdjson::SUCCESS || !is_name(name)) {
    body.fail(invalid_request(
        where, where + ".name: want 1 to 64 letters, digits, underscores, dots or dashes"));
  }
  return std::string(name);
}

/// A custom tool of responses as a function in chat's form. What its text shall look like is only
/// told.
std::string custom_form(BodyReader& body,
                        const std::string& where,
                        const Tool& tool,
                        dom::object custom) {
  std::string description;
  std::string_view text;
  if (custom.at_key("description").get_string().get(text) == simdjson::SUCCESS) {
    description = text;
  }
  dom::element format;
  if (custom.at_key("format").get(format) == simdjson::SUCCESS &&
      format["definition"].get_string().get(text) == simdjson::SUCCESS) {
    description += "\nIts input follows this grammar:\n" + std::string(text);
    body.warn(where + ".format: the model is told of the grammar, but not held to it");
  }
  spec::JsonWriter json;
  json.begin_object().key("type").string("function").key("function").begin_object();
  json.key("name").string(tool.name).key("description").string(description);
  json.key("parameters").json(tool.parameters).end_object().end_object();
  return std::move(json).take();
}

/// Whether a tool is one that no model here can call.
bool is_left_out(BodyReader& body, const std::string& where, dom::element value, Form form) {
  std::string_view type;
  if (form != Form::kResponses || value["type"].get_string().get(type) != simdjson::SUCCESS ||
      type == "function" || type == "custom") {
    return false;
  }
  body.warn(where + ": tools of the type \"" + std::string(shorten(type, 64)) +
            "\" do not exist here, and it was left out");
  return true;
}

/// The tool in chat's form, as templates know it.
std::string chat_form(dom::element value, dom::object function, Form form) {
  if (form == Form::kChat) {
    return simdjson::minify(value);
  }
  spec::JsonWriter json;
  json.begin_object().key("type").string("function");
  std::string text = json.text() + ",\"function\":{";
  bool first = true;
  for (const dom::key_value_pair field : function) {
    if (field.key != "type") {
      spec::JsonWriter key;
      key.string(field.key);
      text += (first ? "" : ",") + key.text() + ":" + std::string(simdjson::minify(field.value));
      first = false;
    }
  }
  return text + "}}";
}

void add_tool(
    BodyReader& body, const std::string& where, dom::element value, Form form, ToolUse& use) {
  const bool left_out = is_left_out(body, where, value, form);
  const std::optional<dom::object> function =
      left_out ? std::nullopt : function_of(body, where, value, form);
  if (!function) {
    return;
  }
  Tool tool{.name = name_of(body, where, *function), .parameters = R"({"type":"object"})"};
  std::string_view type;
  tool.custom = (*function)["type"].get_string().get(type) == simdjson::SUCCESS && type == "custom";
  dom::element parameters;
  if (tool.custom) {
    tool.parameters = kCustomParameters;
  } else if (function->at_key("parameters").get(parameters) == simdjson::SUCCESS &&
             !parameters.is_null()) {
    if (!parameters.is_object()) {
      body.reject(where + ".parameters", parameters, "a JSON schema, which is an object");
      return;
    }
    if (dom::object(parameters).size() > 0) {
      tool.parameters = simdjson::minify(parameters);
      body.warn_of_schema(where + ".parameters", tool.parameters);
    }
  }
  for (const Tool& other : use.list) {
    if (other.name == tool.name) {
      body.fail(invalid_request(where, where + ".name: \"" + tool.name + "\" occurs twice"));
    }
  }
  use.json +=
      (use.list.empty() ? "[" : ",") +
      (tool.custom ? custom_form(body, where, tool, *function) : chat_form(value, *function, form));
  use.list.push_back(std::move(tool));
}

void read_choice(BodyReader& body, Form form, ToolUse& use) {
  constexpr std::string_view kWant =
      R"("none", "auto", "required" or {"type": "function", ...} with the name of a tool)";
  const std::optional<dom::element> value = body.find("tool_choice");
  use.choice = use.list.empty() ? ToolChoice::kNone : ToolChoice::kAuto;
  if (!value) {
    return;
  }
  std::string_view word;
  if (value->get_string().get(word) == simdjson::SUCCESS) {
    if (word == "none") {
      use.choice = ToolChoice::kNone;
    } else if (word == "required") {
      use.choice = ToolChoice::kRequired;
    } else if (word != "auto") {
      body.reject("tool_choice", *value, kWant);
    }
  } else if (!value->is_object()) {
    body.reject("tool_choice", *value, kWant);
    return;
  } else if (const auto function = function_of(body, "tool_choice", *value, form)) {
    use.choice = ToolChoice::kNamed;
    use.named = name_of(body, "tool_choice", *function);
  }
  const bool known = std::any_of(use.list.begin(), use.list.end(), [&use](const Tool& tool) {
    return use.choice != ToolChoice::kNamed || tool.name == use.named;
  });
  if (use.forced() && !known) {
    body.reject("tool_choice", *value, "it only with tools, and the name of one of them");
  }
}

ToolUse read_tools(BodyReader& body, Form form) {
  ToolUse use;
  if (const std::optional<dom::element> tools = body.find("tools")) {
    dom::array list;
    if (tools->get_array().get(list) != simdjson::SUCCESS || list.size() > kToolsMax) {
      body.reject("tools", *tools, "a list of up to 128 tools");
      return use;
    }
    std::size_t index = 0;
    for (const dom::element item : list) {
      add_tool(body, "tools[" + std::to_string(index++) + "]", item, form, use);
    }
    use.json += use.list.empty() ? "" : "]";
  }
  read_choice(body, form, use);
  use.parallel = body.flag("parallel_tool_calls").value_or(true);
  return use;
}

}  // namespace

ToolUse read_chat_tools(BodyReader& body) {
  return read_tools(body, Form::kChat);
}

ToolUse read_response_tools(BodyReader& body) {
  return read_tools(body, Form::kResponses);
}

}  // namespace heddle::api
