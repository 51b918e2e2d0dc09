#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "spec/model_spec.h"
#include "spec/sampling_numbers.h"

namespace heddle::spec {

/// The name that `architectures` has for it: "Qwen3ForCausalLM".
[[nodiscard]] std::string_view architecture_name(Architecture architecture);

/// Reads a Hugging Face config.json of a family of config_family.h, or what `text_config` says in
/// a model for text and images. Absent keys mean what they mean to transformers 5 (and 4,
/// where both agree):
///
/// - rotary embedding: `rope_parameters`, or `rope_scaling` with `rope_type` or `type`, which wins
///   where both are there; kinds default, linear, llama3 and yarn;
/// - sliding window: of all layers for Mistral (4096 where the key is absent, none where it is
///   null); for Qwen of the layers that `layer_types` names, else of those from
///   `max_window_layers` on, and only with `use_sliding_window`; for Gemma of all but every second
///   (Gemma 3 and 4: sixth) layer, or as `layer_types` says. A window of max_position or more is no
///   window;
/// - context: `max_position_embeddings`, stretched by the factor of linear and yarn scaling where
///   it gives the length before stretching, as vLLM does;
/// - `eos_token_id` may be one id or a list.
///
/// Encoders: config_encoder.h. What Gemma 4 has of its own: config_gemma4.h.
///
/// Whatever else would change the mathematics (an unknown architecture, activation, rope kind,
/// experts of a family without) is one error that names `file`, the field, its value and what would
/// be right; how matrices are stored is for quantisation.h. Dimensions are bounded so that no
/// product of them overflows 63 bits.
///
/// @param file  How messages call the text: its path, mostly.
[[nodiscard]] Result<ModelSpec> parse_model_config(std::string_view text, std::string_view file);

/// What generation_config.json suggests for requests that say nothing themselves. Absent is
/// different from neutral: a request's default stays as it is.
struct GenerationDefaults {
  std::optional<bool> do_sample{};      ///< false: greedy unless the request gives a temperature.
  SamplingNumbers numbers{};            ///< Of those it may suggest.
  std::optional<std::int32_t> top_k{};  ///< 0 keeps all, also where the file says -1.
  std::optional<std::int64_t> max_new_tokens{};
  std::vector<TokenId> eos{};  ///< Replaces the model's where not empty.
};

/// Reads a generation_config.json. Errors as parse_model_config; keys that are not listed above are
/// of no concern here.
/// @param vocab  Token ids must be below this.
[[nodiscard]] Result<GenerationDefaults> parse_generation_config(std::string_view text,
                                                                 std::string_view file,
                                                                 std::int64_t vocab);

}  // namespace heddle::spec
