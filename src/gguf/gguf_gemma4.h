#pragma once

#include <string>

#include "base/result.h"
#include "gguf/gguf_file.h"

/// Gemma 4 in GGUF files, whose `general.architecture` is "gemma4".
namespace heddle::gguf {

/// config_json() of Gemma 4. Layers are told apart by `attention.sliding_window_pattern`; those
/// without a window have heads of `attention.key_length`, others of `attention.key_length_swa`, and
/// each as many for keys as `attention.head_count_kv` says of it. They rotate as
/// "rope_freqs.weight" says: pairs that it divides by 1, the first ones. Where they have no tensor
/// "attn_v", keys are values.
///
/// kCorrupt, naming the key or tensor, for what is missing or contradicts itself; kInvalidArgument,
/// saying what serves it instead, for embeddings by layer and layers that share keys and values.
[[nodiscard]] Result<std::string> gemma4_config_json(const GgufFile& file);

}  // namespace heddle::gguf
