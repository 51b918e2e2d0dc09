#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"

namespace heddle::store {

/// The largest rank that an adapter may have.
inline constexpr std::int64_t kAdapterRankMax = 512;

/// What adapter_config.json of PEFT says of a LoRA adapter.
struct AdapterConfig {
  std::int64_t rank = 0;
  double scale = 0;                    ///< What B (A x) is multiplied with.
  std::string base{};                  ///< What it was trained on, by name; proves nothing.
  std::vector<std::string> targets{};  ///< Names of modules; empty: whatever has tensors.
};

/// Reads adapter_config.json of a directory. The scale is lora_alpha / r, or with use_rslora
/// lora_alpha / sqrt(r) (D. Kalajdzievski, arXiv:2312.03732). kNotFound where there is none;
/// kCorrupt where it is no JSON or a field is out of range; kInvalidArgument, naming the field, for
/// what would change the mathematics and is not built in: DoRA, biases, modules to save, ranks or
/// scales by module and others.
[[nodiscard]] Result<AdapterConfig> read_adapter_config(const std::filesystem::path& directory);

/// Whether a directory has an adapter rather than a model.
[[nodiscard]] bool is_adapter(const std::filesystem::path& directory);

}  // namespace heddle::store
