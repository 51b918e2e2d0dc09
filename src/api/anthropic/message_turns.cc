#include "api/anthropic/message_turns.h"

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "api/conversation.h"

namespace heddle::api {

namespace dom = simdjson::dom;

namespace {

constexpr std::size_t kTurnsMax = 16'384;

/// How a block of the system's begins that Claude Code sends for its own billing. It differs with
/// each request, so that no cached prefix would fit.
constexpr std::string_view kBilling = "x-anthropic-billing-header:";

std::string_view block_type(dom::element block) {
  std::string_view type;
  (void)block["type"].get_string().get(type);
  return type;
}

/// The string in a block; what to say where there is none.
std::string block_text(BodyReader& body,
                       const std::string& where,
                       dom::element block,
                       const char* key) {
  std::string_view text;
  if (block[key].get_string().get(text) != simdjson::SUCCESS) {
    body.fail(invalid_request("messages", where + "." + key + ": is missing; want a string"));
  }
  return std::string(text);
}

void join(std::string& text, std::string_view more) {
  text += text.empty() || more.empty() ? "" : "\n";
  text += more;
}

void refuse_block(BodyReader& body, const std::string& where, std::string_view type) {
  const bool seen = type == "image" || type == "document";
  body.fail(not_supported("messages",
                          where + ".type: is \"" + std::string(type) + "\"; " +
                              (seen ? "the models here read text alone"
                                    : "want text, thinking, tool_use or tool_result")));
}

/// The text of a document that is one.
std::string document_text(BodyReader& body, const std::string& where, dom::element block) {
  std::string_view kind;
  (void)block["source"]["type"].get_string().get(kind);
  if (kind != "text") {
    refuse_block(body, where, "document");
    return "";
  }
  std::string text;
  std::string_view title;
  if (block["title"].get_string().get(title) == simdjson::SUCCESS) {
    text = title;
  }
  join(text, block_text(body, where + ".source", block["source"], "data"));
  return text;
}

/// What blocks of text say, one after the other; of a content that is a string, itself.
std::string texts_of(BodyReader& body, const std::string& where, dom::element content) {
  std::string_view whole;
  dom::array blocks;
  std::string text;
  if (content.get_string().get(whole) == simdjson::SUCCESS) {
    return std::string(whole);
  }
  if (content.get_array().get(blocks) != simdjson::SUCCESS) {
    body.fail(invalid_request(
        "messages", where + ": is " + describe(content) + "; want a string or a list of blocks"));
    return text;
  }
  std::size_t index = 0;
  for (const dom::element block : blocks) {
    const std::string here = where + "[" + std::to_string(index++) + "]";
    const std::string_view type = block_type(block);
    if (type == "text") {
      join(text, block_text(body, here, block, "text"));
    } else if (type == "document") {
      join(text, document_text(body, here, block));
    } else {
      refuse_block(body, here, type);
    }
  }
  return text;
}

/// Gathers the blocks of a turn, and tells the conversation of it when another begins.
class TurnReader {
 public:
  explicit TurnReader(BodyReader& body) : body_(body) {}

  void system(dom::element content);
  void message(const std::string& where, dom::element message);
  [[nodiscard]] MessageTurns take();

 private:
  struct Call {
    std::string id{};
    std::string name{};
    std::string input{};
  };

  void block(const std::string& where, dom::element block);
  void assistant_block(const std::string& where, std::string_view type, dom::element block);
  void result(const std::string& where, dom::element block);
  void add_text(std::string_view text);
  void close();

