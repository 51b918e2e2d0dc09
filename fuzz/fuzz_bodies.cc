// Bodies of requests to every endpoint, made of the fields that there are and of values that are
// odd: each parser gives a request or one error that says what is wrong and where, forwarded bodies
// stay objects, and a refusal repeats little of what was sent.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "api/anthropic/message_request.h"
#include "api/embeddings.h"
#include "api/json_fault.h"
#include "api/object_text.h"
#include "api/ollama/ollama_request.h"
#include "api/requests.h"
#include "api/response_request.h"
#include "base/check.h"
#include "gateway/forward_body.h"

namespace api = heddle::api;
namespace gateway = heddle::gateway;

namespace {

constexpr auto kKeys = std::to_array<std::string_view>({"model",
                                                        "messages",
                                                        "prompt",
                                                        "input",
                                                        "tokens",
                                                        "role",
                                                        "content",
                                                        "type",
                                                        "text",
                                                        "tools",
                                                        "function",
                                                        "name",
                                                        "parameters",
                                                        "arguments",
                                                        "tool_calls",
                                                        "tool_choice",
                                                        "tool_call_id",
                                                        "call_id",
                                                        "output",
                                                        "instructions",
                                                        "max_tokens",
                                                        "max_completion_tokens",
                                                        "max_output_tokens",
                                                        "temperature",
                                                        "top_p",
                                                        "top_k",
                                                        "min_p",
                                                        "n",
                                                        "best_of",
                                                        "seed",
                                                        "stop",
                                                        "stop_token_ids",
                                                        "logit_bias",
                                                        "logprobs",
                                                        "top_logprobs",
                                                        "stream",
                                                        "stream_options",
                                                        "include_usage",
                                                        "echo",
                                                        "user",
                                                        "priority",
                                                        "keep_alive",
                                                        "cache_salt",
                                                        "response_format",
                                                        "json_schema",
                                                        "schema",
                                                        "structured_outputs",
                                                        "guided_json",
                                                        "guided_choice",
                                                        "chat_template_kwargs",
                                                        "reasoning",
                                                        "reasoning_effort",
                                                        "effort",
                                                        "encoding_format",
                                                        "dimensions",
                                                        "add_special_tokens",
                                                        "return_token_strs",
                                                        "truncation",
                                                        "store",
                                                        "include",
                                                        "metadata",
                                                        "system",
                                                        "thinking",
                                                        "id",
                                                        "tool_use_id",
                                                        "source",
                                                        "data",
                                                        "title",
                                                        "input_schema",
                                                        "description",
                                                        "disable_parallel_tool_use",
                                                        "stop_sequences",
                                                        "output_config",
                                                        "output_format",
                                                        "format",
                                                        "options",
                                                        "num_predict",
                                                        "repeat_penalty",
                                                        "mirostat",
                                                        "tfs_z",
                                                        "typical_p",
                                                        "think",
                                                        "raw",
                                                        "suffix",
                                                        "template",
                                                        "context",
                                                        "images",
                                                        "1",
                                                        "",
                                                        "\\u006dodel",
                                                        "\\ud800"});

constexpr auto kValues = std::to_array<std::string_view>({"null",
                                                          "true",
                                                          "false",
                                                          "0",
                                                          "1",
                                                          "-1",
                                                          "16.0",
                                                          "0.5",
                                                          "1e400",
                                                          "-1e400",
                                                          "1e-400",
                                                          "99999999999999999999",
                                                          "-99999999999999999999",
                                                          "18446744073709551615",
                                                          "01",
                                                          "1.",
                                                          "-",
                                                          "tru",
                                                          "\"\"",
                                                          "\"a\"",
                                                          "\"tiny\"",
                                                          "\"user\"",
                                                          "\"assistant\"",
                                                          "\"system\"",
                                                          "\"developer\"",
                                                          "\"tool\"",
                                                          "\"text\"",
                                                          "\"function\"",
                                                          "\"message\"",
                                                          "\"function_call\"",
                                                          "\"function_call_output\"",
                                                          "\"reasoning\"",
                                                          "\"json_schema\"",
                                                          "\"json_object\"",
                                                          "\"thinking\"",
                                                          "\"tool_use\"",
                                                          "\"tool_result\"",
                                                          "\"document\"",
                                                          "\"image\"",
                                                          "\"enabled\"",
                                                          "\"adaptive\"",
                                                          "\"any\"",
                                                          "\"json\"",
                                                          "\"low\"",
                                                          "\"auto\"",
                                                          "\"required\"",
                                                          "\"base64\"",
                                                          "\"10m\"",
                                                          "\"\\ud800\"",
                                                          "\"\\ud83d\\ude00\"",
                                                          "\"\\udc00x\"",
                                                          "\"\\u0000\"",
                                                          "\"\\x\"",
                                                          "\"\xff\"",
                                                          "\"{\\\"a\\\":1}\"",
                                                          "\"\xe2\x82\xac\""});

/// Makes JSON, or nearly, of bytes that say what comes next.
class Maker {
 public:
  Maker(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}

  std::string object(int depth) {
    std::string text = "{";
    for (unsigned left = byte() % 8; left > 0; --left) {
      text += (text.size() > 1 ? ",\"" : "\"") + std::string(kKeys[byte() % kKeys.size()]) + "\":";
      text += value(depth);
    }
    return text + "}";
  }

 private:
  unsigned byte() { return at_ < size_ ? data_[at_++] : 0; }

