#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/body_reader.h"
#include "api/requests.h"

namespace heddle::api {

/// Reads what chat and plain completions have in common, with `least` tokens at least as
/// `max_tokens`. What is wrong is kept in `body`.
[[nodiscard]] GenerationParams read_generation_params(BodyReader& body, std::int64_t least = 1);

/// Fields that mean nothing here: of other endpoints' clients, about billing, or for other servers.
inline constexpr std::initializer_list<std::string_view> kHarmless{"metadata",
                                                                   "service_tier",
                                                                   "store",
                                                                   "safety_identifier",
                                                                   "prompt_cache_key",
                                                                   "prompt_cache_retention",
                                                                   "verbosity",
                                                                   "request_id",
                                                                   "guided_decoding_backend",
                                                                   "mm_processor_kwargs",
                                                                   "include_reasoning",
                                                                   "separate_reasoning",
                                                                   "spaces_between_special_tokens",
                                                                   "detokenize",
                                                                   "cache_prompt",
                                                                   "id_slot",
                                                                   "timings_per_token"};

/// The most alternatives a token may be told with, by log probability.
inline constexpr std::int64_t kAlternativesMax = 20;

/// What a missing model should have been.
inline constexpr std::string_view kModelExample =
    "the name of a model, as GET /v1/models lists them";

/// Reads `key`: a text or token ids, or a list of up to `most` of them. What is wrong is kept in
/// `body`.
[[nodiscard]] std::vector<Prompt> read_prompts(BodyReader& body,
                                               std::string_view key,
                                               std::size_t most);

/// Reads `key`: strings that end an answer, up to 16 of 1 to 1,024 bytes; a list, or with `one`
/// also a single one. What is wrong is kept in `body`.
[[nodiscard]] std::vector<std::string> read_stop_strings(BodyReader& body,
                                                         std::string_view key,
                                                         bool one);

/// Reads Ollama's `keep_alive`: a number of seconds or a time such as "10m"; less than 0 for ever.
[[nodiscard]] std::optional<Duration> read_keep_alive(BodyReader& body);

/// Reads `chat_template_kwargs` (and `reasoning_effort` or `reasoning.effort`, which is one) into a
/// JSON object.
[[nodiscard]] std::string read_template_variables(BodyReader& body);

/// `truncate_prompt_tokens` of what is not generated: tokens that a text is cut to; -1: as many as
/// the model takes. Nothing where it is absent.
[[nodiscard]] std::optional<std::int64_t> read_truncation(BodyReader& body);

}  // namespace heddle::api
