#pragma once

// For tests only: models of directories, as GGUF files.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <numbers>
#include <string>
#include <vector>

#include "gguf/gguf_model.h"
#include "gguf/test_gguf.h"
#include "spec/model_spec.h"
#include "store/tensor_set.h"

namespace heddle::store {

/// The rows of the heads of a query or key projection as conversion leaves them: it reshapes
/// [heads, 2, head_dim / 2, columns] and swaps the two axes in the middle.
inline std::string interleaved(const std::string& rows, std::int64_t count, std::int64_t head_dim) {
  const std::size_t bytes = rows.size() / static_cast<std::size_t>(count);
  std::string swapped;
  for (std::int64_t head = 0; head < count / head_dim; ++head) {
    for (std::int64_t i = 0; i < head_dim / 2; ++i) {
      for (const std::int64_t half : {0, 1}) {
        const std::int64_t row = head * head_dim + half * (head_dim / 2) + i;
        swapped += rows.substr(static_cast<std::size_t>(row) * bytes, bytes);
      }
    }
  }
  return swapped;
}

/// rope_freqs.weight of Llama 3.
inline std::string llama3_factors(const spec::ModelSpec& model) {
  const spec::RopeScaling& rope = model.rope;
  const auto original = static_cast<double>(rope.original_max_position);
  std::string data;
  for (std::int64_t i = 0; i < model.head_dim / 2; ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(model.head_dim);
    const double turns = original / (2 * std::numbers::pi * std::pow(model.rope_theta, exponent));
    const double keep = std::clamp(
        (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor), 0.0, 1.0);
    data += gguf::raw(static_cast<float>(1 / ((1 - keep) / rope.factor + keep)));
  }
  return data;
}

inline std::string architecture_of(const spec::ModelSpec& model) {
  switch (model.architecture) {
    case spec::Architecture::kQwen2:
      return "qwen2";
    case spec::Architecture::kQwen3:
      return "qwen3";
    default:
      return "llama";
  }
}

/// The metadata of a model, but for its tokenizer.
inline gguf::TestGguf gguf_metadata(const spec::ModelSpec& model) {
  gguf::TestGguf file;
  const std::string name = architecture_of(model);
  file.text("general.architecture", name);
  for (const auto& [key, value] :
       std::map<std::string, std::int64_t>{{"embedding_length", model.hidden},
                                           {"attention.head_count", model.heads},
                                           {"attention.head_count_kv", model.kv_heads},
                                           {"attention.key_length", model.head_dim},
                                           {"attention.value_length", model.head_dim},
                                           {"block_count", model.layers},
                                           {"feed_forward_length", model.intermediate},
                                           {"context_length", model.max_position}}) {
    file.u32(name + "." + key, static_cast<std::uint32_t>(value));
  }
  file.f32(name + ".attention.layer_norm_rms_epsilon", static_cast<float>(model.rms_eps));
  file.f32(name + ".rope.freq_base", static_cast<float>(model.rope_theta));
  if (model.rope.kind == spec::RopeKind::kLlama3) {
    file.tensor({.name = "rope_freqs.weight",
                 .sizes = {static_cast<std::uint64_t>(model.head_dim / 2)},
                 .data = llama3_factors(model)});
  }
  return file;
}

/// A model of plain numbers as a GGUF file.
inline gguf::TestGguf as_gguf(const spec::ModelSpec& model, const TensorSet& tensors) {
  gguf::TestGguf file = gguf_metadata(model);
  for (const auto& [name, entry] : tensors.entries()) {
    std::string data(entry.tensor.bytes, '\0');
    HEDDLE_CHECK(tensors.file_of(entry)
                     .read(entry.tensor.offset, std::as_writable_bytes(std::span(data)))
                     .has_value());
    const bool turned =
        name.find("q_proj") != std::string::npos || name.find("k_proj") != std::string::npos;
    if (turned && architecture_of(model) == "llama") {
      data = interleaved(data, entry.tensor.shape.front(), model.head_dim);
    }
    gguf::TestGguf::Info info{.name = gguf::tensor_name(name), .data = std::move(data)};
    info.sizes.assign(entry.tensor.shape.rbegin(), entry.tensor.shape.rend());
    info.type = static_cast<std::uint32_t>(block_type_of(entry.tensor.type).value());
    file.tensor(std::move(info));
  }
  return file;
}

}  // namespace heddle::store
