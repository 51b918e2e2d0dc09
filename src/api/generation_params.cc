#include "api/generation_params.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "api/output_format.h"
#include "base/units.h"
#include "spec/json_writer.h"

namespace heddle::api {

namespace dom = simdjson::dom;

namespace {

constexpr std::int64_t kChoicesMax = 16;
constexpr std::size_t kStopsMax = 16;
constexpr std::size_t kStopBytesMax = 1024;
constexpr std::size_t kBiasesMax = 1024;
constexpr std::size_t kStopTokensMax = 128;
constexpr std::size_t kAllowedMax = 1024;
constexpr std::size_t kSaltBytesMax = 256;
constexpr std::int64_t kTokensMax = std::numeric_limits<std::int32_t>::max();

void add_stop(BodyReader& body,
              std::string_view key,
              dom::element value,
              std::vector<std::string>& stop) {
  std::string_view text;
  if (value.get_string().get(text) != simdjson::SUCCESS || text.empty() ||
      text.size() > kStopBytesMax) {
    body.reject(key, value, "strings of 1 to 1024 bytes");
    return;
  }
  stop.emplace_back(text);
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
  const auto flag = [&](const char* key, bool& value) {
    dom::element given;
    if (object.at_key(key).get(given) == simdjson::SUCCESS && !given.is_null() &&
        given.get_bool().get(value) != simdjson::SUCCESS) {
      body.reject(std::string("stream_options.") + key, given, "true or false");
    }
  };
  flag("include_usage", params.include_usage);
  flag("continuous_usage_stats", params.continuous_usage);
  // As vLLM reads it: without the former the latter asks for nothing.
  params.continuous_usage = params.continuous_usage && params.include_usage;
}

void read_max_tokens(BodyReader& body, std::int64_t least, GenerationParams& params) {
  params.max_tokens = body.integer("max_completion_tokens", least, kTokensMax);
  const std::optional<std::int64_t> older = body.integer("max_tokens", least, kTokensMax);
  if (!params.max_tokens) {
    params.max_tokens = older;
  }
}

/// Names that other servers have for what is known here by one.
void read_other_names(BodyReader& body, GenerationParams& params) {
  std::optional<double>& penalty = params.numbers[&spec::SamplingParams::repetition_penalty];
  const std::optional<double> older = body.number("repeat_penalty", {.least = 0.01, .most = 100});
  if (!penalty) {
    penalty = older;
  }
  const std::optional<std::int64_t> predicted = body.integer("n_predict", -1, kTokensMax);
  if (!params.max_tokens && predicted.value_or(0) > 0) {
    params.max_tokens = predicted;
  }
}

/// An answer of these tokens alone is one of the grammar of a token that repeats.
void read_allowed_tokens(BodyReader& body, GenerationParams& params) {
  const std::optional<dom::element> value = body.find("allowed_token_ids");
  if (!value) {
    return;
  }
  const std::vector<TokenId> ids = body.tokens("allowed_token_ids", *value);
  if (!body.ok() || ids.size() > kAllowedMax || ids.empty()) {
    body.reject("allowed_token_ids", *value, "1 to 1024 token ids");
    return;
  }
  if (params.grammar.constrains()) {
    body.fail(invalid_request(
        "allowed_token_ids",
        "allowed_token_ids: is there beside another constraint of the answer; want one"));
    return;
  }
  std::string list;
  for (const TokenId id : ids) {
    list += (list.empty() ? "" : ",") + std::to_string(id);
  }
  params.grammar = {.kind = spec::GrammarKind::kLark, .text = "start: <[" + list + "]>+\n"};
}

/// Texts that must not come, and how long an answer is at least.
void read_bans(BodyReader& body, GenerationParams& params) {
  params.min_tokens = body.integer("min_tokens", 0, kTokensMax).value_or(0);
  if (params.max_tokens && *params.max_tokens > 0 && params.min_tokens > *params.max_tokens) {
    body.fail(invalid_request("min_tokens",
                              "min_tokens: is " + std::to_string(params.min_tokens) +
                                  "; want at most max_tokens, which is " +
                                  std::to_string(*params.max_tokens)));
  }
  params.bad_words = read_stop_strings(body, "bad_words", /*one=*/false);
}

/// What would change the answer and cannot be done is refused; what only adds to it is told of.
void refuse_constraints(BodyReader& body) {
  body.refuse_unless_neutral({"use_beam_search",
                              "grammar",
                              "json_schema",
                              "structural_tag",
                              "truncate_prompt_tokens",
                              "return_tokens_as_token_ids",
                              "return_token_ids",
                              "logits_processors",
                              "guided_whitespace_pattern",
                              "no_repeat_ngram_size",
                              "dynatemp_range",
                              "dry_multiplier",
                              "xtc_probability",
                              "mirostat",
                              "top_a",
                              "top_n_sigma",
                              "lora"});
  for (const std::string_view key : {"typical_p", "tfs_z", "length_penalty"}) {
    body.refuse_unless(key, 1.0);
  }
  if (!body.flag("skip_special_tokens").value_or(true)) {
    body.warn("skip_special_tokens: is false; special tokens are no text here, and not shown");
  }
}

void read_cache_salt(BodyReader& body, GenerationParams& params) {
  params.cache_salt = body.text("cache_salt").value_or("");
  const std::optional<dom::element> value = body.find("cache_salt");
  if (value && value->is_string() &&
      (params.cache_salt.empty() || params.cache_salt.size() > kSaltBytesMax)) {
    body.reject("cache_salt", *value, "a string of 1 to 256 bytes");
  }
}

}  // namespace

std::vector<std::string> read_stop_strings(BodyReader& body, std::string_view key, bool one) {
  std::vector<std::string> stop;
  const std::optional<dom::element> value = body.find(key);
  dom::array list;
  if (!value) {
    return stop;
  }
  if (one && value->is_string()) {
    add_stop(body, key, *value, stop);
  } else if (value->get_array().get(list) != simdjson::SUCCESS || list.size() > kStopsMax) {
    body.reject(
        key, *value, one ? "a string or a list of up to 16 strings" : "a list of up to 16 strings");
  } else {
    for (const dom::element item : list) {
      add_stop(body, key, item, stop);
    }
  }
  return stop;
}

GenerationParams read_generation_params(BodyReader& body, std::int64_t least) {
  GenerationParams params;
  for (const spec::SamplingNumber& number : spec::kSamplingNumbers) {
    params.numbers[number.field] =
        body.number(number.name, {.least = number.least, .most = number.most});
  }
  std::optional<double>& top_p = params.numbers[&spec::SamplingParams::top_p];
  if (top_p == 0.0) {
    params.top_k = 1;  // The smallest nucleus is the likeliest token.
    top_p.reset();
  }
  const std::optional<std::int64_t> top_k = body.integer("top_k", -1, kTokensMax);
  if (top_k && !params.top_k) {
    params.top_k = std::max<std::int64_t>(*top_k, 0);  // -1 also means all.
  }
  params.logit_bias = read_logit_bias(body);
  const std::optional<std::int64_t> seed =
      body.integer("seed", INT64_MIN, std::numeric_limits<std::int64_t>::max());
  if (seed) {
    params.seed = static_cast<std::uint64_t>(*seed);
  }
  read_max_tokens(body, least, params);
  params.stop = read_stop_strings(body, "stop", /*one=*/true);
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
  params.keep_alive = read_keep_alive(body);
  read_stream(body, params);
  params.user = body.text("user").value_or("");
  read_cache_salt(body, params);
  params.grammar = read_output_format(body);
  params.include_stop = body.flag("include_stop_str_in_output").value_or(false);
  read_other_names(body, params);
  read_allowed_tokens(body, params);
  read_bans(body, params);
  refuse_constraints(body);
  return params;
}

std::optional<Duration> read_keep_alive(BodyReader& body) {
  constexpr std::string_view kKey = "keep_alive";
  constexpr double kSecondsMost = 10 * 365 * 86400.0;
  const std::optional<dom::element> value = body.find(kKey);
  if (!value) {
    return std::nullopt;
  }
  double seconds = 0;
  std::string_view text;
  if (value->get_double().get(seconds) == simdjson::SUCCESS && seconds <= kSecondsMost) {
    return seconds < 0 ? Duration::max() : from_seconds(seconds);
  }
  if (value->get_string().get(text) == simdjson::SUCCESS) {
    if (text.starts_with('-')) {
      return Duration::max();
    }
    if (const Result<Duration> parsed = parse_duration(text)) {
      return *parsed;
    }
  }
  body.reject(kKey, *value, "seconds, or a time such as \"10m\"; 0 unloads, -1 never");
  return std::nullopt;
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
  std::optional<std::string> effort = body.text("reasoning_effort");
  if (const std::optional<dom::element> reasoning = body.find("reasoning"); reasoning && !effort) {
    std::string_view word;  // As requests to /v1/responses spell it.
    if ((*reasoning)["effort"].get_string().get(word) == simdjson::SUCCESS) {
      effort = word;
    }
  }
  if (effort) {
    spec::JsonWriter text;
    text.string(*effort);
    json += (json.size() > 1 ? "," : "") + std::string("\"reasoning_effort\":") + text.text();
  }
  return json + "}";
}

std::optional<std::int64_t> read_truncation(BodyReader& body) {
  constexpr std::int64_t kTruncationMax = 1 << 30;
  const std::optional<std::int64_t> tokens =
      body.integer("truncate_prompt_tokens", -1, kTruncationMax);
  if (tokens == 0) {
    body.fail(invalid_request("truncate_prompt_tokens",
                              "truncate_prompt_tokens: is 0; want a number of tokens, or -1 for as "
                              "many as the model takes"));
  }
  return tokens;
}

}  // namespace heddle::api
