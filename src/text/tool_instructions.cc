#include "text/tool_instructions.h"

#include <map>

#include <nlohmann/json.hpp>

#include "base/check.h"

namespace heddle::text {

namespace {

using Json = nlohmann::ordered_json;

Json parse_json(std::string_view json) {
  return Json::parse(json, nullptr, /*allow_exceptions=*/false);
}

bool has_role(const Json& message, std::string_view role) {
  const auto found = message.find("role");
  return found != message.end() && found->is_string() &&
         found->get_ref<const std::string&>() == role;
}

/// The text of a message; null where its content is none.
std::string* content_of(Json& message) {
  const auto found = message.find("content");
  return found != message.end() && found->is_string() ? found->get_ptr<std::string*>() : nullptr;
}

void tell_in_system(Json& messages, std::string_view instructions) {
  if (!messages.empty() && has_role(messages.front(), "system")) {
    if (std::string* content = content_of(messages.front())) {
      *content += (content->empty() ? "" : "\n\n") + std::string(instructions);
      return;
    }
  }
  messages.insert(messages.begin(), Json{{"role", "system"}, {"content", instructions}});
}

void tell_user(Json& messages, std::string_view instructions) {
  for (Json& message : messages) {
    std::string* content = has_role(message, "user") ? content_of(message) : nullptr;
    if (content != nullptr) {
      content->insert(0, std::string(instructions) + "\n\n");
      return;
    }
  }
}

/// A member that is text; empty where it is not there, or is something else.
std::string text_in(const Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

/// Appends to the text of the last message, on a line of its own.
void append_line(Json& message, const std::string& line) {
  std::string& content = message["content"].get_ref<std::string&>();
  content += (content.empty() ? "" : "\n") + line;
}

using Names = std::map<std::string, std::string>;  ///< Of tools, by the ids of their calls.

/// A message's calls in ToolFormat::kGeneric, a list that may be empty.
Json spelled_calls(const Json& message, Names& names) {
  Json spelled = Json::array();
  const auto calls = message.is_object() ? message.find("tool_calls") : message.end();
  if (calls == message.end() || !calls->is_array()) {
    return spelled;
  }
  for (const Json& call : *calls) {
    const Json function = call.is_object() ? call.value("function", Json::object()) : Json();
    if (function.is_object() && function.contains("name")) {
      const Json arguments = function.value("arguments", Json::object());
      spelled.push_back({{"name", function["name"]}, {"arguments", arguments}});
      names[text_in(call, "id")] = text_in(function, "name");
    }
  }
  return spelled;
}

/// The conversation without calls and results as such; results that follow each other, and what the
/// user says next, are one message, as many templates want turns to alternate.
Json plain_turns(const Json& messages) {
  Json plain = Json::array();
  Names names;
  bool after_result = false;
  for (const Json& message : messages) {
    const bool result = has_role(message, "tool");
    if (result || (after_result && has_role(message, "user"))) {
      const auto name = names.find(text_in(message, "tool_call_id"));
      const std::string of = name == names.end() ? "" : " of " + name->second;
      if (!after_result) {
        plain.push_back({{"role", "user"}, {"content", ""}});
      }
      append_line(plain.back(), (result ? "Result" + of + ": " : "") + text_in(message, "content"));
      after_result = result;
      continue;
    }
    after_result = false;
    plain.push_back(message);
    if (const Json calls = spelled_calls(message, names); !calls.empty()) {
      plain.back().erase("tool_calls");
      plain.back()["content"] = text_in(message, "content");
      append_line(plain.back(), calls.dump());
    }
  }
  return plain;
}

Result<std::string> render(const TextModel& model, Chat chat, const Json& messages) {
  const std::string json = messages.dump();
  chat.messages = json;
  return model.render(chat);
}

}  // namespace

std::string tool_instructions(std::string_view tools, std::string_view named, bool several) {
  std::string text = "Tools:\n";
  const Json list = parse_json(tools);
  HEDDLE_CHECK(list.is_array());
  for (const Json& tool : list) {
    const Json& function = tool.at("function");
    if (named.empty() || function.at("name") == named) {
      text += function.dump() + "\n";
    }
  }
  const std::string call = R"({"name": <name of a tool>, "arguments": <object>})";
  return text + "Answer with " +
         (several ? "calls of them and nothing else: [" + call + ", ...]"
                  : "one call of them and nothing else: " + call);
}

Result<std::string> render_plainly(const TextModel& model,
                                   const Chat& chat,
                                   std::string_view instructions) {
  if (instructions.empty() && chat.messages.find("\"tool") == std::string_view::npos) {
    return model.render(chat);  // Most: no need to read it all.
  }
  const Json given = parse_json(chat.messages);
  if (!given.is_array()) {
    return Error{Code::kInvalidArgument, "messages: are no list of objects"};
  }
  const Json messages = plain_turns(given);
  if (instructions.empty()) {
    return render(model, chat, messages);
  }
  Json told = messages;
  tell_in_system(told, instructions);
  Result<std::string> in_system = render(model, chat, told);
  if (in_system || in_system.error().code != Code::kInvalidArgument) {
    return in_system;
  }
  told = messages;
  tell_user(told, instructions);
  return render(model, chat, told);
}

}  // namespace heddle::text
