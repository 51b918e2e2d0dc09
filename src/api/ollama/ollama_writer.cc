#include "api/ollama/ollama_writer.h"

#include <utility>
#include <vector>

#include "api/logprobs_json.h"
#include "api/messages.h"
#include "api/utc_time.h"
#include "spec/json_writer.h"

namespace heddle::api {

using spec::JsonWriter;

namespace {

constexpr std::string_view kLines = "application/x-ndjson";

void write_calls(JsonWriter& json, const std::vector<ToolCall>& calls) {
  json.begin_array();
  for (const ToolCall& call : calls) {
    json.begin_object().key("id").string(call.id).key("function").begin_object();
    json.key("index").integer(call.index).key("name").string(call.name);
    json.key("arguments").json(object_json(call.arguments)).end_object().end_object();
  }
  json.end_array();
}

/// `{"model", "created_at", and what is new`; the object stays open.
JsonWriter open_part(const std::string& model,
                     OllamaForm form,
                     std::int64_t now,
                     const Choice& part) {
  JsonWriter json;
  json.begin_object().key("model").string(model).key("created_at").string(utc_time(now));
  const bool chat = form == OllamaForm::kChat;
  if (chat) {
    json.key("message").begin_object().key("role").string("assistant");
  }
  json.key(chat ? "content" : "response").string(part.text);
  if (!part.reasoning.empty()) {
    json.key("thinking").string(part.reasoning);
  }
  if (!part.calls.empty()) {
    json.key("tool_calls");
    write_calls(json, part.calls);
  }
  if (chat) {
    json.end_object();
  }
  if (part.logprobs && !part.logprobs->empty()) {
    json.key("logprobs");
    write_logprobs(json, *part.logprobs);
  }
  return json;
}

void write_end(JsonWriter& json, spec::FinishReason finish, const Usage& usage) {
  json.key("done").boolean(true).key("done_reason").string(finish_name(finish));
  json.key("total_duration").integer(usage.spent.total.count());
  json.key("load_duration").integer(usage.spent.load.count());
  json.key("prompt_eval_count").integer(usage.prompt_tokens);
  json.key("prompt_eval_duration").integer(usage.spent.prompt.count());
  json.key("eval_count").integer(usage.completion_tokens);
  json.key("eval_duration").integer(usage.spent.answer.count());
  json.end_object();
}

class OllamaWriter final : public AnswerWriter {
 public:
  OllamaWriter(AnswerHead head, OllamaForm form, std::function<std::int64_t()> now)
      : head_(std::move(head)), form_(form), now_(std::move(now)) {}

  std::string whole(const std::vector<Choice>& choices, const Usage& usage) override {
    JsonWriter json = part(choices.front());
    write_end(json, choices.front().finish, usage);
    return std::move(json).take();
  }

  [[nodiscard]] std::string_view content_type() const override { return kLines; }
  std::string waiting(std::string_view) override { return going_on({}); }
  std::string begin() override { return ""; }

  std::string news(const Choice& part) override {
    if (part.finish != spec::FinishReason::kNone) {
      finish_ = part.finish;
    }
    Choice told = part;
    told.finish = spec::FinishReason::kNone;
    return is_empty(told) ? "" : going_on(told);
  }

  std::string end(const Usage& usage) override {
    JsonWriter json = part({});
    write_end(json, finish_, usage);
    return json.text() + "\n";
  }

  std::string fail(const ApiError& error) override {
    JsonWriter json;
    json.begin_object().key("error").string(error.message).end_object();
    return json.text() + "\n";
  }

 private:
  [[nodiscard]] JsonWriter part(const Choice& part) const {
    return open_part(head_.model, form_, now_(), part);
  }

  [[nodiscard]] std::string going_on(const Choice& news) const {
    JsonWriter json = part(news);
    json.key("done").boolean(false).end_object();
    return json.text() + "\n";
  }

  AnswerHead head_;
  OllamaForm form_;
  std::function<std::int64_t()> now_;
  spec::FinishReason finish_ = spec::FinishReason::kNone;
};

}  // namespace

std::unique_ptr<AnswerWriter> ollama_writer(AnswerHead head,
                                            OllamaForm form,
                                            std::function<std::int64_t()> now) {
  return std::make_unique<OllamaWriter>(std::move(head), form, std::move(now));
}

std::string ollama_loaded_json(const std::string& model,
                               OllamaForm form,
                               std::int64_t now,
                               std::string_view reason) {
  JsonWriter json = open_part(model, form, now, {});
  json.key("done").boolean(true).key("done_reason").string(reason).end_object();
  return std::move(json).take();
}

}  // namespace heddle::api
