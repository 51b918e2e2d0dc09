#pragma once

// For tests only: models of directories, as GGUF files.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <numbers>
#include <string>
#include <vector>

#include "gguf/gguf_model.h"
#include "gguf/tensor_names.h"
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
    case spec::Architecture::kQwen2Moe:
      return "qwen2moe";
    case spec::Architecture::kQwen3Moe:
      return "qwen3moe";
    case spec::Architecture::kGemma2:
      return "gemma2";
    case spec::Architecture::kGemma3:
      return "gemma3";
    default:
      return "llama";
  }
}

/// What conversion writes of experts.
inline void add_expert_metadata(const spec::ModelSpec& model, gguf::TestGguf& file) {
  const std::string name = architecture_of(model);
  const auto number = [&](const char* key, std::int64_t value) {
    file.u32(name + "." + key, static_cast<std::uint32_t>(value));
  };
  number("expert_count", model.experts.count);
  number("expert_used_count", model.experts.active);
  if (model.architecture == spec::Architecture::kMixtral) {
    return number("feed_forward_length", model.experts.intermediate);
  }
  number("feed_forward_length", 7 * model.experts.intermediate);  // Of layers without experts.
  number("expert_feed_forward_length", model.experts.intermediate);
  if (model.intermediate > 0) {
    number("expert_shared_feed_forward_length", model.intermediate);
  }
}

/// What conversion writes of Gemma.
inline void add_gemma_metadata(const spec::ModelSpec& model, gguf::TestGguf& file) {
  const std::string name = architecture_of(model);
  const auto windowed = std::ranges::find_if(model.window, [](auto window) { return window > 0; });
  if (windowed != model.window.end()) {
    file.u32(name + ".attention.sliding_window", static_cast<std::uint32_t>(*windowed));
  }
  if (model.scales.attention_cap > 0) {
    file.f32(name + ".attn_logit_softcapping", static_cast<float>(model.scales.attention_cap));
  }
  if (model.scales.logit_cap > 0) {
    file.f32(name + ".final_logit_softcapping", static_cast<float>(model.scales.logit_cap));
  }
  if (model.rope.kind == spec::RopeKind::kLinear) {
    file.text(name + ".rope.scaling.type", "linear");
    file.f32(name + ".rope.scaling.factor", static_cast<float>(model.rope.factor));
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
                                           {"context_length", model.max_position}}) {
    file.u32(name + "." + key, static_cast<std::uint32_t>(value));
  }
  if (model.experts.count > 0) {
    add_expert_metadata(model, file);
  } else {
    file.u32(name + ".feed_forward_length", static_cast<std::uint32_t>(model.intermediate));
  }
  if (model.norm_less_one) {
    add_gemma_metadata(model, file);
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

/// Norms of a directory, of float32, bfloat16 or float16, with 1 added, as float32.
inline std::string with_one(const std::string& data, gguf::BlockType type) {
  std::vector<float> numbers(data.size() / gguf::block_shape(type).bytes);
  gguf::decode(
      type, reinterpret_cast<const std::byte*>(data.data()), numbers.data(), numbers.size());
  std::string whole;
  for (const float number : numbers) {
    whole += gguf::raw(number + 1.0F);
  }
  return whole;
}

/// A tensor of a directory as conversion leaves it.
inline gguf::TestGguf::Info converted(const spec::ModelSpec& model,
                                      const TensorSet& tensors,
                                      const std::string& name) {
  const TensorSet::Entry& entry = *tensors.find(name);
  const auto type = block_type_of(entry.tensor.type).value();
  std::string data(entry.tensor.bytes, '\0');
  HEDDLE_CHECK(tensors.file_of(entry)
                   .read(entry.tensor.offset, std::as_writable_bytes(std::span(data)))
                   .has_value());
  const bool turned =
      name.find("q_proj") != std::string::npos || name.find("k_proj") != std::string::npos;
  if (turned && architecture_of(model) == "llama") {
    data = interleaved(data, entry.tensor.shape.front(), model.head_dim);
  }
  gguf::TestGguf::Info info{.name = gguf::tensor_name(name, model.architecture),
                            .type = static_cast<std::uint32_t>(type),
                            .data = std::move(data)};
  info.sizes.assign(entry.tensor.shape.rbegin(), entry.tensor.shape.rend());
  if (model.norm_less_one && name.find("norm") != std::string::npos) {
    info.data = with_one(info.data, type);
    info.type = static_cast<std::uint32_t>(gguf::BlockType::kF32);
  }
  if (name.ends_with("shared_expert_gate.weight")) {
    info.sizes.pop_back();
  }
  return info;
}

/// The tensors of all experts that are one in a file of which `first` is that of expert 0.
inline gguf::TestGguf::Info of_all_experts(const spec::ModelSpec& model,
                                           const TensorSet& tensors,
                                           const std::string& first) {
  gguf::TestGguf::Info all = converted(model, tensors, first);
  const std::string mark = "experts.0.";
  const std::size_t at = first.find(mark);
  for (std::int64_t expert = 1; expert < model.experts.count; ++expert) {
    std::string name = first;
    name.replace(at, mark.size(), "experts." + std::to_string(expert) + ".");
    all.data += converted(model, tensors, name).data;
  }
  all.sizes.push_back(static_cast<std::uint64_t>(model.experts.count));
  return all;
}

/// A model of plain numbers as a GGUF file.
inline gguf::TestGguf as_gguf(const spec::ModelSpec& model, const TensorSet& tensors) {
  gguf::TestGguf file = gguf_metadata(model);
  for (const auto& [name, entry] : tensors.entries()) {
    if (name.find("experts.0.") != std::string::npos) {
      file.tensor(of_all_experts(model, tensors, name));
    } else if (name.find("experts.") == std::string::npos) {
      file.tensor(converted(model, tensors, name));
    }
  }
  return file;
}

/// A float16 of that value, which has one.
inline std::uint16_t half_bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  return static_cast<std::uint16_t>(((bits >> 16U) & 0x8000U) |
                                    (magnitude == 0 ? 0U : (magnitude >> 13U) - (112U << 10U)));
}

