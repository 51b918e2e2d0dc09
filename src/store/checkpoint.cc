#include "store/checkpoint.h"

#include <array>
#include <charconv>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "store/image_layout.h"

namespace heddle::store {
namespace {

constexpr std::uint64_t kConfigBytesMax = 4U << 20U;
constexpr std::string_view kLayerPrefix = "model.layers.";

bool convertible(StoredType type) {
  return type == StoredType::kF32 || type == StoredType::kF16 || type == StoredType::kBf16;
}

std::string dimensions(const spec::ModelSpec& model) {
  return fmt::format(
      "hidden_size {}, num_attention_heads {}, num_key_value_heads {}, head_dim {}, "
      "intermediate_size {}, vocab_size {}",
      model.hidden,
      model.heads,
      model.kv_heads,
      model.head_dim,
      model.intermediate,
      model.vocab);
}

Result<void> check_source(const TensorSet& tensors,
                          const spec::ModelSpec& model,
                          const ImageTensor& image,
                          const ImageSource& source) {
  const TensorSet::Entry* entry = tensors.find(source.name);
  const std::string wanted =
      image.columns == 1 ? fmt::format("[{}]", source.stored_rows)
                         : fmt::format("[{}, {}]", source.stored_rows, source.stored_columns);
  if (entry == nullptr) {
    return Error{
        Code::kCorrupt,
        fmt::format("tensor \"{}\" {} is missing from {}, but config.json ({} layers, "
                    "tie_word_embeddings {}) needs it",
                    source.name,
                    wanted,
                    tensors.files().empty() ? "the checkpoint"
                                            : tensors.files().front().path().parent_path().string(),
                    model.layers,
                    model.tied_embeddings)};
  }
  const StoredTensor& stored = entry->tensor;
  const std::vector<std::int64_t> matrix = {source.stored_rows, source.stored_columns};
  const bool vector = image.columns == 1 && stored.shape == std::vector{source.stored_rows};
  if (stored.shape != matrix && !vector) {
    return Error{Code::kCorrupt,
                 fmt::format("tensor \"{}\" in {} is {}, but config.json wants {} ({})",
                             source.name,
                             tensors.file_of(*entry).path().string(),
                             describe(stored),
                             wanted,
                             dimensions(model))};
  }
  if (!convertible(stored.type)) {
    return Error{Code::kCorrupt,
                 fmt::format("tensor \"{}\" in {} is {}; weights must be F32, F16 or BF16, another "
                             "engine may serve this model: configure it with `cmd:`",
                             source.name,
                             tensors.file_of(*entry).path().string(),
                             describe(stored))};
  }
  return {};
}

/// A tensor of a layer: which one, and its name within it. Layer -1 for all others.
std::pair<std::int64_t, std::string_view> split_layer(std::string_view name) {
  if (!name.starts_with(kLayerPrefix)) {
    return {-1, name};
  }
  name.remove_prefix(kLayerPrefix.size());
  std::int64_t layer = -1;
  const auto [rest, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  const auto length = static_cast<std::size_t>(rest - name.data());
  if (error != std::errc() || length >= name.size() || name[length] != '.') {
    return {-1, name};
  }
  return {layer, name.substr(length + 1)};
}

/// What a tensor that the image does not need tells about the model; empty if nothing.
std::string contradiction(std::string_view name, const spec::ModelSpec& model) {
  const auto [layer, part] = split_layer(name);
  if (layer >= model.layers) {
    return fmt::format("but config.json says num_hidden_layers {}", model.layers);
  }
  constexpr std::array<std::string_view, 9> kSwitched = {"self_attn.q_proj.bias",
                                                         "self_attn.k_proj.bias",
                                                         "self_attn.v_proj.bias",
                                                         "self_attn.o_proj.bias",
                                                         "self_attn.q_norm.weight",
                                                         "self_attn.k_norm.weight",
                                                         "mlp.gate_proj.bias",
                                                         "mlp.up_proj.bias",
                                                         "mlp.down_proj.bias"};
  for (const std::string_view switched : kSwitched) {
    if (layer >= 0 && part == switched) {
      return "but by config.json (architectures, attention_bias, mlp_bias) the model has none";
    }
  }
  return "";
}

bool is_harmless(std::string_view name, const spec::ModelSpec& model) {
  return name.ends_with("rotary_emb.inv_freq") ||
         (model.tied_embeddings && name == "lm_head.weight");
}

}  // namespace

Result<ModelConfig> read_model_config(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "config.json";
  const Result<std::string> text = read_text(path, kConfigBytesMax);
  if (!text) {
    return text.error();
  }
  Result<spec::ModelSpec> model = spec::parse_model_config(*text, path.string());
  if (!model) {
    return model.error();
  }
  ModelConfig config{.model = std::move(model).value()};
  const std::filesystem::path generation_path = directory / "generation_config.json";
  const Result<std::string> generation = read_text(generation_path, kConfigBytesMax);
  if (!generation) {
    if (generation.error().code == Code::kNotFound) {
      return config;
    }
    return generation.error();
  }
  auto defaults =
      spec::parse_generation_config(*generation, generation_path.string(), config.model.vocab);
  if (!defaults) {
    return defaults.error();
  }
  config.generation = std::move(defaults).value();
  if (!config.generation.eos.empty()) {
    config.model.eos = config.generation.eos;
  }
  return config;
}

Result<std::vector<std::string>> check_tensors(const TensorSet& tensors,
                                               const spec::ModelSpec& model) {
  std::set<std::string_view> used;
  const ImageLayout layout = plan_image(model, spec::DType::kBf16);
  for (const ImageTensor& image : layout.tensors) {
    for (const ImageSource& source : image.sources) {
      if (Result<void> status = check_source(tensors, model, image, source); !status) {
        return status.error();
      }
      used.insert(source.name);
    }
  }
  std::vector<std::string> unused;
  for (const auto& [name, entry] : tensors.entries()) {
    if (used.contains(name) || is_harmless(name, model)) {
      continue;
    }
    if (const std::string why = contradiction(name, model); !why.empty()) {
      return Error{
          Code::kCorrupt,
          fmt::format(
              "{} has tensor \"{}\", {}", tensors.file_of(entry).path().string(), name, why)};
    }
    unused.push_back(name);
  }
  return unused;
}

Result<Checkpoint> Checkpoint::open(const std::filesystem::path& directory) {
  Result<ModelConfig> config = read_model_config(directory);
  if (!config) {
    return config.error();
  }
  Result<TensorSet> tensors = TensorSet::open(directory);
  if (!tensors) {
    return tensors.error();
  }
  Result<std::vector<std::string>> unused = check_tensors(*tensors, config->model);
  if (!unused) {
    return unused.error();
  }
  return Checkpoint{.config = std::move(config).value(),
                    .tensors = std::move(tensors).value(),
                    .unused = std::move(unused).value()};
}

}  // namespace heddle::store
