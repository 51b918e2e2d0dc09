#pragma once

#include <cstdint>
#include <vector>

#include "api/responses.h"
#include "spec/json_writer.h"

namespace heddle::api {

/// The newer form of log probabilities, in chats and responses: an array of objects, one for each
/// token.
void write_logprobs(spec::JsonWriter& json, const std::vector<TokenLogprobs>& tokens);

/// The form of plain completions: an object of parallel lists.
/// @param offset  Characters of the answer before the first token.
void write_completion_logprobs(spec::JsonWriter& json,
                               const std::vector<TokenLogprobs>& tokens,
                               std::int64_t offset);

/// vLLM's form of those of a prompt: null for its first token, else an object of the tokens by id.
void write_prompt_logprobs(spec::JsonWriter& json, const PromptLogprobs& prompt);

}  // namespace heddle::api