/// The least power of two that is not below `value`, of those that are float16 of full precision.
inline float step_of(float value) {
  float step = 0x1p-14F;
  while (step < value) {
    step *= 2;
  }
  return step;
}

/// Numbers, a multiple of 32 of them, rounded to blocks of Q8_0 or Q4_1.
inline std::string rounded_to_blocks(const std::vector<float>& numbers, gguf::BlockType type) {
  std::string data;
  for (auto block = numbers.begin(); block != numbers.end(); block += 32) {
    const auto [least, most] = std::minmax_element(block, block + 32);
    if (type == gguf::BlockType::kQ80) {
      const float step = step_of(std::max(-*least, *most) / 127.0F);
      data += gguf::raw(half_bits(step));
      for (auto it = block; it != block + 32; ++it) {
        data += gguf::raw(static_cast<std::int8_t>(std::lround(*it / step)));
      }
      continue;
    }
    const float step = step_of((*most - *least) / 14.0F);
    const float from = std::floor(*least / step) * step;
    data += gguf::raw(half_bits(step)) + gguf::raw(half_bits(from));
    const auto nibble = [&](float value) {
      return static_cast<unsigned>(std::clamp(std::lround((value - from) / step), 0L, 15L));
    };
    for (auto it = block; it != block + 16; ++it) {
      data += gguf::raw(static_cast<std::uint8_t>(nibble(*it) | (nibble(*(it + 16)) << 4U)));
    }
  }
  return data;
}

/// A model of plain numbers as a GGUF file, with its matrices rounded to blocks: values, downs,
/// ups of experts and heads to Q4_1, others to Q8_0. Those whose rows are no whole blocks stay as
/// they are.
inline gguf::TestGguf as_gguf_of_blocks(const spec::ModelSpec& model, const TensorSet& tensors) {
  gguf::TestGguf plain = as_gguf(model, tensors);
  gguf::TestGguf file = gguf_metadata(model);
  for (gguf::TestGguf::Info info : plain.tensors()) {
    const bool router = info.name.find("ffn_gate_inp") != std::string::npos;
    if (info.sizes.size() >= 2 && !router && info.sizes.front() % 32 == 0) {
      std::vector<float> numbers(info.sizes[0] * info.sizes[1] *
                                 (info.sizes.size() > 2 ? info.sizes[2] : 1));
      gguf::decode(static_cast<gguf::BlockType>(info.type),
                   reinterpret_cast<const std::byte*>(info.data.data()),
                   numbers.data(),
                   numbers.size());
      const bool four = info.name.find("attn_v") != std::string::npos ||
                        info.name.find("ffn_down") != std::string::npos ||
                        info.name.find("ffn_up_exps") != std::string::npos ||
                        info.name == "output.weight";
      const auto type = four ? gguf::BlockType::kQ41 : gguf::BlockType::kQ80;
      info.type = static_cast<std::uint32_t>(type);
      info.data = rounded_to_blocks(numbers, type);
    }
    if (info.name != "rope_freqs.weight") {  // It is among the metadata.
      file.tensor(std::move(info));
    }
  }
  return file;
}

}  // namespace heddle::store
