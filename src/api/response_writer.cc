#include "api/response_writer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "api/custom_input.h"
#include "api/logprobs_json.h"
#include "api/sse.h"
#include "spec/json_writer.h"

namespace heddle::api {

using spec::JsonWriter;

namespace {

enum class ItemKind : std::uint8_t { kReasoning, kMessage, kCall, kCustomCall };

bool is_call(ItemKind kind) {
  return kind == ItemKind::kCall || kind == ItemKind::kCustomCall;
}

/// What the text of a call is named.
const char* text_key(ItemKind kind) {
  return kind == ItemKind::kCall ? "arguments" : kind == ItemKind::kCustomCall ? "input" : "text";
}

/// A part of the answer.
struct Item {
  ItemKind kind{};
  std::string id{};
  std::string text{};  ///< Of a call, its arguments or input.
  std::string call_id{};
  std::string name{};
  std::vector<TokenLogprobs> logprobs{};
  bool whole = true;  ///< Not cut off by a limit.
};

/// Which part of an item's life is told.
enum class Phase : std::uint8_t { kAdded, kDone };

void write_part(JsonWriter& json, const Item& item, Phase phase) {
  const std::string_view text = phase == Phase::kDone ? std::string_view(item.text) : "";
  json.begin_object();
  if (item.kind == ItemKind::kReasoning) {
    json.key("type").string("reasoning_text").key("text").string(text);
  } else {
    json.key("type").string("output_text").key("text").string(text);
    json.key("annotations").begin_array().end_array().key("logprobs");
    write_logprobs(json, phase == Phase::kDone ? item.logprobs : std::vector<TokenLogprobs>());
  }
  json.end_object();
}

void write_item(JsonWriter& json, const Item& item, Phase phase) {
  const bool done = phase == Phase::kDone;
  const char* status = !done ? "in_progress" : item.whole ? "completed" : "incomplete";
  json.begin_object().key("id").string(item.id).key("status").string(status);
  switch (item.kind) {
    case ItemKind::kCall:
    case ItemKind::kCustomCall:
      json.key("type").string(item.kind == ItemKind::kCall ? "function_call" : "custom_tool_call");
      json.key("call_id").string(item.call_id).key("name").string(item.name);
      json.key(text_key(item.kind)).string(done ? std::string_view(item.text) : "").end_object();
      return;
    case ItemKind::kReasoning:
      json.key("type").string("reasoning").key("summary").begin_array().end_array();
      break;
    case ItemKind::kMessage:
      json.key("type").string("message").key("role").string("assistant");
      break;
  }
  json.key("content").begin_array();
  if (done) {
    write_part(json, item, phase);
  }
  json.end_array().end_object();
}

void write_response_usage(JsonWriter& json, const Usage& usage) {
  json.begin_object().key("input_tokens").integer(usage.prompt_tokens);
  json.key("input_tokens_details").begin_object();
  json.key("cached_tokens").integer(usage.cached_tokens).end_object();
  json.key("output_tokens").integer(usage.completion_tokens);
  json.key("output_tokens_details").begin_object();
  json.key("reasoning_tokens").integer(usage.reasoning_tokens).end_object();
  json.key("total_tokens").integer(usage.prompt_tokens + usage.completion_tokens);
  json.end_object();
}

/// Members of a response, commas between them.
std::string sampling_members(const spec::SamplingParams& used) {
  // As floats: 0.7 and not 0.699999988.
  return fmt::format(R"("temperature":{},"top_p":{},"presence_penalty":{},"frequency_penalty":{})",
                     used.temperature,
                     used.top_p,
                     used.presence_penalty,
                     used.frequency_penalty);
}

class ResponseWriter final : public AnswerWriter {
 public:
  ResponseWriter(AnswerHead head, ResponseForm form, std::function<std::int64_t()> now)
      : head_(std::move(head)), form_(std::move(form)), now_(std::move(now)) {}

  std::string whole(const std::vector<Choice>& choices, const Usage& usage) override {
    (void)news(choices.front());  // Gathers the items; who does not stream needs no events.
    return completed(usage);
  }

  std::string begin() override {
    std::string events = state("response.created", response("in_progress", nullptr, nullptr));
    events += state("response.in_progress", response("in_progress", nullptr, nullptr));
    return events;
  }

