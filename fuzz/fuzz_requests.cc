// Bodies of requests: every parser gives a request within its bounds, or one error of status 400.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <nlohmann/json.hpp>

#include "api/anthropic/message_request.h"
#include "api/embeddings.h"
#include "api/ollama/ollama_request.h"
#include "api/requests.h"
#include "api/rerank.h"
#include "api/response_request.h"
#include "base/check.h"
#include "spec/json.h"

namespace api = heddle::api;

namespace {

template <class T>
const T* accepted(const api::Parsed<T>& parsed) {
  if (const auto* error = std::get_if<api::ApiError>(&parsed)) {
    HEDDLE_CHECK(error->status == 400 && !error->message.empty());
    HEDDLE_CHECK(heddle::spec::parse_json(api::to_json(*error), "error").has_value());
    return nullptr;
  }
  return &std::get<T>(parsed);
}

/// Keys may come twice where the client's did: nothing of ours reads those.
bool is_json(const std::string& text) {
  return nlohmann::json::accept(text);
}

void check(const api::GenerationParams& params) {
  HEDDLE_CHECK(params.choices >= 1 && params.choices <= 16);
  HEDDLE_CHECK(!params.max_tokens || *params.max_tokens >= 0);
  for (const heddle::spec::SamplingNumber& number : heddle::spec::kSamplingNumbers) {
    const std::optional<double>& said = params.numbers[number.field];
    HEDDLE_CHECK(!said || (*said >= number.least && *said <= number.most));
  }
  HEDDLE_CHECK(params.stop.size() <= 16);
  for (const std::string& stop : params.stop) {
    HEDDLE_CHECK(!stop.empty());
  }
}

void check(const api::PairsRequest& request) {
  HEDDLE_CHECK(!request.pairs.empty() && request.pairs.size() <= 2048);
  HEDDLE_CHECK(request.top_n.value_or(1) >= 1);
  const std::int64_t most = request.truncate.value_or(-1);
  HEDDLE_CHECK(most == -1 || most > 0);
  for (const api::ScoredPair& pair : request.pairs) {
    HEDDLE_CHECK(pair.first < request.firsts.size() && !pair.param.empty());
  }
}

void check(const api::ChatRequest& chat) {
  check(chat.params);
  HEDDLE_CHECK(is_json(chat.messages.json) || chat.messages.json.empty());
  HEDDLE_CHECK(is_json(chat.template_variables) || chat.template_variables.empty());
  HEDDLE_CHECK(chat.tools.json.empty() || is_json(chat.tools.json));
  HEDDLE_CHECK(!chat.tools.forced() || !chat.tools.list.empty());
}

void check_others(std::string_view body) {
  for (const auto& parse : {api::parse_message_request, api::parse_message_count_request}) {
    const auto message = parse(body);
    if (const auto* request = accepted(message)) {
      check(*request);
      HEDDLE_CHECK(!request->messages.json.empty());
    }
  }
  for (const auto& parse : {api::parse_ollama_chat, api::parse_ollama_generate}) {
    const auto ollama = parse(body);
    if (const auto* request = accepted(ollama)) {
      check(request->chat);
      HEDDLE_CHECK(request->empty || !request->chat.messages.json.empty());
    }
  }
  for (const auto& parse : {api::parse_ollama_embed, api::parse_ollama_embeddings}) {
    const auto embedding = parse(body);
    if (const auto* request = accepted(embedding)) {
      HEDDLE_CHECK(!request->inputs.empty());
    }
  }
  (void)accepted(api::parse_ollama_model(body));  // A name has no further bounds here.
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  const auto chat = api::parse_chat_request(body);
  if (const auto* request = accepted(chat)) {
    check(request->params);
    HEDDLE_CHECK(is_json(request->messages.json));
    HEDDLE_CHECK(request->tools.json.empty() || is_json(request->tools.json));
  }
  const auto completion = api::parse_completion_request(body);
  if (const auto* request = accepted(completion)) {
    check(request->params);
    HEDDLE_CHECK(!request->prompts.empty());
  }
  const auto tokenize = api::parse_tokenize_request(body);
  if (const auto* request = accepted(tokenize)) {
    HEDDLE_CHECK(request->prompt.has_value() == request->messages.json.empty());
  }
  const auto embedding = api::parse_embedding_request(body);
  if (const auto* request = accepted(embedding)) {
    HEDDLE_CHECK(!request->inputs.empty() && request->dimensions.value_or(1) >= 1);
  }
  for (const auto& parse : {api::parse_rerank_request, api::parse_score_request}) {
    const auto pairs = parse(body);
    if (const auto* request = accepted(pairs)) {
      check(*request);
    }
  }
  const auto response = api::parse_response_request(body);
  if (const auto* request = accepted(response)) {
    check(request->chat.params);
    HEDDLE_CHECK(is_json(request->chat.messages.json) && is_json("{" + request->settings + "}"));
  }
  check_others(body);
  (void)accepted(api::parse_detokenize_request(body));  // Token ids have no further bounds here.
  (void)accepted(api::parse_model_request(body));       // Nor have names.
  return 0;
}
