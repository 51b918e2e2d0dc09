#pragma once

#include <string>
#include <string_view>

#include "gguf/gguf_file.h"
#include "spec/model_spec.h"

namespace heddle::gguf {

/// An architecture of llama.cpp, and what it is in a model directory.
struct KnownArchitecture {
  std::string_view name{};  ///< In `general.architecture`.
  spec::Architecture family = spec::Architecture::kLlama;
  std::string_view model_type{};  ///< In a config.json.
  bool interleaved = false;       ///< Of the rows of q and k.
};

/// What else serves a file that is not built in, for messages.
inline constexpr std::string_view kElsewhere =
    "llama-server serves such files: give the model `engine: llama-server`";

/// The key of how many layers guess further tokens, behind those of the model itself, which
/// `block_count` counts with them.
inline constexpr std::string_view kPredictingLayers = "nextn_predict_layers";

/// That of a file; nullptr where it is not built in. The name "llama" is of three: with
/// `expert_count` above 1 it is Mixtral, else with `attention.sliding_window` Mistral.
[[nodiscard]] const KnownArchitecture* find_architecture(const GgufFile& file);

/// "llama, qwen2, qwen3": all names that are built in, for messages.
[[nodiscard]] std::string known_architectures();

}  // namespace heddle::gguf
