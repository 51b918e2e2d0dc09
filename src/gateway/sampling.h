#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/error.h"
#include "api/requests.h"
#include "spec/config_json.h"
#include "spec/sampling.h"
#include "text/tokenizer.h"

namespace heddle::gateway {

/// What a model allows and suggests.
struct SamplingLimits {
  const spec::GenerationDefaults& defaults;
  const std::vector<TokenId>& eos;
  std::int64_t vocab = 0;
  std::int64_t context = 0;
  bool encodes = false;  ///< The model is an encoder: `context` is for the prompt alone.
};

/// The tokens that each of these texts is made of, at the start of a text and within one. Status
/// 400 for a text that has none.
[[nodiscard]] api::Parsed<std::vector<spec::BadWord>> tokens_of_words(
    const std::vector<std::string>& words, const text::Tokenizer& tokenizer);

/// The parameters of each of `params.choices` answers to a prompt of `prompt_tokens` tokens: the
/// client's values, else the model's, else OpenAI's. Answers end where the context does.
/// @param seed        For clients that gave none.
/// @param max_tokens  For clients that gave none; 0: as far as the context goes.
/// @return            Status 400 for a token id that is not in the vocabulary.
[[nodiscard]] api::Parsed<std::vector<spec::SamplingParams>> resolve_sampling(
    const api::GenerationParams& params,
    const SamplingLimits& limits,
    std::int64_t prompt_tokens,
    std::uint64_t seed,
    std::int64_t max_tokens);

/// Status 400 when a token is not in the vocabulary.
[[nodiscard]] std::optional<api::ApiError> check_tokens_known(const std::vector<TokenId>& tokens,
                                                              std::int64_t vocab,
                                                              const std::string& param);

/// Status 400, with the numbers, for a prompt that leaves no room for an answer, or that is empty.
[[nodiscard]] std::optional<api::ApiError> check_prompt(const std::vector<TokenId>& prompt,
                                                        const SamplingLimits& limits,
                                                        const std::string& param);

}  // namespace heddle::gateway
