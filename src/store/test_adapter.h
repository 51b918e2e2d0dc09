#pragma once

// For tests only: small LoRA adapters, and models that have them in their weights.

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "base/rng.h"
#include "store/convert.h"
#include "store/tensor_set.h"
#include "store/test_files.h"

namespace heddle::store {

/// An adapter as PEFT has it in memory.
struct TestAdapter {
  std::int64_t rank = 4;
  double alpha = 8;
  bool rslora = false;
  TestTensors tensors{};

  [[nodiscard]] double scale() const {
    const auto r = static_cast<double>(rank);
    return alpha / (rslora ? std::sqrt(r) : r);
  }
  [[nodiscard]] std::string config(std::string_view more = "") const {
    return fmt::format(R"({{"peft_type": "LORA", "r": {}, "lora_alpha": {}, "use_rslora": {},
      "base_model_name_or_path": "some/base", "bias": "none", "target_modules": "all-linear"{}}})",
                       rank,
                       alpha,
                       rslora,
                       more);
  }
  void write(const std::filesystem::path& directory) const {
    std::filesystem::create_directories(directory);
    write_text(directory / "adapter_config.json", config());
    write_safetensors(directory / "adapter_model.safetensors", tensors);
  }
};

inline std::vector<float> floats_of(const TestTensor& tensor) {
  std::vector<float> floats(tensor.data.size() / sizeof(float));
  std::memcpy(floats.data(), tensor.data.data(), tensor.data.size());
  return floats;
}

inline TestTensor tensor_of(const std::vector<float>& floats, std::vector<std::int64_t> shape) {
  TestTensor tensor{.type = StoredType::kF32, .shape = std::move(shape)};
  tensor.data.assign(reinterpret_cast<const char*>(floats.data()), floats.size() * sizeof(float));
  return tensor;
}

/// All tensors of a set, in float32.
inline TestTensors all_tensors(const TensorSet& set) {
  TestTensors tensors;
  for (const auto& [name, entry] : set.entries()) {
    std::vector<std::byte> stored(entry.tensor.bytes);
    HEDDLE_CHECK(set.file_of(entry).read(entry.tensor.offset, stored).has_value());
    std::size_t count = 1;
    for (const std::int64_t size : entry.tensor.shape) {
      count *= static_cast<std::size_t>(size);
    }
    std::vector<float> floats(count);
    convert(entry.tensor.type,
            stored.data(),
            spec::DType::kF32,
            reinterpret_cast<std::byte*>(floats.data()),
            count);
    tensors.emplace(name, tensor_of(floats, entry.tensor.shape));
  }
  return tensors;
}

/// What the names of an adapter's tensors for a matrix of the model begin with; empty for a tensor
/// that no adapter changes.
inline std::string adapted_stem(const std::string& name) {
  for (const std::string_view module : {"q_proj",
                                        "k_proj",
                                        "v_proj",
                                        "qkv_proj",
                                        "o_proj",
                                        "gate_proj",
                                        "up_proj",
                                        "gate_up_proj",
                                        "down_proj"}) {
    const std::string ending = fmt::format(".{}.weight", module);
    if (name.ends_with(ending) && name.find("expert") == std::string::npos) {
      return "base_model.model." + name.substr(0, name.size() - std::string_view(".weight").size());
    }
  }
  return {};
}

/// An adapter of every projection of `model`, at random, large enough to be seen in what it says.
inline TestAdapter random_adapter(const TestTensors& model, Rng& rng, std::int64_t rank = 4) {
  TestAdapter adapter{.rank = rank, .alpha = 2.0 * static_cast<double>(rank)};
  const auto draw = [&](std::int64_t rows, std::int64_t columns) {
    std::vector<float> floats(static_cast<std::size_t>(rows * columns));
    const double spread = 0.7 / std::sqrt(static_cast<double>(columns));
    for (float& value : floats) {
      value =
          static_cast<float>((static_cast<double>(rng.below(1U << 24U)) * 0x1p-23 - 1.0) * spread);
    }
    return tensor_of(floats, {rows, columns});
  };
  for (const auto& [name, tensor] : model) {
    if (const std::string stem = adapted_stem(name); !stem.empty()) {
      adapter.tensors[stem + ".lora_A.weight"] = draw(rank, tensor.shape[1]);
      adapter.tensors[stem + ".lora_B.weight"] = draw(tensor.shape[0], rank);
    }
  }
  return adapter;
}

/// The model with W + scale B A in place of each W, in double.
inline TestTensors merged(TestTensors model, const TestAdapter& adapter) {
  for (auto& [name, tensor] : model) {
    const std::string stem = adapted_stem(name);
    const auto a = adapter.tensors.find(stem + ".lora_A.weight");
    if (stem.empty() || a == adapter.tensors.end()) {
      continue;
    }
    const std::vector<float> down = floats_of(a->second);
    const std::vector<float> up = floats_of(adapter.tensors.at(stem + ".lora_B.weight"));
    std::vector<float> weight = floats_of(tensor);
    const auto columns = static_cast<std::size_t>(tensor.shape[1]);
    const auto rank = static_cast<std::size_t>(adapter.rank);
    for (std::size_t i = 0; i < weight.size(); ++i) {
      double sum = 0;
      for (std::size_t k = 0; k < rank; ++k) {
        sum += static_cast<double>(up[i / columns * rank + k]) *
               static_cast<double>(down[k * columns + i % columns]);
      }
      weight[i] = static_cast<float>(static_cast<double>(weight[i]) + adapter.scale() * sum);
    }
    tensor = tensor_of(weight, tensor.shape);
  }
  return model;
}

}  // namespace heddle::store
