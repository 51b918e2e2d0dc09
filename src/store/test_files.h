#pragma once

// For tests only: small checkpoints.

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "base/rng.h"
#include "base/test_directory.h"
#include "spec/model_spec.h"
#include "store/image_layout.h"
#include "store/safetensors.h"

namespace heddle::store {

using heddle::TempDirectory;
using heddle::write_text;

/// Eight bytes of little-endian length.
inline std::string length_prefix(std::uint64_t length) {
  std::string prefix;
  for (int i = 0; i < 8; ++i) {
    prefix += static_cast<char>(length >> (8 * i));
  }
  return prefix;
}

/// A file with this header and data, whether or not they agree.
inline std::string safetensors_text(std::string_view header, std::string_view data) {
  return length_prefix(header.size()) + std::string(header) + std::string(data);
}

struct TestTensor {
  StoredType type = StoredType::kF32;
  std::vector<std::int64_t> shape{};
  std::string data{};
};
using TestTensors = std::map<std::string, TestTensor>;

/// As the reference implementation writes them.
inline void write_safetensors(const std::filesystem::path& path, const TestTensors& tensors) {
  std::string header = R"({"__metadata__": {"format": "pt"})";
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    header += fmt::format(R"(, "{}": {{"dtype": "{}", "shape": [{}], "data_offsets": [{}, {}]}})",
                          name,
                          stored_type_name(tensor.type),
                          fmt::join(tensor.shape, ", "),
                          data.size(),
                          data.size() + tensor.data.size());
    data += tensor.data;
  }
  write_text(path, safetensors_text(header + "}  ", data));
}

/// Random elements: ordinary numbers for the most part, NaNs and infinities too.
inline std::string random_elements(Rng& rng, StoredType type, std::int64_t count) {
  std::string data;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t bits = rng.next();
    for (std::uint64_t byte = 0; byte < stored_type_bits(type) / 8; ++byte) {
      data += static_cast<char>(bits >> (8 * byte));
    }
  }
  return data;
}

/// Every tensor that `model` needs, filled at random; `type_of(i)` is the type of the i-th.
template <class TypeOf>
TestTensors random_model(const spec::ModelSpec& model, Rng& rng, TypeOf&& type_of) {
  TestTensors tensors;
  for (const ImageTensor& image : plan_image(model, spec::DType::kBf16).tensors) {
    for (const ImageSource& source : image.sources) {
      const StoredType type = type_of(tensors.size());
      TestTensor tensor{.type = type, .shape = {source.stored_rows}};
      if (image.dtype == spec::DType::kBf16) {  // A matrix.
        tensor.shape.push_back(image.columns);
      }
      tensor.data = random_elements(rng, type, source.stored_rows * image.columns);
      tensors.emplace(source.name, std::move(tensor));
    }
  }
  return tensors;
}

/// Every tensor that `model` needs in float32, as a model that was trained has them, roughly: a
/// pass through it neither dies away nor explodes.
inline TestTensors plausible_model(const spec::ModelSpec& model, Rng& rng) {
  TestTensors tensors = random_model(model, rng, [](std::size_t) { return StoredType::kF32; });
  for (auto& [name, tensor] : tensors) {
    const bool matrix = tensor.shape.size() == 2;
    const bool norm = !matrix && (name.find("norm") != std::string::npos ||
                                  name.ends_with("scale") || name.ends_with("scalar"));
    const double spread = matrix ? 1.7 / std::sqrt(static_cast<double>(tensor.shape[1])) : 0.2;
    for (std::size_t i = 0; i < tensor.data.size(); i += sizeof(float)) {
      const double draw = static_cast<double>(rng.below(1U << 24U)) * 0x1p-23 - 1.0;
      const auto value = static_cast<float>((norm ? 1.0 : 0.0) + draw * spread);
      std::memcpy(tensor.data.data() + i, &value, sizeof(value));
    }
  }
  return tensors;
}

/// The config.json of tiny_model().
inline constexpr std::string_view kTinyConfig = R"({"architectures": ["LlamaForCausalLM"],
  "model_type": "llama", "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 50,
  "max_position_embeddings": 128, "torch_dtype": "float32", "tie_word_embeddings": false})";

inline spec::ModelSpec tiny_model() {
  spec::ModelSpec model;
  model.hidden = 24;
  model.layers = 2;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_dim = 8;
  model.intermediate = 40;
  model.vocab = 50;
  model.max_position = 128;
  model.window.assign(2, 0);
  return model;
}

}  // namespace heddle::store
