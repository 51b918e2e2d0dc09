#include "api/ollama/ollama_options.h"

#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "api/generation_params.h"
#include "spec/json_writer.h"

namespace heddle::api {

namespace dom = simdjson::dom;

namespace {

constexpr std::int64_t kIntegerMax = std::numeric_limits<std::int32_t>::max();

/// The name that Ollama has for a number.
std::string_view option_name(const spec::SamplingNumber& number) {
  return number.field == &spec::SamplingParams::repetition_penalty ? "repeat_penalty" : number.name;
}

/// Kinds of sampling that are not here; refused unless they ask for nothing.
void refuse_sampling(BodyReader& options) {
  options.refuse_unless_neutral({"mirostat"});
  for (const std::string_view key : {"tfs_z", "typical_p"}) {
    if (options.number(key, {}).value_or(1.0) != 1.0) {
      options.fail(not_supported(std::string(key),
                                 std::string(key) + ": is not supported; want 1, or leave it out"));
    }
  }
}

void read_options(BodyReader& options, GenerationParams& params) {
  for (const spec::SamplingNumber& number : spec::kSamplingNumbers) {
    params.numbers[number.field] =
        options.number(option_name(number), {.least = number.least, .most = number.most});
  }
  params.top_k = options.integer("top_k", 0, kIntegerMax);
  std::optional<double>& top_p = params.numbers[&spec::SamplingParams::top_p];
  if (top_p == 0.0) {
    params.top_k = 1;  // The smallest nucleus is the likeliest token.
    top_p.reset();
  }
  const std::optional<std::int64_t> seed = options.integer("seed", INT64_MIN, INT64_MAX);
  if (seed && *seed >= 0) {  // Less than 0 asks for any.
    params.seed = static_cast<std::uint64_t>(*seed);
  }
  const std::optional<std::int64_t> most = options.integer("num_predict", -2, kIntegerMax);
  if (most == 0) {
    options.fail(invalid_request(
        "num_predict", "num_predict: is 0; want at least 1, or -1 for as much as there is room"));
  } else if (most && *most > 0) {
    params.max_tokens = most;
  }
  params.stop = read_stop_strings(options, "stop", /*one=*/true);
  refuse_sampling(options);
}

spec::Grammar read_ollama_format(BodyReader& body) {
  const std::optional<dom::element> format = body.find("format");
  if (!format) {
    return {};
  }
  std::string_view word;
  if (format->get_string().get(word) == simdjson::SUCCESS && (word.empty() || word == "json")) {
    return word.empty() ? spec::Grammar{}
                        : spec::Grammar{.kind = spec::GrammarKind::kJsonSchema,
                                        .text = R"({"type":"object"})"};
  }
  if (!format->is_object()) {
    body.reject("format", *format, R"("json" or a JSON schema, which is an object)");
    return {};
  }
  return {.kind = spec::GrammarKind::kJsonSchema, .text = simdjson::minify(*format)};
}

}  // namespace

GenerationParams read_ollama_params(BodyReader& body) {
  GenerationParams params;
  if (const std::optional<dom::element> given = body.find("options")) {
    if (!given->is_object()) {
      body.reject("options", *given, R"(an object such as {"temperature": 0})");
      return params;
    }
    BodyReader options(simdjson::minify(*given));
    read_options(options, params);
    if (!options.ok()) {
      ApiError error = options.error();
      error.param = error.param.empty() ? "options" : "options." + error.param;
      body.fail(std::move(error));
    }
  }
  params.grammar = read_ollama_format(body);
  params.stream = body.flag("stream").value_or(true);
  params.keep_alive = read_keep_alive(body);
  const std::optional<std::int64_t> top = body.integer("top_logprobs", 0, kAlternativesMax);
  if (body.flag("logprobs").value_or(false) || top.value_or(0) > 0) {
    params.logprobs = static_cast<std::int32_t>(top.value_or(0));
  }
  return params;
}

std::string read_ollama_thinking(BodyReader& body) {
  const std::optional<dom::element> think = body.find("think");
  if (!think) {
    return "{}";
  }
  bool thinks = true;
  std::string_view effort;
  const bool known =
      think->get_bool().get(thinks) == simdjson::SUCCESS ||
      (think->get_string().get(effort) == simdjson::SUCCESS &&
       (effort == "low" || effort == "medium" || effort == "high" || effort == "max"));
  if (!known) {
    body.reject("think", *think, R"(true, false, "low", "medium", "high" or "max")");
    return "{}";
  }
  // Templates know one or the other name of this switch.
  spec::JsonWriter json;
  json.begin_object().key("enable_thinking").boolean(thinks).key("thinking").boolean(thinks);
  if (!effort.empty()) {
    json.key("reasoning_effort").string(effort);
  }
  json.end_object();
  return std::move(json).take();
}

}  // namespace heddle::api
