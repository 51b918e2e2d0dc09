#include "api/anthropic/message_request.h"

#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "api/anthropic/message_tools.h"
#include "api/anthropic/message_turns.h"
#include "api/body_reader.h"
#include "api/generation_params.h"
#include "spec/json_writer.h"

namespace heddle::api {

namespace dom = simdjson::dom;

namespace {

constexpr std::int64_t kTopKMax = std::numeric_limits<std::int32_t>::max();

/// A model here thinks before its answer, or not; not between calls alone.
bool is_off(std::string_view thinking) {
  return thinking == "disabled" || thinking == "between_tools";
}

/// Whether the model shall think. Anthropic's models do so only where they are asked to.
bool asks_for_thought(BodyReader& body) {
  const std::optional<dom::element> thinking = body.find("thinking");
  if (!thinking) {
    return false;
  }
  std::string_view type;
  const bool known = thinking->is_object() &&
                     (*thinking)["type"].get_string().get(type) == simdjson::SUCCESS &&
                     (type == "enabled" || type == "adaptive" || is_off(type));
  if (!known) {
    body.reject("thinking",
                *thinking,
                R"({"type": "enabled", "budget_tokens": ...}, "adaptive" or "disabled")");
  }
  return !is_off(type);
}

/// Templates know one or the other name of this switch.
std::string message_variables(BodyReader& body) {
  const bool thinks = asks_for_thought(body);
  spec::JsonWriter json;
  json.begin_object().key("enable_thinking").boolean(thinks).key("thinking").boolean(thinks);
  std::string_view effort;
  const std::optional<dom::element> config = body.find("output_config");
  if (config && config->is_object() &&
      (*config)["effort"].get_string().get(effort) == simdjson::SUCCESS) {
    json.key("reasoning_effort").string(effort);
  }
  json.end_object();
  return std::move(json).take();
}

/// The schema of `output_config.format`, or of `output_format`, its older name.
spec::Grammar read_message_format(BodyReader& body) {
  std::string where = "output_format";
  std::optional<dom::element> format = body.find(where);
  if (const std::optional<dom::element> config = body.find("output_config")) {
    dom::element inner;
    if ((*config)["format"].get(inner) == simdjson::SUCCESS && !inner.is_null()) {
      where = "output_config.format";
      format = inner;
    }
  }
  if (!format) {
    return {};
  }
  std::string_view type;
  dom::element schema;
  (void)(*format)["type"].get_string().get(type);
  if (type != "json_schema" || (*format)["schema"].get(schema) != simdjson::SUCCESS ||
      !schema.is_object()) {
    body.reject(where, *format, R"({"type": "json_schema", "schema": ...})");
    return {};
  }
  return {.kind = spec::GrammarKind::kJsonSchema, .text = simdjson::minify(schema)};
}

GenerationParams read_message_params(BodyReader& body) {
  using spec::SamplingParams;
  GenerationParams params;
  for (const spec::SamplingNumber& number : spec::kSamplingNumbers) {
    if (number.field == &SamplingParams::temperature || number.field == &SamplingParams::top_p) {
      params.numbers[number.field] =
          body.number(number.name, {.least = number.least, .most = number.most});
    }
  }
  params.top_k = body.integer("top_k", 0, kTopKMax);
  std::optional<double>& top_p = params.numbers[&SamplingParams::top_p];
  if (top_p == 0.0) {
    params.top_k = 1;  // The smallest nucleus is the likeliest token.
    top_p.reset();
  }
  params.max_tokens = body.integer("max_tokens", 1, kTopKMax);
  if (!params.max_tokens) {
    body.fail(invalid_request("max_tokens",
                              "max_tokens: is missing; want the most tokens that the answer may "
                              "have, such as 1024"));
  }
  params.stop = read_stop_strings(body, "stop_sequences", /*one=*/false);
  params.stream = body.flag("stream").value_or(false);
  params.grammar = read_message_format(body);
  params.keep_alive = read_keep_alive(body);
  params.priority =
      static_cast<std::int32_t>(body.integer("priority", -1'000'000, 1'000'000).value_or(0));
  std::string_view user;
  const std::optional<dom::element> metadata = body.find("metadata");
  if (metadata && (*metadata)["user_id"].get_string().get(user) == simdjson::SUCCESS) {
    params.user = user;
  }
  return params;
}

/// What asks and what is asked, without what the answer is like.
ChatRequest read_message_chat(BodyReader& body) {
  ChatRequest chat;
  chat.model = body.required_text("model", kModelExample);
  body.refuse_unless_neutral({"container", "mcp_servers"});
  MessageTurns turns = read_message_turns(body);
  chat.messages = std::move(turns.messages);
  chat.answer_begins = std::move(turns.answer_begins);
  chat.messages.text_bytes += chat.answer_begins.size();
  chat.template_variables = message_variables(body);
  chat.tools = read_message_tools(body);
  return chat;
}

}  // namespace

Parsed<ChatRequest> parse_message_request(std::string_view text) {
  BodyReader body(text);
  ChatRequest chat = read_message_chat(body);
  chat.params = read_message_params(body);
  if (!body.ok()) {
    return body.error();
  }
  return chat;
}

Parsed<ChatRequest> parse_message_count_request(std::string_view text) {
  BodyReader body(text);
  ChatRequest chat = read_message_chat(body);
  if (!body.ok()) {
    return body.error();
  }
  return chat;
}

}  // namespace heddle::api