  std::string news(const Choice& part) override {
    std::string events;
    if (!part.reasoning.empty()) {
      grow(ItemKind::kReasoning, part.reasoning, {}, events);
    }
    const bool tokens = part.logprobs && !part.logprobs->empty();
    if (!part.text.empty() || (tokens && growing(ItemKind::kMessage))) {
      grow(ItemKind::kMessage,
           part.text,
           part.logprobs.value_or(std::vector<TokenLogprobs>()),
           events);
    }
    for (const ToolCall& call : part.calls) {
      add_call(call, events);
    }
    if (part.finish != spec::FinishReason::kNone) {
      finish_ = part.finish;
      // An answer without anything is an empty message, as clients look for one.
      if (items_.empty()) {
        add({.kind = ItemKind::kMessage, .id = id("msg_")}, events);
      }
      close(events);
    }
    return events;
  }

  std::string end(const Usage& usage) override {
    const std::string_view status = this->status();
    return state("response." + std::string(status), completed(usage));
  }

  std::string fail(const ApiError& error) override {
    std::string events;
    if (open_) {
      items_.back().whole = false;
    }
    close(events);
    return events + state("response.failed", response("failed", nullptr, &error));
  }

 private:
  [[nodiscard]] std::string_view status() const {
    return finish_ == spec::FinishReason::kLength ? "incomplete" : "completed";
  }
  [[nodiscard]] std::string id(const char* prefix) const {
    return prefix + head_.id.substr(head_.id.find('_') + 1) + "_" + std::to_string(items_.size());
  }
  [[nodiscard]] bool growing(ItemKind kind) const { return open_ && items_.back().kind == kind; }

  /// The response at its end, which whoever keeps it hears of.
  std::string completed(const Usage& usage) const {
    std::string body = response(status(), &usage, nullptr);
    if (form_.complete) {
      form_.complete(body, answer());
    }
    return body;
  }

  /// What the items add to the conversation.
  [[nodiscard]] Turns answer() const {
    Conversation turns;
    for (const Item& item : items_) {
      switch (item.kind) {
        case ItemKind::kReasoning:
          turns.thought(item.text);
          break;
        case ItemKind::kMessage:
          turns.message("assistant", item.text);
          break;
        case ItemKind::kCall:
          turns.call(item.call_id, item.name, item.text);
          break;
        case ItemKind::kCustomCall:
          turns.call(item.call_id, item.name, custom_arguments(item.text));
          break;
      }
    }
    return turns.take();
  }

  /// The response as it is; `usage` and `error` may be null.
  std::string response(std::string_view status, const Usage* usage, const ApiError* error) const {
    JsonWriter json;
    json.begin_object().key("id").string(head_.id).key("object").string("response");
    json.key("created_at").integer(head_.created).key("completed_at");
    if (status == "completed") {
      json.integer(now_());
    } else {
      json.null();
    }
    json.key("status").string(status);
    json.key("model").string(head_.model).key("error");
    if (error != nullptr) {
      const bool limit = error->status == 429;
      json.begin_object().key("code").string(limit ? "rate_limit_exceeded" : "server_error");
      json.key("message").string(error->message).end_object();
    } else {
      json.null();
    }
    json.key("incomplete_details");
    if (status == "incomplete") {
      json.begin_object().key("reason").string("max_output_tokens").end_object();
    } else {
      json.null();
    }
    json.key("output").begin_array();
    for (const Item& item : items_) {
      write_item(json, item, Phase::kDone);
    }
    json.end_array().key("usage");
    if (usage != nullptr) {
      write_response_usage(json, *usage);
    } else {
      json.null();
    }
    return std::move(json).take() + "," + form_.settings + "}";
  }

  /// An event and its number; `members` are JSON and follow those that every event has.
  std::string event(const std::string& type, const std::string& members) {
    return sse_event(type,
                     R"({"type":")" + type + R"(","sequence_number":)" +
                         std::to_string(sequence_++) + "," + members + "}");
  }
  std::string state(const std::string& type, const std::string& response) {
    return event(type, "\"response\":" + response);
  }

