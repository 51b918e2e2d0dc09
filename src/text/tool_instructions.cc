#include "text/tool_instructions.h"

#include <nlohmann/json.hpp>

#include "base/check.h"

namespace heddle::text {

namespace {

using Json = nlohmann::ordered_json;

Json parse(std::string_view json) {
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

Result<std::string> render(const TextModel& model, Chat chat, const Json& messages) {
  const std::string json = messages.dump();
  chat.messages = json;
  return model.render(chat);
}

}  // namespace

std::string tool_instructions(std::string_view tools, std::string_view named, bool several) {
  std::string text = "Tools:\n";
  const Json list = parse(tools);
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

Result<std::string> render_with_instructions(const TextModel& model,
                                             const Chat& chat,
                                             std::string_view instructions) {
  const Json messages = parse(chat.messages);
  if (!messages.is_array()) {
    return Error{Code::kInvalidArgument, "messages: are no list of objects"};
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