  std::string value(int depth) {
    const unsigned kind = byte();
    if (kind < 48 && depth < 6) {
      return object(depth + 1);
    }
    if (kind < 96 && depth < 6) {
      std::string text = "[";
      for (unsigned left = byte() % 5; left > 0; --left) {
        text += (text.size() > 1 ? "," : "") + value(depth + 1);
      }
      return text + "]";
    }
    if (kind < 104) {  // Long, deep, or many.
      const std::size_t count = std::size_t{1} << (byte() % 12);
      switch (byte() % 4) {
        case 0:
          return "\"" + std::string(count, 'a') + "\"";
        case 1:
          return std::string(count % 128, '[') + std::string(count % 128, ']');
        case 2:
          return std::string(count, '9');
        default:
          return many(count);
      }
    }
    return std::string(kValues[byte() % kValues.size()]);
  }

  static std::string many(std::size_t count) {
    std::string text = "[1";
    for (std::size_t i = 0; i < count; ++i) {
      text += ",1";
    }
    return text + "]";
  }

  const std::uint8_t* data_;
  std::size_t size_;
  std::size_t at_ = 0;
};

template <class T>
bool taken(const api::Parsed<T>& parsed) {
  const auto* error = std::get_if<api::ApiError>(&parsed);
  if (error == nullptr) {
    return true;
  }
  HEDDLE_CHECK(error->status == 400 && !error->message.empty());
  HEDDLE_CHECK(error->message.size() < 2100 && error->param.size() < 140);
  HEDDLE_CHECK(nlohmann::json::accept(api::to_json(*error)));
  // Where it is about a field, the message begins with it.
  const bool is_about = error->param.empty() || !error->message.starts_with("the body");
  HEDDLE_CHECK(is_about);
  return false;
}

/// Bodies of the other APIs.
void read_others(const std::string& body) {
  for (const auto& parse : {api::parse_message_request, api::parse_message_count_request}) {
    const auto message = parse(body);
    if (taken(message)) {
      const api::ChatRequest& chat = std::get<0>(message);
      HEDDLE_CHECK(nlohmann::json::accept(chat.messages.json));
      HEDDLE_CHECK(chat.tools.json.empty() || nlohmann::json::accept(chat.tools.json));
      HEDDLE_CHECK(nlohmann::json::accept(chat.template_variables));
    }
  }
  for (const auto& parse : {api::parse_ollama_chat, api::parse_ollama_generate}) {
    const auto ollama = parse(body);
    if (taken(ollama)) {
      const api::OllamaRequest& request = std::get<0>(ollama);
      HEDDLE_CHECK(request.empty || nlohmann::json::accept(request.chat.messages.json));
      HEDDLE_CHECK(nlohmann::json::accept(request.chat.template_variables));
    }
  }
  for (const auto& parse : {api::parse_ollama_embed, api::parse_ollama_embeddings}) {
    const auto embedding = parse(body);
    HEDDLE_CHECK(!taken(embedding) || !std::get<0>(embedding).inputs.empty());
  }
}

/// What engines get is an object as long as what the client sent was one.
void forward(const std::string& body) {
  gateway::HttpRequest request;
  request.body = body;
  const auto facts = gateway::read_facts(request);
  if (!facts) {
    HEDDLE_CHECK(!nlohmann::json::accept(body) || !body.starts_with('{'));
    return;
  }
  heddle::config::EngineConfig engine;
  engine.served_name = "served";
  engine.filters.strip_params = {"temperature", "top_p"};
  engine.filters.set_params = {{"max_tokens", "5"}, {"user", "\"x\""}};
  const std::string filtered =
      gateway::filtered_body(request, engine.filters, engine.served_name, facts->model);
  HEDDLE_CHECK(!nlohmann::json::accept(body) || nlohmann::json::accept(filtered));
  HEDDLE_CHECK(filtered.size() <= body.size() + 100);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string body = Maker(data, size).object(0);
  const auto chat = api::parse_chat_request(body);
  if (taken(chat)) {
    const api::Messages& messages = std::get<0>(chat).messages;
    HEDDLE_CHECK(nlohmann::json::accept(messages.json) && messages.text_bytes <= body.size());
  }
  const auto completion = api::parse_completion_request(body);
  HEDDLE_CHECK(!taken(completion) || !std::get<0>(completion).prompts.empty());
  const auto response = api::parse_response_request(body);
  if (taken(response)) {
    HEDDLE_CHECK(nlohmann::json::accept(std::get<0>(response).chat.messages.json));
    HEDDLE_CHECK(nlohmann::json::accept("{" + std::get<0>(response).settings + "}"));
  }
  const auto embedding = api::parse_embedding_request(body);
  HEDDLE_CHECK(!taken(embedding) || !std::get<0>(embedding).inputs.empty());
  const auto tokenize = api::parse_tokenize_request(body);
  HEDDLE_CHECK(!taken(tokenize) || std::get<0>(tokenize).prompt.has_value() ==
                                       std::get<0>(tokenize).messages.json.empty());
  const auto detokenize = api::parse_detokenize_request(body);
  HEDDLE_CHECK(!taken(detokenize) || std::get<0>(detokenize).tokens.size() <= body.size());
  const auto model = api::parse_model_request(body);
  HEDDLE_CHECK(!taken(model) || !std::get<0>(model).empty());
  const auto adapter = api::parse_load_adapter_request(body);
  HEDDLE_CHECK(!taken(adapter) || !std::get<0>(adapter).path.empty());
  const auto unload = api::parse_unload_adapter_request(body);
  HEDDLE_CHECK(!taken(unload) || !std::get<0>(unload).empty());
  (void)taken(api::parse_profile_request(body));  // None is named by null.
  const api::JsonCount count = api::count_json(body);
  HEDDLE_CHECK(count.parts <= body.size() && count.commas <= body.size());
  read_others(body);
  forward(body);
  return 0;
}
