#include "api/ollama/ollama_request.h"

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "api/body_reader.h"
#include "api/conversation.h"
#include "api/generation_params.h"
#include "api/ollama/ollama_options.h"
#include "api/tools.h"

namespace heddle::api {

namespace dom = simdjson::dom;

namespace {

constexpr std::size_t kOllamaMessagesMax = 16'384;
constexpr std::size_t kTextsMax = 2048;
constexpr std::int64_t kNumbersMax = 65536;

/// Messages of Ollama's chats, whose calls need no ids: results come in the order of the calls.
class OllamaTurns {
 public:
  explicit OllamaTurns(BodyReader& body) : body_(body) {}

  void message(const std::string& where, dom::element message);
  /// All but an answer that the last message begins.
  [[nodiscard]] Messages take(std::string& answer_begins);

 private:
  void calls(const std::string& where, dom::element list);
  /// Tells the conversation of a turn of the assistant's, now that it is known not to be the last.
  void close();

  BodyReader& body_;
  Conversation conversation_{};
  std::optional<std::string> text_{};  ///< Of the assistant's, without calls.
  std::string thought_{};
  std::size_t called_ = 0;
  std::size_t answered_ = 0;
};

/// An id that every template takes: nine letters and digits.
std::string call_id(std::size_t index) {
  return fmt::format("call{:05}", index % 100'000);
}

void OllamaTurns::message(const std::string& where, dom::element message) {
  std::string_view role;
  std::string_view content;
  if (!message.is_object() || message["role"].get_string().get(role) != simdjson::SUCCESS ||
      role.empty()) {
    body_.fail(invalid_request(
        "messages", where + R"(: want an object such as {"role": "user", "content": "Hi"})"));
    return;
  }
  dom::array images;
  if (message["images"].get_array().get(images) == simdjson::SUCCESS && images.size() > 0) {
    body_.fail(not_supported("messages", where + ".images: the models here read text alone"));
    return;
  }
  dom::element given;
  if (message["content"].get(given) == simdjson::SUCCESS && !given.is_null() &&
      given.get_string().get(content) != simdjson::SUCCESS) {
    body_.fail(
        invalid_request("messages", where + ".content: is " + describe(given) + "; want a string"));
    return;
  }
  close();
  if (role == "tool") {
    conversation_.result(call_id(answered_++), content);
    return;
  }
  if (role != "assistant") {
    conversation_.message(role, content);
    return;
  }
  std::string_view thought;
  if (message["thinking"].get_string().get(thought) == simdjson::SUCCESS) {
    thought_ = thought;
  }
  text_ = std::string(content);
  dom::element list;
  if (message["tool_calls"].get(list) == simdjson::SUCCESS && !list.is_null()) {
    calls(where + ".tool_calls", list);
  }
}

void OllamaTurns::calls(const std::string& where, dom::element list) {
  dom::array array;
  if (list.get_array().get(array) != simdjson::SUCCESS) {
    body_.fail(invalid_request("messages", where + ": is " + describe(list) + "; want a list"));
    return;
  }
  if (array.size() == 0) {
    return;
  }
  close();
  std::size_t index = 0;
  for (const dom::element call : array) {
    const std::string here = where + "[" + std::to_string(index++) + "].function";
    std::string_view name;
    dom::element arguments;
    if (call["function"]["name"].get_string().get(name) != simdjson::SUCCESS) {
      body_.fail(invalid_request("messages", here + R"(: want {"name": ..., "arguments": ...})"));
      return;
    }
    const bool given = call["function"]["arguments"].get(arguments) == simdjson::SUCCESS;
    conversation_.call(
        call_id(called_++), name, given ? std::string(simdjson::minify(arguments)) : "{}");
  }
}

void OllamaTurns::close() {
  if (!thought_.empty()) {
    conversation_.thought(std::exchange(thought_, {}));
  }
  if (text_) {
    conversation_.message("assistant", *text_);
    text_.reset();
  }
}

Messages OllamaTurns::take(std::string& answer_begins) {
  answer_begins = std::exchange(text_, {}).value_or("");
  return chat_messages({}, conversation_.take());
}

void read_ollama_messages(BodyReader& body, OllamaRequest& request) {
  const std::optional<dom::element> messages = body.find("messages");
  dom::array list;
  if (messages && messages->get_array().get(list) != simdjson::SUCCESS) {
    body.reject("messages", *messages, "a list of messages");
    return;
  }
  if (!messages || list.size() == 0) {
    request.empty = true;
    return;
  }
  if (list.size() > kOllamaMessagesMax) {
    body.reject(
        "messages", *messages, "at most " + std::to_string(kOllamaMessagesMax) + " messages");
    return;
  }
  OllamaTurns turns(body);
  std::size_t index = 0;
  for (const dom::element message : list) {
    turns.message("messages[" + std::to_string(index++) + "]", message);
  }
  request.chat.messages = turns.take(request.chat.answer_begins);
  request.chat.messages.text_bytes += request.chat.answer_begins.size();
}

/// What stands in for the model's own template, or goes around it.
void refuse_around_template(BodyReader& body) {
  for (const auto& [key, instead] : {std::pair("suffix", "no model here fills in"),
                                     std::pair("template", "the model's own is used"),
                                     std::pair("context", "send the conversation to /api/chat"),
                                     std::pair("images", "the models here read text alone")}) {
    const std::optional<dom::element> value = body.find(key);
    bool flag = true;
    std::string_view text = "given";
    dom::array list;
    const bool nothing = !value || (value->get_bool().get(flag) == simdjson::SUCCESS && !flag) ||
                         (value->get_string().get(text) == simdjson::SUCCESS && text.empty()) ||
                         (value->get_array().get(list) == simdjson::SUCCESS && list.size() == 0);
    if (!nothing) {
      body.fail(not_supported(key, std::string(key) + ": is not supported; " + instead));
    }
  }
}

template <class T>
Parsed<T> outcome(const BodyReader& body, T value) {
  if (!body.ok()) {
    return body.error();
  }
  return value;
}

EmbeddingRequest read_texts(BodyReader& body, std::string_view key, std::size_t most) {
  EmbeddingRequest request;
  request.model = body.required_text("model", kModelExample);
  request.inputs = read_prompts(body, key, most);
  request.dimensions = body.integer("dimensions", 1, kNumbersMax);
  request.keep_alive = read_keep_alive(body);
  return request;
}

}  // namespace

Parsed<OllamaRequest> parse_ollama_chat(std::string_view text) {
  BodyReader body(text);
  OllamaRequest request;
  request.chat.model = body.required_text("model", kModelExample);
  read_ollama_messages(body, request);
  request.chat.template_variables = read_ollama_thinking(body);
  request.chat.tools = read_chat_tools(body);
  request.chat.params = read_ollama_params(body);
  return outcome(body, std::move(request));
}

Parsed<OllamaRequest> parse_ollama_generate(std::string_view text) {
  BodyReader body(text);
  OllamaRequest request;
  request.chat.model = body.required_text("model", kModelExample);
  refuse_around_template(body);
  const std::string prompt = body.text("prompt").value_or("");
  const std::string system = body.text("system").value_or("");
  request.empty = prompt.empty();
  request.raw = body.flag("raw").value_or(false);
  if (request.raw && !system.empty()) {
    body.fail(invalid_request("system", "system: is beside raw: true, which has no place for it"));
  }
  if (request.raw) {
    request.prompt = prompt;
    request.chat.params = read_ollama_params(body);
    return outcome(body, std::move(request));
  }
  Conversation conversation;
  if (!system.empty()) {
    conversation.message("system", system);
  }
  conversation.message("user", prompt);
  request.chat.messages = chat_messages({}, conversation.take());
  request.chat.template_variables = read_ollama_thinking(body);
  request.chat.params = read_ollama_params(body);
  return outcome(body, std::move(request));
}

Parsed<EmbeddingRequest> parse_ollama_embed(std::string_view text) {
  BodyReader body(text);
  EmbeddingRequest request = read_texts(body, "input", kTextsMax);
  return outcome(body, std::move(request));
}

Parsed<EmbeddingRequest> parse_ollama_embeddings(std::string_view text) {
  BodyReader body(text);
  EmbeddingRequest request = read_texts(body, "prompt", 1);
  return outcome(body, std::move(request));
}

Parsed<OllamaModel> parse_ollama_model(std::string_view text) {
  BodyReader body(text);
  OllamaModel request{.stream = body.flag("stream").value_or(true)};
  const bool older = !body.find("model").has_value() && body.find("name").has_value();
  request.model = body.required_text(older ? "name" : "model", kModelExample);
  return outcome(body, std::move(request));
}

}  // namespace heddle::api
