#pragma once

#include <string>

namespace heddle::spec {

/// A LoRA adapter of a model, as a host knows it: what requests call it, and where its files are.
struct AdapterSource {
  std::string name{};
  std::string directory{};  ///< Has adapter_config.json and adapter_model.safetensors.
  friend bool operator==(const AdapterSource&, const AdapterSource&) = default;
};

}  // namespace heddle::spec
