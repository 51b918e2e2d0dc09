#include "gateway/sampling.h"

#include <algorithm>

namespace heddle::gateway {

namespace {

/// Each number as the request says, or the model suggests, or it is by default.
void set_numbers(const api::GenerationParams& params,
                 const spec::GenerationDefaults& defaults,
                 spec::SamplingParams& one) {
  for (const spec::SamplingNumber& number : spec::kSamplingNumbers) {
    const std::optional<double>& asked = params.numbers[number.field];
    const std::optional<double>& wanted = asked ? asked : defaults.numbers[number.field];
    if (wanted) {
      one.*number.field = static_cast<float>(*wanted);
    }
  }
  if (defaults.do_sample == false && !params.numbers[&spec::SamplingParams::temperature]) {
    one.temperature = 0;
  }
}

}  // namespace

std::optional<api::ApiError> check_tokens_known(const std::vector<TokenId>& tokens,
                                                std::int64_t vocab,
                                                const std::string& param) {
  for (const TokenId id : tokens) {
    if (id < 0 || id >= vocab) {
      return api::invalid_request(param,
                                  param + ": token " + std::to_string(id) +
                                      " is not in the model's vocabulary; want ids from 0 to " +
                                      std::to_string(vocab - 1));
    }
  }
  return std::nullopt;
}

std::optional<api::ApiError> check_prompt(const std::vector<TokenId>& prompt,
                                          const SamplingLimits& limits,
                                          const std::string& param) {
  const auto tokens = static_cast<std::int64_t>(prompt.size());
  if (tokens == 0) {
    return api::invalid_request(param, param + ": has no tokens; want at least one");
  }
  if (limits.encodes && tokens > limits.context) {
    api::ApiError error = api::invalid_request(
        param,
        param + ": is " + std::to_string(tokens) + " tokens long, but the model takes at most " +
            std::to_string(limits.context) +
            " tokens; shorten it, or have it cut with truncate_prompt_tokens");
    error.code = "context_length_exceeded";
    return error;
  }
  if (!limits.encodes && tokens >= limits.context) {
    api::ApiError error = api::invalid_request(
        param,
        param + ": is " + std::to_string(tokens) + " tokens long, but the model's context is " +
            std::to_string(limits.context) + " tokens, prompt and answer together; shorten it to " +
            std::to_string(limits.context - 1) + " or fewer");
    error.code = "context_length_exceeded";
    return error;
  }
  return check_tokens_known(prompt, limits.vocab, param);
}

api::Parsed<std::vector<spec::BadWord>> tokens_of_words(const std::vector<std::string>& words,
                                                        const text::Tokenizer& tokenizer) {
  std::vector<spec::BadWord> found;
  for (const std::string& word : words) {
    for (const std::string& spelled : {word, " " + word}) {
      Result<std::vector<TokenId>> tokens = tokenizer.encode(spelled, text::SpecialTokens::kNone);
      if (!tokens || tokens->empty()) {
        return api::invalid_request("bad_words", "bad_words: \"" + word + "\" is no text");
      }
      spec::BadWord bad{.tokens = std::move(tokens).value()};
      if (std::find(found.begin(), found.end(), bad) == found.end()) {
        found.push_back(std::move(bad));
      }
    }
  }
  return found;
}

api::Parsed<std::vector<spec::SamplingParams>> resolve_sampling(const api::GenerationParams& params,
                                                                const SamplingLimits& limits,
                                                                std::int64_t prompt_tokens,
                                                                std::uint64_t seed,
                                                                std::int64_t max_tokens) {
  std::vector<TokenId> biased;
  for (const auto& [token, bias] : params.logit_bias) {
    biased.push_back(token);
  }
  if (auto wrong = check_tokens_known(biased, limits.vocab, "logit_bias")) {
    return *wrong;
  }
  if (auto wrong = check_tokens_known(params.stop_token_ids, limits.vocab, "stop_token_ids")) {
    return *wrong;
  }
  const spec::GenerationDefaults& defaults = limits.defaults;
  const std::int64_t room = limits.context - prompt_tokens;
  const std::int64_t wanted = params.max_tokens.value_or(
      max_tokens > 0 ? max_tokens : defaults.max_new_tokens.value_or(room));
  spec::SamplingParams one{
      .top_k = static_cast<std::int32_t>(params.top_k.value_or(defaults.top_k.value_or(0))),
      .logit_bias = params.logit_bias,
      .seed = params.seed.value_or(seed),
      .max_tokens = std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(room, 1)),
      .ignore_eos = params.ignore_eos,
      .stop_tokens = limits.eos,
      .logprobs = params.logprobs.value_or(-1),
      .min_tokens = params.min_tokens,
      .grammar = params.grammar,
      .pooling = params.pooling,
      .in_one_pass = limits.encodes};
  set_numbers(params, defaults, one);
  if (params.score_prompt) {
    one.prompt_logprobs = one.logprobs;
  }
  one.prompt_logprobs = std::max(one.prompt_logprobs, params.prompt_logprobs.value_or(-1));
  one.stop_tokens.insert(
      one.stop_tokens.end(), params.stop_token_ids.begin(), params.stop_token_ids.end());
  std::sort(one.stop_tokens.begin(), one.stop_tokens.end());
  one.stop_tokens.erase(std::unique(one.stop_tokens.begin(), one.stop_tokens.end()),
                        one.stop_tokens.end());
  std::vector<spec::SamplingParams> choices(params.choices, one);
  for (std::uint32_t i = 0; i < params.choices; ++i) {
    choices[i].choice = i;
  }
  return choices;
}

}  // namespace heddle::gateway
