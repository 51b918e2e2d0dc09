#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "spec/memory_needs.h"
#include "store/checkpoint.h"
#include "store/safetensors.h"

namespace heddle::store {

/// Tensors of one stored type, counted.
struct TypeTotal {
  StoredType type = StoredType::kF32;
  std::uint64_t tensors = 0;
  std::uint64_t elements = 0;
  std::uint64_t bytes = 0;
};

/// What is in a model directory or a single file, and what serving it takes.
struct Inspection {
  std::filesystem::path path{};
  std::optional<ModelConfig> config{};
  std::vector<std::string> files{};       ///< Of weights, by name.
  std::vector<TypeTotal> types{};         ///< Most bytes first.
  std::vector<StoredTensor> biggest{};    ///< A few, most bytes first.
  std::vector<std::string> text_files{};  ///< Of tokenizer and chat template.
  std::string format{};                   ///< "GGUF 3"; empty for a model directory.
  std::string tokenizer{};  ///< Of a GGUF file: "gpt2 (smollm), 49152 tokens, chat template".
  std::vector<spec::MemoryNeeds> needs{};  ///< As float32 and as bfloat16; empty without config.
  std::vector<std::string> problems{};     ///< Each keeps the model from being served.
  std::vector<std::string> notes{};        ///< Each is worth knowing.
};

/// Looks at a model directory, a GGUF file, a safetensors file or a config.json. Whatever is wrong
/// inside becomes a problem of the inspection, so that the rest is still told; only a path that
/// does not exist is an error.
[[nodiscard]] Result<Inspection> inspect(const std::filesystem::path& path);

}  // namespace heddle::store