  /// Where the current item stands, as its events tell it.
  [[nodiscard]] std::string place(bool in_content) const {
    return "\"item_id\":\"" + items_.back().id +
           "\",\"output_index\":" + std::to_string(items_.size() - 1) +
           (in_content ? ",\"content_index\":0" : "");
  }
  std::string item_event(const std::string& type, Phase phase) {
    JsonWriter json;
    write_item(json, items_.back(), phase);
    return event(
        type, "\"output_index\":" + std::to_string(items_.size() - 1) + ",\"item\":" + json.text());
  }
  std::string part_event(const std::string& type, Phase phase) {
    JsonWriter json;
    write_part(json, items_.back(), phase);
    return event(type, place(true) + ",\"part\":" + json.text());
  }
  /// Text that is new (`delta`) or whole (`text`, `arguments`).
  std::string text_event(const std::string& type,
                         const char* key,
                         std::string_view text,
                         const std::vector<TokenLogprobs>& logprobs) {
    const ItemKind kind = items_.back().kind;
    JsonWriter json;
    json.begin_object().key(key).string(text);
    if (kind == ItemKind::kMessage) {
      json.key("logprobs");
      write_logprobs(json, logprobs);
    }
    return event(type, place(!is_call(kind)) + "," + json.text().substr(1));
  }

  void add(Item item, std::string& events) {
    close(events);
    items_.push_back(std::move(item));
    open_ = true;
    events += item_event("response.output_item.added", Phase::kAdded);
    if (!is_call(items_.back().kind)) {
      events += part_event("response.content_part.added", Phase::kAdded);
    }
  }

  /// More text of the item of this kind that is open, or of a new one.
  void grow(ItemKind kind,
            const std::string& text,
            const std::vector<TokenLogprobs>& logprobs,
            std::string& events) {
    if (!growing(kind)) {
      add({.kind = kind, .id = id(kind == ItemKind::kReasoning ? "rs_" : "msg_")}, events);
    }
    Item& item = items_.back();
    item.text += text;
    item.logprobs.insert(item.logprobs.end(), logprobs.begin(), logprobs.end());
    events += text_event(std::string(stem(kind)) + ".delta", "delta", text, logprobs);
  }

  void add_call(const ToolCall& call, std::string& events) {
    if (!call.name.empty()) {
      const bool custom = std::ranges::count(form_.custom_tools, call.name) > 0;
      add({.kind = custom ? ItemKind::kCustomCall : ItemKind::kCall,
           .id = id(custom ? "ctc_" : "fc_"),
           .call_id = call.id,
           .name = call.name},
          events);
      input_ = {};
    }
    items_.back().whole = call.whole;
    if (items_.back().kind == ItemKind::kCall) {
      grow_call(call.arguments, events);
    } else {
      grow_call(input_.push(call.arguments), events);
    }
  }

  /// More of the arguments or the input of the call that is open.
  void grow_call(const std::string& text, std::string& events) {
    Item& call = items_.back();
    call.text += text;
    if (!text.empty()) {
      events += text_event(std::string(stem(call.kind)) + ".delta", "delta", text, {});
    }
  }

  static std::string_view stem(ItemKind kind) {
    switch (kind) {
      case ItemKind::kReasoning:
        return "response.reasoning_text";
      case ItemKind::kMessage:
        return "response.output_text";
      case ItemKind::kCall:
        return "response.function_call_arguments";
      case ItemKind::kCustomCall:
        return "response.custom_tool_call_input";
    }
    return "";
  }

  /// Ends the item that is open, if there is one.
  void close(std::string& events) {
    if (!open_) {
      return;
    }
    if (items_.back().kind == ItemKind::kCustomCall) {
      grow_call(input_.finish(), events);
    }
    open_ = false;
    Item& item = items_.back();
    // Of a call it is known whether it is whole.
    if (finish_ == spec::FinishReason::kLength && !is_call(item.kind)) {
      item.whole = false;
    }
    events += text_event(
        std::string(stem(item.kind)) + ".done", text_key(item.kind), item.text, item.logprobs);
    if (!is_call(item.kind)) {
      events += part_event("response.content_part.done", Phase::kDone);
    }
    events += item_event("response.output_item.done", Phase::kDone);
  }

  AnswerHead head_;
  ResponseForm form_;
  std::function<std::int64_t()> now_;
  std::vector<Item> items_{};
  bool open_ = false;    ///< The last item may still grow.
  CustomInput input_{};  ///< Of the last item, where it is the call of a custom tool.
  spec::FinishReason finish_ = spec::FinishReason::kNone;
  std::int64_t sequence_ = 0;
};

}  // namespace

std::unique_ptr<AnswerWriter> response_writer(AnswerHead head,
                                              ResponseForm form,
                                              const spec::SamplingParams& used,
                                              std::function<std::int64_t()> now) {
  form.settings += "," + sampling_members(used);
  return std::make_unique<ResponseWriter>(std::move(head), std::move(form), std::move(now));
}

}  // namespace heddle::api