  BodyReader& body_;
  Conversation conversation_{};
  std::string role_{};
  std::optional<std::string> text_{};
  std::string thought_{};
  std::vector<Call> calls_{};
};

void TurnReader::system(dom::element content) {
  dom::array blocks;
  if (content.get_array().get(blocks) != simdjson::SUCCESS) {
    conversation_.message("system", texts_of(body_, "system", content));
    return;
  }
  std::string text;
  std::size_t index = 0;
  for (const dom::element block : blocks) {
    const std::string here = "system[" + std::to_string(index++) + "]";
    if (block_type(block) != "text") {
      refuse_block(body_, here, block_type(block));
      return;
    }
    const std::string part = block_text(body_, here, block, "text");
    join(text, part.starts_with(kBilling) ? std::string_view() : part);
  }
  if (!text.empty()) {
    conversation_.message("system", text);
  }
}

void TurnReader::message(const std::string& where, dom::element message) {
  std::string_view role;
  dom::element content;
  if (!message.is_object()) {
    body_.fail(
        invalid_request("messages",
                        where + ": is " + describe(message) +
                            R"(; want an object such as {"role": "user", "content": "Hi"})"));
    return;
  }
  if (message["role"].get_string().get(role) != simdjson::SUCCESS ||
      (role != "user" && role != "assistant" && role != "system")) {
    body_.fail(invalid_request("messages", where + R"(.role: want "user" or "assistant")"));
    return;
  }
  if (message["content"].get(content) != simdjson::SUCCESS ||
      !(content.is_string() || content.is_array())) {
    body_.fail(invalid_request("messages",
                               where + ".content: is missing; want a string or a list of blocks"));
    return;
  }
  if (role != role_) {
    close();
    role_ = role;
  }
  dom::array blocks;
  if (content.get_array().get(blocks) != simdjson::SUCCESS) {
    add_text(std::string_view(content));
    return;
  }
  std::size_t index = 0;
  for (const dom::element one : blocks) {
    block(where + ".content[" + std::to_string(index++) + "]", one);
  }
}

void TurnReader::block(const std::string& where, dom::element block) {
  const std::string_view type = block_type(block);
  if (type == "text") {
    add_text(block_text(body_, where, block, "text"));
  } else if (type == "document") {
    add_text(document_text(body_, where, block));
  } else if (type == "tool_result" && role_ == "user") {
    result(where, block);
  } else if (role_ == "assistant") {
    assistant_block(where, type, block);
  } else {
    refuse_block(body_, where, type);
  }
}

void TurnReader::assistant_block(const std::string& where,
                                 std::string_view type,
                                 dom::element block) {
  if (type == "thinking") {
    join(thought_, block_text(body_, where, block, "thinking"));
  } else if (type == "tool_use") {
    dom::element input;
    Call call{.id = block_text(body_, where, block, "id"),
              .name = block_text(body_, where, block, "name"),
              .input = "{}"};
    if (block["input"].get(input) == simdjson::SUCCESS && input.is_object()) {
      call.input = simdjson::minify(input);
    } else {
      body_.fail(invalid_request("messages", where + ".input: is missing; want an object"));
    }
    calls_.push_back(std::move(call));
  } else if (type != "redacted_thinking") {  // Nobody here could read that.
    refuse_block(body_, where, type);
  }
}

void TurnReader::result(const std::string& where, dom::element block) {
  const std::string id = block_text(body_, where, block, "tool_use_id");
  dom::element content;
  std::string text;
  if (block["content"].get(content) == simdjson::SUCCESS && !content.is_null()) {
    text = texts_of(body_, where + ".content", content);
  }
  close();  // What the user said before it comes first.
  conversation_.result(id, text);
}

void TurnReader::add_text(std::string_view text) {
  if (!text_) {
    text_.emplace();
  }
  join(*text_, text);
}

void TurnReader::close() {
  if (role_ == "assistant") {
    if (!thought_.empty()) {
      conversation_.thought(thought_);
    }
    if (text_) {
      conversation_.message(role_, *text_);
    }
    for (const Call& call : calls_) {
      conversation_.call(call.id, call.name, call.input);
    }
  } else if (text_) {
    conversation_.message(role_, *text_);
  }
  text_.reset();
  thought_.clear();
  calls_.clear();
}

MessageTurns TurnReader::take() {
  MessageTurns turns;
  if (role_ == "assistant" && calls_.empty() && text_) {
    turns.answer_begins = std::move(*text_);
  } else {
    close();
  }
  turns.messages = chat_messages({}, conversation_.take());
  return turns;
}

}  // namespace

MessageTurns read_message_turns(BodyReader& body) {
  TurnReader turns(body);
  if (const std::optional<dom::element> system = body.find("system")) {
    turns.system(*system);
  }
  const std::optional<dom::element> messages = body.find("messages");
  dom::array list;
  if (!messages) {
    body.fail(invalid_request(
        "messages",
        R"(messages: is missing; want a list such as [{"role": "user", "content": "Hi"}])"));
  } else if (messages->get_array().get(list) != simdjson::SUCCESS || list.size() == 0) {
    body.reject("messages", *messages, "a list of at least one message");
  } else if (list.size() > kTurnsMax) {
    body.reject("messages", *messages, "at most " + std::to_string(kTurnsMax) + " messages");
  } else {
    std::size_t index = 0;
    for (const dom::element message : list) {
      turns.message("messages[" + std::to_string(index++) + "]", message);
    }
  }
  return turns.take();
}

}  // namespace heddle::api
