#include "gguf/tensor_names.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "gguf/architecture.h"
#include "gguf/metadata_fields.h"

namespace heddle::gguf {
namespace {

using spec::Architecture;

/// Names of tensors: those of a layer stand behind "blk.N." and "model.layers.N.". A star in a
/// directory's name is the number of an expert, all of whom a file has in one tensor.
struct NamePair {
  std::string_view file;
  std::string_view directory;
};
constexpr std::string_view kFileLayer = "blk.";
constexpr std::string_view kDirectoryLayer = "model.layers.";
constexpr std::string_view kEncoderLayer = "encoder.layer.";
constexpr std::array kModelNames = {
    NamePair{"token_embd", "model.embed_tokens"},
    NamePair{"output_norm", "model.norm"},
    NamePair{"output", "lm_head"},
};
constexpr std::array kEncoderModelNames = {
    NamePair{"token_embd", "embeddings.word_embeddings"},
    NamePair{"position_embd", "embeddings.position_embeddings"},
    NamePair{"token_types", "embeddings.token_type_embeddings"},
    NamePair{"token_embd_norm", "embeddings.LayerNorm"},
    NamePair{"cls", "pooler.dense"},
    NamePair{"cls.output", "classifier"},
};
constexpr std::array kLayerNames = {
    NamePair{"attn_norm", "input_layernorm"},
    NamePair{"attn_q", "self_attn.q_proj"},
    NamePair{"attn_k", "self_attn.k_proj"},
    NamePair{"attn_v", "self_attn.v_proj"},
    NamePair{"attn_output", "self_attn.o_proj"},
    NamePair{"attn_q_norm", "self_attn.q_norm"},
    NamePair{"attn_k_norm", "self_attn.k_norm"},
    NamePair{"ffn_norm", "post_attention_layernorm"},
    NamePair{"ffn_gate", "mlp.gate_proj"},
    NamePair{"ffn_up", "mlp.up_proj"},
    NamePair{"ffn_down", "mlp.down_proj"},
    NamePair{"ffn_gate_inp", "mlp.gate"},
    NamePair{"ffn_gate_exps", "mlp.experts.*.gate_proj"},
    NamePair{"ffn_up_exps", "mlp.experts.*.up_proj"},
    NamePair{"ffn_down_exps", "mlp.experts.*.down_proj"},
    NamePair{"ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
    NamePair{"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
    NamePair{"ffn_up_shexp", "mlp.shared_expert.up_proj"},
    NamePair{"ffn_down_shexp", "mlp.shared_expert.down_proj"},
};
// What families call otherwise.
constexpr std::array kMixtralNames = {
    NamePair{"ffn_gate_inp", "block_sparse_moe.gate"},
    NamePair{"ffn_gate_exps", "block_sparse_moe.experts.*.w1"},
    NamePair{"ffn_up_exps", "block_sparse_moe.experts.*.w3"},
    NamePair{"ffn_down_exps", "block_sparse_moe.experts.*.w2"},
};
constexpr std::array kFusedNames = {
    NamePair{"attn_qkv", "self_attn.qkv_proj"},
    NamePair{"ffn_up", "mlp.gate_up_proj"},
};
constexpr std::array kNormNames = {
    NamePair{"post_attention_norm", "post_attention_layernorm"},
    NamePair{"ffn_norm", "pre_feedforward_layernorm"},
    NamePair{"post_ffw_norm", "post_feedforward_layernorm"},
};
constexpr std::array kGemma4Names = {
    NamePair{"post_attention_norm", "post_attention_layernorm"},
    NamePair{"ffn_norm", "pre_feedforward_layernorm"},
    NamePair{"post_ffw_norm", "post_feedforward_layernorm"},
    NamePair{"pre_ffw_norm_2", "pre_feedforward_layernorm_2"},
    NamePair{"post_ffw_norm_1", "post_feedforward_layernorm_1"},
    NamePair{"post_ffw_norm_2", "post_feedforward_layernorm_2"},
    NamePair{"ffn_gate_inp", "router.proj"},
    NamePair{"ffn_gate_exps", "experts.*.gate_proj"},
    NamePair{"ffn_up_exps", "experts.*.up_proj"},
    NamePair{"ffn_down_exps", "experts.*.down_proj"},
};
constexpr std::array kGptOssNames = {
    NamePair{"post_attention_norm", "post_attention_layernorm"},
    NamePair{"ffn_gate_inp", "mlp.router"},
};
constexpr std::array kHybridNames = {
    NamePair{"post_attention_norm", "post_attention_layernorm"},
    NamePair{"attn_qkv", "linear_attn.in_proj_qkv"},
    NamePair{"attn_gate", "linear_attn.in_proj_z"},
    NamePair{"ssm_beta", "linear_attn.in_proj_b"},
    NamePair{"ssm_alpha", "linear_attn.in_proj_a"},
    NamePair{"ssm_in", "linear_attn.in_proj_qkvz"},
    NamePair{"ssm_ba", "linear_attn.in_proj_ba"},
    NamePair{"ssm_conv1d", "linear_attn.conv1d"},
    NamePair{"ssm_norm", "linear_attn.norm"},
    NamePair{"ssm_out", "linear_attn.out_proj"},
};
constexpr std::array kEncoderNames = {
    NamePair{"attn_q", "attention.self.query"},
    NamePair{"attn_k", "attention.self.key"},
    NamePair{"attn_v", "attention.self.value"},
    NamePair{"attn_output", "attention.output.dense"},
    NamePair{"attn_output_norm", "attention.output.LayerNorm"},
    NamePair{"ffn_up", "intermediate.dense"},
    NamePair{"ffn_down", "output.dense"},
    NamePair{"layer_output_norm", "output.LayerNorm"},
};
// Of which another end is called otherwise.
constexpr std::array kWholeNames = {
    NamePair{"ssm_a", "linear_attn.A_log"},
    NamePair{"ssm_dt.bias", "linear_attn.dt_bias"},
    NamePair{"attn_sinks.weight", "self_attn.sinks"},
    NamePair{"ffn_gate_inp.scale", "router.scale"},
    NamePair{"ffn_down_exps.scale", "router.per_expert_scale"},
    NamePair{"layer_output_scale.weight", "layer_scalar"},
};

/// Gates of all experts, each expert's ups behind its gates.
constexpr std::string_view kGatesAndUps = "ffn_gate_up_exps";

/// More experts than any model has; a tensor with more is left whole.
constexpr std::int64_t kExpertsMost = 1 << 10;

std::span<const NamePair> own_names(Architecture architecture) {
  switch (architecture) {
    case Architecture::kMixtral:
      return kMixtralNames;
    case Architecture::kPhi3:
      return kFusedNames;
    case Architecture::kGemma2:
    case Architecture::kGemma3:
    case Architecture::kOlmo2:
      return kNormNames;
    case Architecture::kQwen3Next:
    case Architecture::kQwen35:
    case Architecture::kQwen35Moe:
      return kHybridNames;
    case Architecture::kGemma4:
      return kGemma4Names;
    case Architecture::kGptOss:
      return kGptOssNames;
    case Architecture::kBert:
      return kEncoderNames;
    default:
      return {};
  }
}

std::span<const NamePair> model_names(Architecture architecture) {
  return architecture == Architecture::kBert ? std::span<const NamePair>(kEncoderModelNames)
                                             : kModelNames;
}

std::string_view directory_layer(Architecture architecture) {
  return architecture == Architecture::kBert ? kEncoderLayer : kDirectoryLayer;
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

/// Whether `name` is `pattern`, in which a star may stand for a number.
bool matches(std::string_view name, std::string_view pattern) {
  const auto star = pattern.find('*');
  if (star == std::string_view::npos) {
    return name == pattern;
  }
  const std::string_view before = pattern.substr(0, star);
  const std::string_view behind = pattern.substr(star + 1);
  return name.size() > before.size() + behind.size() && name.starts_with(before) &&
         name.ends_with(behind) &&
         is_number(name.substr(before.size(), name.size() - before.size() - behind.size()));
}

std::string with_number(std::string_view pattern, std::int64_t number) {
  const auto star = pattern.find('*');
  return star == std::string_view::npos
             ? std::string(pattern)
             : fmt::format("{}{}{}", pattern.substr(0, star), number, pattern.substr(star + 1));
}

/// From which names to which.
struct Translation {
  std::string_view layer_from;
  std::string_view layer_to;
  std::string_view NamePair::* from;
  std::string_view NamePair::* to;
  std::int64_t expert = 0;
};

/// `name` with what it begins with replaced, where a pair of the list has it; its end (".weight",
/// ".bias") stays.
std::optional<std::string> renamed(std::string_view name,
                                   std::span<const NamePair> pairs,
                                   const Translation& way) {
  const auto end = name.rfind('.');
  for (const NamePair& pair : pairs) {
    if (end != std::string_view::npos && matches(name.substr(0, end), pair.*way.from)) {
      return fmt::format("{}{}", with_number(pair.*way.to, way.expert), name.substr(end));
    }
  }
  return std::nullopt;
}

std::string translated(std::string_view name, Architecture architecture, const Translation& way) {
  if (!name.starts_with(way.layer_from)) {
    return renamed(name, model_names(architecture), way).value_or(std::string(name));
  }
  const std::string_view part = name.substr(way.layer_from.size());
  const auto dot = part.find('.');
  const std::string_view layer = part.substr(0, dot);
  if (dot == std::string_view::npos || !is_number(layer)) {
    return std::string(name);
  }
  const auto* whole = std::ranges::find_if(
      kWholeNames, [&](const NamePair& pair) { return pair.*way.from == part.substr(dot + 1); });
  if (whole != kWholeNames.end()) {
    return fmt::format("{}{}.{}", way.layer_to, layer, whole->*way.to);
  }
  auto found = renamed(part.substr(dot + 1), own_names(architecture), way);
  found = found ? found : renamed(part.substr(dot + 1), kLayerNames, way);
  return found ? fmt::format("{}{}.{}", way.layer_to, layer, *found) : std::string(name);
}

/// Whether a tensor is of a layer behind the model's own, which guesses the token after the next.
bool predicts_ahead(const GgufFile& file, std::string_view architecture, std::string_view tensor) {
  MetadataFields fields(file);
  const auto integer = [&](std::string_view name) {
    return fields.integer(fmt::format("{}.{}", architecture, name), 0);
  };
  const std::int64_t end = integer("block_count");
  for (std::int64_t layer = std::max<std::int64_t>(0, end - integer(kPredictingLayers));
       layer < end;
       ++layer) {
    if (tensor.starts_with(fmt::format("{}{}.", kFileLayer, layer))) {
      return true;
    }
  }
  return false;
}

/// Whether it is a matrix that may have one row, of which programs that quantise make a vector.
bool is_matrix(std::string_view tensor, Architecture architecture) {
  return tensor.ends_with("ffn_gate_inp_shexp.weight") ||
         (architecture == Architecture::kBert &&
          (tensor == "cls.output.weight" || tensor == "token_types.weight"));
}

/// Adds the parts of each expert of a tensor that has those of all: one of each, or of gates that
/// have ups behind them two.
void add_experts(const Tensor& tensor,
                 Architecture architecture,
                 std::int64_t experts,
                 std::vector<DirectoryTensor>& tensors) {
  const auto both = tensor.name.find(kGatesAndUps);
  std::vector<std::string> names = {tensor.name};
  if (both != std::string::npos && tensor.shape.size() == 3 && tensor.shape[1] % 2 == 0) {
    names = {tensor.name, tensor.name};
    names[0].replace(both, kGatesAndUps.size(), "ffn_gate_exps");
    names[1].replace(both, kGatesAndUps.size(), "ffn_up_exps");
  }
  const auto parts = static_cast<std::int64_t>(names.size());
  const std::uint64_t bytes = tensor.bytes / static_cast<std::uint64_t>(experts * parts);
  std::uint64_t offset = tensor.offset;
  for (std::int64_t expert = 0; expert < experts; ++expert) {
    for (const std::string& name : names) {
      DirectoryTensor& part = tensors.emplace_back(
          DirectoryTensor{.name = directory_name(name, architecture, expert), .stored = tensor});
      part.stored.shape.erase(part.stored.shape.begin());
      part.stored.shape.front() /= parts;
      part.stored.offset = offset;
      part.stored.bytes = bytes;
      offset += bytes;
    }
  }
}

}  // namespace

std::string directory_name(std::string_view tensor,
                           Architecture architecture,
                           std::int64_t expert) {
  return translated(tensor,
                    architecture,
                    {.layer_from = kFileLayer,
                     .layer_to = directory_layer(architecture),
                     .from = &NamePair::file,
                     .to = &NamePair::directory,
                     .expert = expert});
}

std::string tensor_name(std::string_view directory, Architecture architecture) {
  return translated(directory,
                    architecture,
                    {.layer_from = directory_layer(architecture),
                     .layer_to = kFileLayer,
                     .from = &NamePair::directory,
                     .to = &NamePair::file});
}

bool is_of_experts(std::string_view tensor) {
  return tensor.starts_with(kFileLayer) &&
         (tensor.ends_with("_exps.weight") || tensor.ends_with("_exps.bias"));
}

std::vector<DirectoryTensor> directory_tensors(const GgufFile& file) {
  const KnownArchitecture* known = find_architecture(file);
  const Architecture architecture = known != nullptr ? known->family : Architecture::kLlama;
  std::vector<DirectoryTensor> tensors;
  for (const Tensor& tensor : file.tensors) {
    if (known != nullptr && predicts_ahead(file, known->name, tensor.name)) {
      continue;
    }
    const std::int64_t experts =
        is_of_experts(tensor.name) && tensor.shape.size() >= 2 ? tensor.shape.front() : 0;
    if (experts < 1 || experts > kExpertsMost) {
      DirectoryTensor& whole =
          tensors.emplace_back(DirectoryTensor{.name = directory_name(tensor.name, architecture),
                                               .stored = tensor,
                                               .interleaved = interleaved_rows(file, tensor.name)});
      if (is_matrix(tensor.name, architecture) && tensor.shape.size() == 1) {
        whole.stored.shape.insert(whole.stored.shape.begin(), 1);
      }
      continue;
    }
    add_experts(tensor, architecture, experts, tensors);
  }
  return tensors;
}

std::int64_t interleaved_rows(const GgufFile& file, std::string_view tensor) {
  const KnownArchitecture* known = find_architecture(file);
  if (known == nullptr || !known->interleaved) {
    return 0;
  }
  const std::string name = directory_name(tensor, known->family);
  const bool turned = name.find(".self_attn.q_proj.") != std::string::npos ||
                      name.find(".self_attn.k_proj.") != std::string::npos;
  return turned ? head_dim_of(file, known->name) : 0;
}

std::int64_t head_dim_of(const GgufFile& file, std::string_view architecture) {
  MetadataFields fields(file);
  const auto integer = [&](std::string_view name, std::int64_t fallback) {
    return fields.integer(fmt::format("{}.{}", architecture, name), fallback);
  };
  const std::int64_t heads = integer("attention.head_count", 0);
  const std::int64_t even = heads > 0 ? integer("embedding_length", 0) / heads : 0;
  return integer("attention.key_length", even);
}

}  // namespace heddle::gguf
