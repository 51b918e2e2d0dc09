#include "bench/answer_parser.h"

namespace heddle::bench {

namespace dom = simdjson::dom;

namespace {

bool has_text(dom::element object, std::string_view key) {
  std::string_view text;
  return object[key].get_string().get(text) == simdjson::SUCCESS && !text.empty();
}

/// Of a choice, whole or new.
bool brings_content(dom::element choice) {
  dom::element part;
  if (choice["delta"].get(part) != simdjson::SUCCESS &&
      choice["message"].get(part) != simdjson::SUCCESS) {
    return has_text(choice, "text");
  }
  dom::array calls;
  return has_text(part, "content") || has_text(part, "reasoning_content") ||
         has_text(part, "reasoning") ||
         (part["tool_calls"].get_array().get(calls) == simdjson::SUCCESS && calls.size() > 0);
}

void add_scores(dom::element choice, std::vector<std::string>& scores) {
  dom::element logprobs;
  dom::array tokens;
  if (choice["logprobs"].get(logprobs) != simdjson::SUCCESS ||
      logprobs["tokens"].get_array().get(tokens) != simdjson::SUCCESS) {
    return;
  }
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    std::string score;
    for (const std::string_view key : {"tokens", "token_logprobs", "top_logprobs"}) {
      dom::array values;
      dom::element value;
      if (logprobs[key].get_array().get(values) == simdjson::SUCCESS &&
          values.at(i).get(value) == simdjson::SUCCESS) {
        score += simdjson::minify(value) + ' ';
      }
    }
    scores.push_back(std::move(score));
  }
}

std::optional<std::int64_t> count(dom::element usage, std::string_view key) {
  std::int64_t value = 0;
  return usage[key].get_int64().get(value) == simdjson::SUCCESS && value >= 0 ? std::optional(value)
                                                                              : std::nullopt;
}

std::string error_of(dom::element error) {
  std::string_view message;
  if (error["message"].get_string().get(message) == simdjson::SUCCESS ||
      error.get_string().get(message) == simdjson::SUCCESS) {
    return std::string(message);
  }
  return simdjson::minify(error);
}

}  // namespace

AnswerNews AnswerParser::parse(std::string_view json) {
  AnswerNews news;
  dom::element root;
  if (parser_.parse(json.data(), json.size()).get(root) != simdjson::SUCCESS || !root.is_object()) {
    news.error = "the server sent what is no JSON object: " + std::string(json.substr(0, 80));
    return news;
  }
  dom::element error;
  if (root["error"].get(error) == simdjson::SUCCESS && !error.is_null()) {
    news.error = error_of(error);
  }
  dom::array choices;
  if (root["choices"].get_array().get(choices) == simdjson::SUCCESS) {
    for (const dom::element choice : choices) {
      news.content = news.content || brings_content(choice);
      add_scores(choice, news.scores);
    }
  }
  dom::element usage;
  if (root["usage"].get(usage) == simdjson::SUCCESS && usage.is_object()) {
    news.prompt_tokens = count(usage, "prompt_tokens");
    news.completion_tokens = count(usage, "completion_tokens");
  }
  return news;
}

}  // namespace heddle::bench
