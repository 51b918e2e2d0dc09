#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "gguf/gguf_file.h"
#include "spec/config_json.h"
#include "spec/model_spec.h"

namespace heddle::gguf {

/// What a file says of its model, as the config.json of a model directory would: so one reader has
/// the rules for both, and a gateway elsewhere can be sent it.
///
/// | `general.architecture` | becomes | rows of q and k |
/// | --- | --- | --- |
/// | llama | LlamaForCausalLM; MistralForCausalLM with `attention.sliding_window`; | interleaved |
/// | | MixtralForCausalLM with `expert_count` | |
/// | qwen2, qwen3 | Qwen2ForCausalLM, Qwen3ForCausalLM | as in a directory |
/// | qwen2moe, qwen3moe | Qwen2MoeForCausalLM, Qwen3MoeForCausalLM | as in a directory |
/// | gemma2, gemma3 | Gemma2ForCausalLM, Gemma3ForCausalLM | as in a directory |
/// | olmo2, phi3 | Olmo2ForCausalLM, Phi3ForCausalLM | as in a directory |
/// | granite, smollm3 | GraniteForCausalLM, SmolLM3ForCausalLM | interleaved |
/// | qwen3next, qwen35, qwen35moe, gpt-oss | of those names | as in a directory |
/// | gemma4 | Gemma4ForCausalLM, see gguf_gemma4.h | as in a directory |
/// | bert | BertModel, see gguf_encoder.h | as in a directory |
///
/// The vocabulary is as large as `token_embd.weight` has rows. Embeddings are tied where there is
/// no `output.weight`. Rotary scaling is by `rope.scaling.*` (linear, yarn), by the factors of
/// `rope_factors_long.weight` and `..._short.weight` (longrope) or, as llama3, by those of
/// `rope_freqs.weight`, which are read from the file. kCorrupt, naming the key, for one
/// that is missing or of a wrong type; kInvalidArgument, saying what serves it instead, for an
/// architecture that is not built in, and heads that rotate in part where the family's do not.
[[nodiscard]] Result<std::string> config_json(const GgufFile& file);

/// What the keys `general.sampling.*` suggest for requests, as a generation_config.json. For those
/// that are missing what llama.cpp's server takes, by which users of such files know their models:
/// temperature 0.8, top_k 40, top_p 0.95, min_p 0.05.
[[nodiscard]] std::string generation_config_json(const GgufFile& file);

/// The model of config_json(), read by spec::parse_model_config, with its formats where a matrix
/// has blocks.
[[nodiscard]] Result<spec::ModelSpec> model_spec(const GgufFile& file);
/// The suggestions of generation_config_json(), read by spec::parse_generation_config.
[[nodiscard]] Result<spec::GenerationDefaults> generation_defaults(const GgufFile& file,
                                                                   std::int64_t vocab);

}  // namespace heddle::gguf
