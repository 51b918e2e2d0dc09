#include "api/conversation.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "api/messages.h"
#include "spec/json_writer.h"

namespace heddle::api {

namespace dom = simdjson::dom;

namespace {

constexpr std::size_t kItemsMax = 16'384;

/// What OpenAI's own tools did, and other things that no model here can use.
constexpr auto kRecords = std::to_array<std::string_view>({"web_search_call",
                                                           "file_search_call",
                                                           "code_interpreter_call",
                                                           "image_generation_call",
                                                           "mcp_list_tools",
                                                           "mcp_approval_request",
                                                           "mcp_approval_response",
                                                           "compaction",
                                                           "compaction_summary",
                                                           "ghost_snapshot"});

void join(std::string& text, std::string_view more, std::string_view between) {
  text += text.empty() || more.empty() ? "" : between;
  text += more;
}

std::string text_message(std::string_view role, std::string_view content) {
  spec::JsonWriter json;
  json.begin_object().key("role").string(role).key("content").string(content).end_object();
  return std::move(json).take();
}

/// The text of a content or an output: a string, or a list of parts that hold text.
std::string text_of(BodyReader& body, const std::string& where, dom::object item, const char* key) {
  dom::element content;
  if (item.at_key(key).get(content) != simdjson::SUCCESS || content.is_null()) {
    body.fail(invalid_request("input", where + "." + key + ": is missing; want a string"));
    return "";
  }
  std::string_view text;
  dom::array parts;
  if (content.get_string().get(text) == simdjson::SUCCESS) {
    return std::string(text);
  }
  if (content.get_array().get(parts) != simdjson::SUCCESS) {
    body.fail(invalid_request(
        "input",
        where + "." + key + ": is " + describe(content) + "; want a string or a list of parts"));
    return "";
  }
  std::string joined;
  for (const dom::element part : parts) {
    std::string_view type;
    if (part.at_key("type").get_string().get(type) != simdjson::SUCCESS) {
      body.fail(invalid_request("input", where + "." + key + ": want parts with a \"type\""));
    } else if (part.at_key("text").get_string().get(text) == simdjson::SUCCESS ||
               part.at_key("refusal").get_string().get(text) == simdjson::SUCCESS) {
      joined += (joined.empty() ? "" : "\n") + std::string(text);
    } else {
      body.fail(not_supported("input",
                              where + "." + key + ": a part has type \"" + std::string(type) +
                                  "\"; only parts with a text are supported"));
    }
  }
  return joined;
}

std::string field(BodyReader& body, const std::string& where, dom::object item, const char* key) {
  std::string_view text;
  if (item.at_key(key).get_string().get(text) != simdjson::SUCCESS) {
    body.fail(invalid_request("input", where + "." + key + ": is missing; want a string"));
  }
  return std::string(text);
}

void add_item(BodyReader& body,
              const std::string& where,
              dom::element value,
              Conversation& conversation) {
  dom::object item;
  if (value.get_object().get(item) != simdjson::SUCCESS) {
    body.fail(invalid_request("input", where + ": is " + describe(value) + "; want an object"));
    return;
  }
  std::string_view type = "message";  // Items with a role may leave it out.
  (void)item.at_key("type").get_string().get(type);
  if (type == "message") {
    const std::string role = field(body, where, item, "role");
    const std::string content = text_of(body, where, item, "content");
    conversation.message(role == "developer" ? "system" : role, content);
  } else if (type == "function_call") {
    const std::string id = field(body, where, item, "call_id");
    const std::string name = field(body, where, item, "name");
    conversation.call(id, name, field(body, where, item, "arguments"));
  } else if (type == "custom_tool_call") {
    const std::string id = field(body, where, item, "call_id");
    const std::string name = field(body, where, item, "name");
    conversation.call(id, name, custom_arguments(field(body, where, item, "input")));
  } else if (type == "function_call_output" || type == "custom_tool_call_output") {
    const std::string id = field(body, where, item, "call_id");
    conversation.result(id, text_of(body, where, item, "output"));
  } else if (type == "reasoning") {
    dom::element content;
    if (item.at_key("content").get(content) == simdjson::SUCCESS && !content.is_null()) {
      conversation.thought(text_of(body, where, item, "content"));
    }
  } else if (std::find(kRecords.begin(), kRecords.end(), type) != kRecords.end()) {
    body.warn(where + ": is of the type \"" + std::string(type) + "\", and was left out");
  } else {
    body.fail(not_supported("input",
                            where + ".type: is \"" + std::string(type) +
                                "\"; want message, reasoning, function_call, custom_tool_call or "
                                "the output of one"));
  }
}

}  // namespace

void Turns::append(Turns later) {
  const std::string message =
      json.empty() || later.system.empty() ? "" : text_message("system", later.system);
  if (message.empty()) {
    join(system, later.system, "\n\n");
  }
  join(json, message, ",");
  join(json, later.json, ",");
  text_bytes += later.text_bytes;
}

void Conversation::message(std::string_view role, std::string_view content) {
  if (role == "assistant") {
    if (text_ || !calls_.empty()) {
      close_turn();
    }
    text_ = std::string(content);
    return;
  }
  close_turn();
  turns_.text_bytes += content.size();
  // Many templates take one system message, and that at the beginning.
  if (role == "system" && turns_.json.empty()) {
    join(turns_.system, content, "\n\n");
  } else {
    join(turns_.json, text_message(role, content), ",");
  }
}

void Conversation::thought(std::string_view text) {
  if (text_ || !calls_.empty()) {
    close_turn();
  }
  reasoning_ += text;
}

void Conversation::call(std::string_view id, std::string_view name, std::string_view arguments) {
  spec::JsonWriter call;
  call.begin_object().key("id").string(id).key("type").string("function");
  call.key("function").begin_object().key("name").string(name);
  call.key("arguments").json(arguments_json(arguments, parts_left_)).end_object().end_object();
  join(calls_, call.text(), ",");
}

void Conversation::result(std::string_view id, std::string_view output) {
  close_turn();
  turns_.text_bytes += output.size();
  spec::JsonWriter json;
  json.begin_object().key("role").string("tool").key("tool_call_id").string(id);
  json.key("content").string(output).end_object();
  join(turns_.json, json.text(), ",");
}

Turns Conversation::take() {
  close_turn();
  return std::move(turns_);
}

void Conversation::close_turn() {
  if (!text_ && calls_.empty()) {
    reasoning_.clear();
    return;
  }
  spec::JsonWriter json;
  json.begin_object().key("role").string("assistant").key("content").string(text_.value_or(""));
  if (!reasoning_.empty()) {
    json.key("reasoning_content").string(reasoning_);
  }
  if (!calls_.empty()) {
    json.key("tool_calls").json("[" + calls_ + "]");
  }
  json.end_object();
  join(turns_.json, json.text(), ",");
  reasoning_.clear();
  text_.reset();
  calls_.clear();
}

std::string custom_arguments(std::string_view input) {
  spec::JsonWriter json;
  json.begin_object().key("input").string(input).end_object();
  return std::move(json).take();
}

Turns read_turns(BodyReader& body) {
  Conversation conversation;
  const std::optional<dom::element> input = body.find("input");
  std::string_view text;
  dom::array items;
  if (!input) {
    body.fail(invalid_request("input", "input: is missing; want a string or a list of items"));
  } else if (input->get_string().get(text) == simdjson::SUCCESS) {
    conversation.message("user", text);
  } else if (input->get_array().get(items) != simdjson::SUCCESS || items.size() == 0) {
    body.reject("input", *input, "a string or a list of items");
  } else if (items.size() > kItemsMax) {
    body.reject("input", *input, "at most " + std::to_string(kItemsMax) + " items");
  } else {
    std::size_t index = 0;
    for (const dom::element item : items) {
      add_item(body, "input[" + std::to_string(index++) + "]", item, conversation);
    }
  }
  return conversation.take();
}

Messages chat_messages(std::string_view instructions, const Turns& turns) {
  std::string system(instructions);
  join(system, turns.system, "\n\n");
  std::string json = system.empty() ? "" : text_message("system", system);
  join(json, turns.json, ",");
  return {.json = "[" + json + "]", .text_bytes = instructions.size() + turns.text_bytes};
}

}  // namespace heddle::api
