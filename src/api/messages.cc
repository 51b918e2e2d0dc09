#include "api/messages.h"

#include <optional>
#include <string_view>
#include <utility>

#include "api/json_fault.h"
#include "spec/json_writer.h"

namespace heddle::api {

namespace dom = simdjson::dom;

namespace {

constexpr std::size_t kMessagesMax = 16'384;

/// The text of a content part; other kinds are refused.
void append_part(BodyReader& body, const std::string& where, dom::element part, std::string& text) {
  dom::object object;
  std::string_view type;
  if (part.get_object().get(object) != simdjson::SUCCESS ||
      object.at_key("type").get_string().get(type) != simdjson::SUCCESS) {
    body.fail(invalid_request("messages",
                              where + ": is " + describe(part) + "; want parts with a \"type\""));
    return;
  }
  std::string_view piece;
  if (type != "text") {
    body.fail(not_supported(
        "messages",
        where + ": type is \"" + std::string(type) + "\"; the models here read text alone"));
  } else if (object.at_key("text").get_string().get(piece) != simdjson::SUCCESS) {
    body.fail(invalid_request("messages", where + ".text: is missing; want a string"));
  } else {
    text += text.empty() ? "" : "\n";
    text += piece;
  }
}

/// Content as JSON: a string or null as it is, text parts joined to one string.
/// @param bytes  Becomes those of its text.
std::string content_json(BodyReader& body,
                         const std::string& where,
                         dom::element content,
                         std::size_t& bytes) {
  dom::array parts;
  std::string_view whole;
  if (content.get_string().get(whole) == simdjson::SUCCESS || content.is_null()) {
    bytes = whole.size();
    return simdjson::minify(content);
  }
  if (content.get_array().get(parts) != simdjson::SUCCESS) {
    body.fail(invalid_request(
        "messages",
        where + ": is " + describe(content) + "; want a string or a list of text parts"));
    return "null";
  }
  std::string text;
  std::size_t index = 0;
  for (const dom::element part : parts) {
    append_part(body, where + "[" + std::to_string(index++) + "]", part, text);
  }
  bytes = text.size();
  spec::JsonWriter json;
  json.string(text);
  return std::move(json).take();
}

/// Appends `"key":` to an object that `json` holds the beginning of.
void append_key(std::string& json, std::string_view key) {
  spec::JsonWriter text;
  text.string(key);
  json += (json.ends_with('{') ? "" : ",") + text.text() + ":";
}

/// A call's function. OpenAI writes its arguments as a string that holds JSON.
std::string function_json(dom::object function, std::size_t& parts_left) {
  std::string json = "{";
  for (const dom::key_value_pair field : function) {
    append_key(json, field.key);
    std::string_view text;
    const bool holds_json =
        field.key == "arguments" && field.value.get_string().get(text) == simdjson::SUCCESS;
    json +=
        holds_json ? arguments_json(text, parts_left) : std::string(simdjson::minify(field.value));
  }
  return json + "}";
}

/// The calls in an assistant's message.
std::string calls_json(dom::element calls, std::size_t& parts_left) {
  dom::array list;
  if (calls.get_array().get(list) != simdjson::SUCCESS) {
    return simdjson::minify(calls);
  }
  std::string json = "[";
  for (const dom::element call : list) {
    dom::object object;
    json += json.size() > 1 ? "," : "";
    if (call.get_object().get(object) != simdjson::SUCCESS) {
      json += simdjson::minify(call);
      continue;
    }
    std::string one = "{";
    for (const dom::key_value_pair field : object) {
      append_key(one, field.key);
      dom::object function;
      const bool is_function =
          field.key == "function" && field.value.get_object().get(function) == simdjson::SUCCESS;
      one += is_function ? function_json(function, parts_left)
                         : std::string(simdjson::minify(field.value));
    }
    json += one + "}";
  }
  return json + "]";
}

void append_message(BodyReader& body,
                    const std::string& where,
                    dom::element message,
                    Messages& messages,
                    std::size_t& parts_left) {
  std::string& json = messages.json;
  dom::object object;
  std::string_view role;
  if (message.get_object().get(object) != simdjson::SUCCESS) {
    body.fail(
        invalid_request("messages", where + ": is " + describe(message) + "; want an object"));
    return;
  }
  if (object.at_key("role").get_string().get(role) != simdjson::SUCCESS || role.empty()) {
    body.fail(invalid_request(
        "messages", where + ".role: is missing; want \"user\", \"assistant\" or \"system\""));
    return;
  }
  dom::element content;
  const bool has_content = object.at_key("content").get(content) == simdjson::SUCCESS;
  // An assistant's turn may consist of tool calls alone.
  if ((!has_content || content.is_null()) && role != "assistant") {
    body.fail(invalid_request("messages", where + ".content: is missing; want a string"));
    return;
  }
  json += json.size() > 1 ? ",{" : "{";
  bool first = true;
  for (const dom::key_value_pair field : object) {
    json += first ? "" : ",";
    first = false;
    spec::JsonWriter key;
    key.string(field.key);
    json += key.text() + ":";
    if (field.key == "content") {
      std::size_t bytes = 0;
      json += content_json(body, where + ".content", field.value, bytes);
      messages.text_bytes += role == "assistant" ? 0 : bytes;
    } else if (field.key == "role" && role == "developer") {
      json += "\"system\"";  // OpenAI's newer name; templates know the older one.
    } else if (field.key == "tool_calls") {
      json += calls_json(field.value, parts_left);
    } else {
      json += std::string(simdjson::minify(field.value));
    }
  }
  json += "}";
}

}  // namespace

std::string arguments_json(std::string_view text, std::size_t& parts_left) {
  const JsonCount count = count_json(text);
  const std::size_t parts = count.parts + count.commas;
  if (parts <= parts_left) {
    parts_left -= parts;
    dom::parser parser;
    dom::element parsed;
    if (parser.parse(text.data(), text.size()).get(parsed) == simdjson::SUCCESS &&
        parsed.is_object()) {
      return simdjson::minify(parsed);
    }
  }
  spec::JsonWriter json;
  json.string(text);
  return std::move(json).take();
}

std::string object_json(std::string_view text) {
  dom::parser parser;
  dom::element parsed;
  return parser.parse(text.data(), text.size()).get(parsed) == simdjson::SUCCESS &&
                 parsed.is_object()
             ? simdjson::minify(parsed)
             : "{}";
}

Messages read_messages(BodyReader& body) {
  Messages messages{.json = "["};
  const std::optional<dom::element> value = body.find("messages");
  dom::array list;
  if (!value) {
    body.fail(invalid_request(
        "messages",
        "messages: is missing; want a list such as [{\"role\": \"user\", \"content\": \"Hi\"}]"));
  } else if (value->get_array().get(list) != simdjson::SUCCESS || list.size() == 0) {
    body.reject("messages", *value, "a list of at least one message");
  } else if (list.size() > kMessagesMax) {
    body.reject("messages", *value, "at most " + std::to_string(kMessagesMax) + " messages");
  } else {
    std::size_t index = 0;
    std::size_t parts_left = kArgumentPartsMax;
    for (const dom::element message : list) {
      append_message(
          body, "messages[" + std::to_string(index++) + "]", message, messages, parts_left);
    }
  }
  messages.json += "]";
  return messages;
}

}  // namespace heddle::api
