#include "gguf/architecture.h"

#include <algorithm>
#include <array>
#include <variant>

#include <fmt/format.h>

#include "gguf/metadata_fields.h"

namespace heddle::gguf {
namespace {

using enum spec::Architecture;

constexpr std::string_view kLlamaName = "llama";

constexpr std::array kArchitectures = {
    KnownArchitecture{kLlamaName, kLlama, "llama", true},
    KnownArchitecture{"qwen2", kQwen2, "qwen2"},
    KnownArchitecture{"qwen3", kQwen3, "qwen3"},
    KnownArchitecture{"qwen2moe", kQwen2Moe, "qwen2_moe"},
    KnownArchitecture{"qwen3moe", kQwen3Moe, "qwen3_moe"},
    KnownArchitecture{"gemma2", kGemma2, "gemma2"},
    KnownArchitecture{"gemma3", kGemma3, "gemma3_text"},
    KnownArchitecture{"gemma4", kGemma4, "gemma4_text"},
    KnownArchitecture{"granite", kGranite, "granite", true},
    KnownArchitecture{"olmo2", kOlmo2, "olmo2"},
    KnownArchitecture{"smollm3", kSmolLm3, "smollm3", true},
    KnownArchitecture{"phi3", kPhi3, "phi3"},
    KnownArchitecture{"qwen3next", kQwen3Next, "qwen3_next"},
    KnownArchitecture{"qwen35", kQwen35, "qwen3_5_text"},
    KnownArchitecture{"qwen35moe", kQwen35Moe, "qwen3_5_moe_text"},
    KnownArchitecture{"gpt-oss", kGptOss, "gpt_oss"},
    KnownArchitecture{"bert", kBert, "bert"},
};
constexpr KnownArchitecture kMistralFile{kLlamaName, kMistral, "mistral", true};
constexpr KnownArchitecture kMixtralFile{kLlamaName, kMixtral, "mixtral", true};

}  // namespace

const KnownArchitecture* find_architecture(const GgufFile& file) {
  const Value* value = file.find("general.architecture");
  const auto* name = value != nullptr ? std::get_if<std::string>(value) : nullptr;
  const auto* found = std::ranges::find_if(kArchitectures, [&](const KnownArchitecture& known) {
    return name != nullptr && known.name == *name;
  });
  if (found == kArchitectures.end() || found->name != kLlamaName) {
    return found == kArchitectures.end() ? nullptr : found;
  }
  MetadataFields fields(file);
  if (fields.integer("llama.expert_count", 0) > 1) {
    return &kMixtralFile;
  }
  return fields.has("llama.attention.sliding_window") ? &kMistralFile : found;
}

std::string known_architectures() {
  std::string names;
  for (const KnownArchitecture& known : kArchitectures) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", known.name);
  }
  return names;
}

}  // namespace heddle::gguf
