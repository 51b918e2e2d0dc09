#include "api/generation_params.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "api/output_format.h"
#include "spec/json_writer.h"

namespace heddle::api {

namespace dom = simdjson::dom;

namespace {

constexpr std::int64_t kChoicesMax = 16;
constexpr std::size_t kStopsMax = 16;
constexpr std::size_t kStopBytesMax = 1024;
constexpr std::size_t kBiasesMax = 1024;
constexpr std::size_t kStopTokensMax = 128;
constexpr std::int64_t kTokensMax = std::numeric_limits<std::int32_t>::max();

void add_stop(BodyReader& body, dom::element value, std::vector<std::string>& stop) {
  std::string_view text;
  if (value.get_string().get(text) != simdjson::SUCCESS || text.empty() ||
      text.size() > kStopBytesMax) {
    body.reject("stop", value, "strings of 1 to 1024 bytes");
    return;
  }
  stop.emplace_back(text);
}

std::vector<std::string> read_stop(BodyReader& body) {
  std::vector<std::string> stop;
  const std::optional<dom::element> value = body.find("stop");
  if (!value) {
    return stop;
  }
  dom::array list;
  if (value->get_array().get(list) != simdjson::SUCCESS) {
    if (!value->is_string()) {
      body.reject("stop", *value, "a string or a list of up to 16 strings");
      return stop;
    }
    add_stop(body, *value, stop);
    return stop;
  }
  if (list.size() > kStopsMax) {
    body.reject("stop", *value, "a string or a list of up to 16 strings");
    return stop;
  }
  for (const dom::element item : list) {
    add_stop(body, item, stop);
  }
  return stop;
}

std::vector<std::pair<TokenId, float>> read_logit_bias(BodyReader& body) {
  std::vector<std::pair<TokenId, float>> biases;
  const std::optional<dom::element> value = body.find("logit_bias");
  if (!value) {
    return biases;
  }
  dom::object object;
  if (value->get_object().get(object) != simdjson::SUCCESS || object.size() > kBiasesMax) {
    body.reject("logit_bias", *value, "an object of up to 1024 token ids and their biases");
    return biases;
  }
  for (const dom::key_value_pair entry : object) {
    TokenId id = -1;
    const char* end = entry.key.data() + entry.key.size();
    const auto [stopped, failure] = std::from_chars(entry.key.data(), end, id);
    double bias = 0;
    if (failure != std::errc() || stopped != end || id < 0 ||
        entry.value.get_double().get(bias) != simdjson::SUCCESS || bias < -100 || bias > 100) {
      body.fail(invalid_request("logit_bias",
                                "logit_bias: \"" + std::string(entry.key) + "\" is " +
                                    describe(entry.value) +
                                    "; want token ids with biases from -100 to 100"));
      return biases;
    }
    biases.emplace_back(id, static_cast<float>(bias));
  }
  std::sort(biases.begin(), biases.end());
  const auto same = [](const auto& a, const auto& b) { return a.first == b.first; };
  if (std::adjacent_find(biases.begin(), biases.end(), same) != biases.end()) {
    body.reject("logit_bias", *value, "each token id once");
  }
  return biases;
}

void read_stream(BodyReader& body, GenerationParams& params) {
  params.stream = body.flag("stream").value_or(false);
  const std::optional<dom::element> options = body.find("stream_options");
  if (!options) {
    return;
  }
  dom::object object;
  if (options->get_object().get(object) != simdjson::SUCCESS) {
    body.reject("stream_options", *options, "an object such as {\"include_usage\": true}");
    return;
  }
  if (!params.stream) {
    body.reject("stream_options", *options, "it only together with \"stream\": true");
    return;
  }
  dom::element include;
  if (object.at_key("include_usage").get(include) == simdjson::SUCCESS && !include.is_null() &&
      include.get_bool().get(params.include_usage) != simdjson::SUCCESS) {
    body.reject("stream_options.include_usage", include, "true or false");
  }
}

void read_max_tokens(BodyReader& body, GenerationParams& params) {
  params.max_tokens = body.integer("max_completion_tokens", 1, kTokensMax);
  const std::optional<std::int64_t> older = body.integer("max_tokens", 1, kTokensMax);
  if (!params.max_tokens) {
    params.max_tokens = older;
  }
}

/// The text of a content part; other kinds are refused.
void append_part(BodyReader& body, const std::string& where, dom::element part, std::string& text) {
  dom::object object;
  std::string_view type;
  if (part.get_object().get(object) != simdjson::SUCCESS ||
      object.at_key("type").get_string().get(type) != simdjson::SUCCESS) {
    body.fail(invalid_request("messages",
                              where + ": is " + describe(part) + "; want parts with a \"type\""));
    return;
  }
  std::string_view piece;
  if (type != "text") {
    body.fail(not_supported(
        "messages", where + ": type is \"" + std::string(type) + "\"; only \"text\" is supported"));
  } else if (object.at_key("text").get_string().get(piece) != simdjson::SUCCESS) {
    body.fail(invalid_request("messages", where + ".text: is missing; want a string"));
  } else {
    text += text.empty() ? "" : "\n";
    text += piece;
  }
}

/// Content as JSON: a string or null as it is, text parts joined to one string.
std::string content_json(BodyReader& body, const std::string& where, dom::element content) {
  dom::array parts;
  if (content.is_string() || content.is_null()) {
    return simdjson::minify(content);
  }
  if (content.get_array().get(parts) != simdjson::SUCCESS) {
    body.fail(invalid_request(
        "messages",
        where + ": is " + describe(content) + "; want a string or a list of text parts"));
    return "null";
  }
  std::string text;
  std::size_t index = 0;
  for (const dom::element part : parts) {
    append_part(body, where + "[" + std::to_string(index++) + "]", part, text);
  }
  spec::JsonWriter json;
  json.string(text);
  return std::move(json).take();
}

void append_message(BodyReader& body,
                    const std::string& where,
                    dom::element message,
                    std::string& json) {
  dom::object object;
  std::string_view role;
  if (message.get_object().get(object) != simdjson::SUCCESS) {
    body.fail(
        invalid_request("messages", where + ": is " + describe(message) + "; want an object"));
    return;
  }
  if (object.at_key("role").get_string().get(role) != simdjson::SUCCESS || role.empty()) {
    body.fail(invalid_request(
        "messages", where + ".role: is missing; want \"user\", \"assistant\" or \"system\""));
    return;
  }
  dom::element content;
  const bool has_content = object.at_key("content").get(content) == simdjson::SUCCESS;
  // An assistant's turn may consist of tool calls alone.
  if ((!has_content || content.is_null()) && role != "assistant") {
    body.fail(invalid_request("messages", where + ".content: is missing; want a string"));
    return;
  }
  json += json.size() > 1 ? ",{" : "{";
  bool first = true;
  for (const dom::key_value_pair field : object) {
    json += first ? "" : ",";
    first = false;
    spec::JsonWriter key;
    key.string(field.key);
    json += key.text() + ":";
    if (field.key == "content") {
      json += content_json(body, where + ".content", field.value);
    } else if (field.key == "role" && role == "developer") {
      json += "\"system\"";  // OpenAI's newer name; templates know the older one.
    } else {
      json += std::string(simdjson::minify(field.value));
    }
  }
  json += "}";
}

}  // namespace

GenerationParams read_generation_params(BodyReader& body) {
  GenerationParams params;
  params.temperature = body.number("temperature", {.least = 0, .most = 100});
  params.top_p = body.number("top_p", {.least = 0, .most = 1});
  if (params.top_p == 0.0) {
    params.top_k = 1;  // The smallest nucleus is the likeliest token.
    params.top_p.reset();
  }
  const std::optional<std::int64_t> top_k = body.integer("top_k", -1, kTokensMax);
  if (top_k && !params.top_k) {
    params.top_k = std::max<std::int64_t>(*top_k, 0);  // -1 also means all.
  }
  params.min_p = body.number("min_p", {.least = 0, .most = 1});
  params.presence_penalty = body.number("presence_penalty", {.least = -2, .most = 2});
  params.frequency_penalty = body.number("frequency_penalty", {.least = -2, .most = 2});
  params.repetition_penalty = body.number("repetition_penalty", {.least = 0.01, .most = 100});
  params.logit_bias = read_logit_bias(body);
  const std::optional<std::int64_t> seed =
      body.integer("seed", INT64_MIN, std::numeric_limits<std::int64_t>::max());
  if (seed) {
    params.seed = static_cast<std::uint64_t>(*seed);
  }
  read_max_tokens(body, params);
  params.stop = read_stop(body);
  if (const std::optional<dom::element> ids = body.find("stop_token_ids")) {
    params.stop_token_ids = body.tokens("stop_token_ids", *ids);
    if (params.stop_token_ids.size() > kStopTokensMax) {
      body.reject("stop_token_ids", *ids, "up to 128 token ids");
    }
  }
  params.ignore_eos = body.flag("ignore_eos").value_or(false);
  params.choices = static_cast<std::uint32_t>(body.integer("n", 1, kChoicesMax).value_or(1));
  params.priority =
      static_cast<std::int32_t>(body.integer("priority", -1'000'000, 1'000'000).value_or(0));
  read_stream(body, params);
  params.user = body.text("user").value_or("");
  params.grammar = read_output_format(body);
  body.refuse_unless_neutral({"prompt_logprobs",
                              "min_tokens",
                              "use_beam_search",
                              "grammar",
                              "json_schema",
                              "include_stop_str_in_output",
                              "truncate_prompt_tokens",
                              "return_tokens_as_token_ids",
                              "lora"});
  return params;
}

std::string read_messages(BodyReader& body) {
  std::string json = "[";
  const std::optional<dom::element> value = body.find("messages");
  dom::array list;
  if (!value) {
    body.fail(invalid_request(
        "messages",
        "messages: is missing; want a list such as [{\"role\": \"user\", \"content\": \"Hi\"}]"));
  } else if (value->get_array().get(list) != simdjson::SUCCESS || list.size() == 0) {
    body.reject("messages", *value, "a list of at least one message");
  } else {
    std::size_t index = 0;
    for (const dom::element message : list) {
      append_message(body, "messages[" + std::to_string(index++) + "]", message, json);
    }
  }
  return json + "]";
}

std::string read_template_variables(BodyReader& body) {
  std::string json;
  if (const std::optional<dom::element> value = body.find("chat_template_kwargs")) {
    dom::object object;
    if (value->get_object().get(object) != simdjson::SUCCESS) {
      body.reject("chat_template_kwargs", *value, "an object");
      return "{}";
    }
    json = simdjson::minify(*value);
    json.pop_back();
  } else {
    json = "{";
  }
  if (const std::optional<std::string> effort = body.text("reasoning_effort")) {
    spec::JsonWriter text;
    text.string(*effort);
    json += (json.size() > 1 ? "," : "") + std::string("\"reasoning_effort\":") + text.text();
  }
  return json + "}";
}

}  // namespace heddle::api
