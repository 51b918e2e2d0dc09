#include "api/anthropic/message_writer.h"

#include <string_view>
#include <utility>
#include <vector>

#include "api/error_text.h"
#include "api/messages.h"
#include "api/sse.h"
#include "spec/json_writer.h"

namespace heddle::api {

using spec::JsonWriter;

namespace {

constexpr std::string_view kMessagesPath = "/v1/messages";

enum class BlockKind : std::uint8_t { kThinking, kText, kToolUse };

/// A block of an answer's content.
struct Block {
  BlockKind kind{};
  std::string text{};  ///< Of a call, its input as JSON.
  std::string id{};
  std::string name{};
};

/// As it is at its end, or as it begins.
void write_block(JsonWriter& json, const Block& block, bool whole) {
  json.begin_object();
  const std::string_view text = whole ? std::string_view(block.text) : "";
  switch (block.kind) {
    case BlockKind::kThinking:
      // Nobody signs thoughts here; clients send them back as they are.
      json.key("type").string("thinking").key("thinking").string(text);
      json.key("signature").string("");
      break;
    case BlockKind::kText:
      json.key("type").string("text").key("text").string(text).key("citations").null();
      break;
    case BlockKind::kToolUse:
      json.key("type").string("tool_use").key("id").string(block.id);
      json.key("name").string(block.name).key("input").json(object_json(text));
      json.key("caller").begin_object().key("type").string("direct").end_object();
      break;
  }
  json.end_object();
}

/// Prefixes are kept without being asked to, for nothing and for no given time.
void write_message_usage(JsonWriter& json, const Usage& usage) {
  json.begin_object();
  json.key("input_tokens").integer(usage.prompt_tokens - usage.cached_tokens);
  json.key("cache_creation_input_tokens").integer(0);
  json.key("cache_read_input_tokens").integer(usage.cached_tokens);
  json.key("cache_creation").begin_object().key("ephemeral_5m_input_tokens").integer(0);
  json.key("ephemeral_1h_input_tokens").integer(0).end_object();
  json.key("output_tokens").integer(usage.completion_tokens);
  json.key("output_tokens_details").begin_object();
  json.key("thinking_tokens").integer(usage.reasoning_tokens).end_object();
  json.key("server_tool_use").null().key("inference_geo").null();
  json.key("service_tier").string("standard").end_object();
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

class MessageWriter final : public AnswerWriter {
 public:
  MessageWriter(AnswerHead head, std::int64_t prompt_tokens)
      : head_(std::move(head)), prompt_tokens_(prompt_tokens) {}

  std::string whole(const std::vector<Choice>& choices, const Usage& usage) override {
    (void)news(choices.front());  // Gathers the blocks; who does not stream needs no events.
    JsonWriter json;
    begin_message(json);
    json.key("content").begin_array();
    for (const Block& block : blocks_) {
      write_block(json, block, /*whole=*/true);
    }
    json.end_array();
    write_stop(json);
    json.key("usage");
    write_message_usage(json, usage);
    json.end_object();
    return std::move(json).take();
  }

  std::string waiting(std::string_view what) override {
    return sse_comment(what) + sse_event("ping", R"({"type":"ping"})");
  }

  std::string begin() override {
    JsonWriter json;
    json.begin_object().key("type").string("message_start").key("message");
    begin_message(json);
    json.key("content").begin_array().end_array();
    write_stop(json);
    json.key("usage");
    write_message_usage(json, {.prompt_tokens = prompt_tokens_});
    json.end_object().end_object();
    return sse_event("message_start", json.text());
  }

  std::string news(const Choice& part) override {
    std::string events;
    if (!part.reasoning.empty()) {
      grow(BlockKind::kThinking, part.reasoning, events);
    }
    if (!part.text.empty()) {
      add_text(part.text, events);
    }
    for (const ToolCall& call : part.calls) {
      add_call(call, events);
    }
    if (part.finish != spec::FinishReason::kNone) {
      finish_ = part.finish;
      called_ = part.called;
      stop_ = part.stop;
      // An answer without anything is an empty text, as clients look for one.
      if (!blank_.empty() || blocks_.empty()) {
        grow(BlockKind::kText, std::exchange(blank_, {}), events);
      }
      close(events);
    }
    return events;
  }

  std::string end(const Usage& usage) override {
    JsonWriter json;
    json.begin_object().key("type").string("message_delta").key("delta").begin_object();
    write_stop(json);
    json.end_object().key("usage");
    write_message_usage(json, usage);
    json.end_object();
    return sse_event("message_delta", json.text()) +
           sse_event("message_stop", R"({"type":"message_stop"})");
  }

  std::string fail(const ApiError& error) override { return error_events(error, kMessagesPath); }

 private:
  void begin_message(JsonWriter& json) const {
    json.begin_object().key("id").string(head_.id).key("type").string("message");
    json.key("role").string("assistant").key("model").string(head_.model);
  }

  [[nodiscard]] std::string_view stop_reason() const {
    if (finish_ == spec::FinishReason::kLength) {
      return "max_tokens";
    }
    return called_ ? "tool_use" : stop_.empty() ? "end_turn" : "stop_sequence";
  }

  void write_stop(JsonWriter& json) const {
    json.key("container").null().key("stop_details").null().key("stop_reason");
    if (finish_ == spec::FinishReason::kNone) {
      json.null().key("stop_sequence").null();
      return;
    }
    const std::string_view reason = stop_reason();
    json.string(reason).key("stop_sequence");
    if (reason == "stop_sequence") {
      json.string(stop_);
    } else {
      json.null();
    }
  }

  /// `{"type":..., "index":...`, of the block that grows.
  [[nodiscard]] JsonWriter of_block(std::string_view type) const {
    JsonWriter json;
    json.begin_object().key("type").string(type);
    json.key("index").integer(blocks_.size() - 1);
    return json;
  }

  void open(Block block, std::string& events) {
    close(events);
    blocks_.push_back(std::move(block));
    open_ = true;
    JsonWriter json = of_block("content_block_start");
    json.key("content_block");
    write_block(json, blocks_.back(), /*whole=*/false);
    json.end_object();
    events += sse_event("content_block_start", json.text());
  }

  void close(std::string& events) {
    if (std::exchange(open_, false)) {
      JsonWriter json = of_block("content_block_stop");
      json.end_object();
      events += sse_event("content_block_stop", json.text());
    }
  }

  void tell(std::string_view type,
            std::string_view key,
            std::string_view text,
            std::string& events) const {
    JsonWriter json = of_block("content_block_delta");
    json.key("delta").begin_object().key("type").string(type).key(key).string(text);
    json.end_object().end_object();
    events += sse_event("content_block_delta", json.text());
  }

  void grow(BlockKind kind, std::string_view text, std::string& events) {
    if (!open_ || blocks_.back().kind != kind) {
      open({.kind = kind}, events);
    }
    blocks_.back().text += text;
    if (kind == BlockKind::kThinking) {
      tell("thinking_delta", "thinking", text, events);
    } else if (!text.empty()) {
      tell("text_delta", "text", text, events);
    }
  }

  void add_text(std::string_view text, std::string& events) {
    const bool within = open_ && blocks_.back().kind == BlockKind::kText;
    if (!within && is_blank(text)) {
      blank_ += text;
      return;
    }
    grow(BlockKind::kText, std::exchange(blank_, {}) + std::string(text), events);
  }

  void add_call(const ToolCall& call, std::string& events) {
    blank_.clear();
    if (!call.name.empty()) {
      open({.kind = BlockKind::kToolUse, .id = call.id, .name = call.name}, events);
    }
    blocks_.back().text += call.arguments;
    tell("input_json_delta", "partial_json", call.arguments, events);
    if (call.whole) {
      close(events);
    }
  }

  AnswerHead head_;
  std::int64_t prompt_tokens_;
  std::vector<Block> blocks_{};
  std::string blank_{};  ///< White space of which it is not known whether it belongs to a text.
  bool open_ = false;    ///< Whether the last block may still grow.
  spec::FinishReason finish_ = spec::FinishReason::kNone;
  bool called_ = false;
  std::string stop_{};
};

}  // namespace

std::unique_ptr<AnswerWriter> message_writer(AnswerHead head, std::int64_t prompt_tokens) {
  return std::make_unique<MessageWriter>(std::move(head), prompt_tokens);
}

std::string message_count_json(std::int64_t tokens) {
  JsonWriter json;
  json.begin_object().key("input_tokens").integer(tokens).end_object();
  return std::move(json).take();
}

}  // namespace heddle::api
