#include "store/checkpoint.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/file.h"
#include "gguf/gguf_model.h"
#include "gguf/tensor_names.h"
#include "spec/block_panels.h"
#include "spec/operations.h"
#include "store/convert.h"
#include "store/fused_experts.h"
#include "store/image_layout.h"
#include "store/packed_matrix.h"
#include "store/packed_tensors.h"
#include "store/turned_experts.h"

namespace heddle::store {
namespace {

constexpr std::uint64_t kConfigBytesMax = 4U << 20U;
constexpr std::array<std::string_view, 2> kLayerPrefixes = {"model.layers.", "encoder.layer."};

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

bool is_gguf(const TensorSet& tensors) {
  return !tensors.files().empty() && gguf::is_gguf(tensors.files().front().path());
}

/// What the files of the tensors are called: their directory, or the file.
std::string place_of(const TensorSet& tensors) {
  const std::filesystem::path& path = tensors.files().front().path();
  return (is_gguf(tensors) ? path : path.parent_path()).string();
}

/// The name that a tensor of the image would have there.
std::string name_of(const TensorSet& tensors,
                    const spec::ModelSpec& model,
                    const ImageSource& source) {
  return is_gguf(tensors) ? gguf::tensor_name(source.name, model.architecture) : source.name;
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
    return Error{Code::kCorrupt,
                 fmt::format("tensor \"{}\" {} is missing from {}, but {} ({} layers, "
                             "tie_word_embeddings {}) needs it",
                             name_of(tensors, model, source),
                             wanted,
                             tensors.files().empty() ? "the checkpoint" : place_of(tensors),
                             tensors.described_by(),
                             model.layers,
                             model.tied_embeddings)};
  }
  const StoredTensor& stored = entry->tensor;
  const std::vector<std::int64_t> matrix = {source.stored_rows, source.stored_columns};
  const bool vector = image.columns == 1 && stored.shape == std::vector{source.stored_rows};
  // Of a convolution: a matrix by channel and position, of one channel each.
  const bool convolution =
      stored.shape == std::vector{source.stored_rows, std::int64_t{1}, source.stored_columns};
  if (stored.shape != matrix && !vector && !convolution) {
    return Error{Code::kCorrupt,
                 fmt::format("tensor \"{}\" in {} is {}, but {} wants {} ({})",
                             stored.name,
                             tensors.file_of(*entry).path().string(),
                             describe(stored),
                             tensors.described_by(),
                             wanted,
                             dimensions(model))};
  }
  if (!can_convert(stored.type, spec::DType::kF32)) {
    return Error{
        Code::kCorrupt,
        fmt::format("tensor \"{}\" in {} is {}; weights must be {}, another engine may "
                    "serve this model: configure it with {}",
                    stored.name,
                    tensors.file_of(*entry).path().string(),
                    describe(stored),
                    is_gguf(tensors) ? "one of " + gguf::decoded_types() : "F32, F16 or BF16",
                    is_gguf(tensors) ? "`engine: llama-server`" : "`cmd:`")};
  }
  return {};
}

/// A tensor of a layer: which one, and its name within it. Layer -1 for all others.
std::pair<std::int64_t, std::string_view> split_layer(std::string_view name) {
  const auto* prefix = std::ranges::find_if(
      kLayerPrefixes, [&](std::string_view known) { return name.starts_with(known); });
  if (prefix == kLayerPrefixes.end()) {
    return {-1, name};
  }
  name.remove_prefix(prefix->size());
  std::int64_t layer = -1;
  const auto [rest, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  const auto length = static_cast<std::size_t>(rest - name.data());
  if (error != std::errc() || length >= name.size() || name[length] != '.') {
    return {-1, name};
  }
  return {layer, name.substr(length + 1)};
}

/// What a tensor that the image does not need tells about the model; empty if nothing.
std::string contradiction(std::string_view name,
                          const spec::ModelSpec& model,
                          std::string_view described_by) {
  const auto [layer, part] = split_layer(name);
  if (layer >= model.layers) {
    return fmt::format("but {} says num_hidden_layers {}", described_by, model.layers);
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
      return fmt::format("but by {} (architectures, attention_bias, mlp_bias) the model has none",
                         described_by);
    }
  }
  return "";
}

/// Whether a bias is one of a matrix of integers of several tensors.
bool is_packed(const TensorSet& tensors, std::string_view bias) {
  const auto matrix = std::string(bias.substr(0, bias.size() - std::string_view("bias").size()));
  const TensorSet::Entry* entry = tensors.find(matrix + "weight");
  return entry != nullptr && entry->packed != nullptr &&
         entry->packed->how.packing != spec::Packing::kScaled;
}

bool is_harmless(std::string_view name, const spec::ModelSpec& model) {
  return name.ends_with("rotary_emb.inv_freq") || name == "rope_freqs.weight" ||
         (model.tied_embeddings && name == "lm_head.weight") ||
         (spec::is_encoder(model) &&
          (name.ends_with("embeddings.position_ids") || name.starts_with("pooler.dense.")));
}

/// Has the tensors of an encoder go by their names within it, as those of a model for a task are
/// called "bert.encoder..." and so on.
void drop_task_prefix(TensorSet& tensors) {
  std::vector<std::string> prefixed;
  std::vector<TensorSet::Entry> entries;
  for (const auto& [name, entry] : tensors.entries()) {
    for (const std::string_view prefix : {"bert.", "roberta."}) {
      if (name.starts_with(prefix)) {
        prefixed.push_back(name);
        entries.push_back(entry);
        entries.back().tensor.name = name.substr(prefix.size());
        break;
      }
    }
  }
  tensors.exchange(prefixed, std::move(entries));
}

/// What a folder without a config.json has instead.
std::string gguf_hint(const std::filesystem::path& directory) {
  std::error_code failure;
  for (std::filesystem::directory_iterator at(directory, failure), end; !failure && at != end;
       at.increment(failure)) {
    if (!is_there(directory / "config.json") && gguf::is_gguf(at->path())) {
      return fmt::format("; give the path of {} itself", at->path().filename().string());
    }
  }
  return "";
}

Result<ModelConfig> config_of_directory(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "config.json";
  const Result<std::string> text = read_text(path, kConfigBytesMax);
  if (!text) {
    return Error{text.error().code, text.error().message + gguf_hint(directory)};
  }
  Result<spec::ModelSpec> model = spec::parse_model_config(*text, path.string());
  if (!model) {
    return model.error();
  }
  const Result<spec::Quantisation> quantisation = spec::parse_quantisation(*text, path.string());
  if (!quantisation) {
    return quantisation.error();
  }
  if (quantisation->packing != spec::Packing::kNone && spec::is_encoder(*model)) {
    return Error{
        Code::kInvalidArgument,
        fmt::format("{}: quantization_config is there, but of encoders only plain matrices "
                    "are built in; `dtype: int8` rounds them while they are loaded",
                    path.string())};
  }
  if (quantisation->packing == spec::Packing::kMxfp4 &&
      model->architecture != spec::Architecture::kGptOss) {
    return Error{Code::kInvalidArgument,
                 fmt::format("{}: quantization_config.quant_method is \"mxfp4\", which is built in "
                             "of {} alone; another engine can serve this model: configure it with "
                             "`cmd:`",
                             path.string(),
                             spec::architecture_name(spec::Architecture::kGptOss))};
  }
  ModelConfig config{.model = std::move(model).value(), .quantisation = *quantisation};
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

Result<ModelConfig> config_of(const gguf::GgufFile& file) {
  Result<spec::ModelSpec> model = gguf::model_spec(file);
  if (!model) {
    return model.error();
  }
  auto defaults = gguf::generation_defaults(file, model->vocab);
  if (!defaults) {
    return defaults.error();
  }
  return ModelConfig{.model = std::move(*model), .generation = std::move(*defaults)};
}

/// Of which matrices the sources of a tensor are, one after the other, over and over; of none where
/// it is no matrix that may be packed.
std::vector<spec::Matrix> matrices_of(Role role) {
  using spec::Matrix;
  switch (role) {
    case Role::kQkv:
      return {Matrix::kQ, Matrix::kK, Matrix::kV};
    case Role::kOut:
      return {Matrix::kOut};
    case Role::kGateUp:
      return {Matrix::kGate, Matrix::kUp};
    case Role::kDown:
      return {Matrix::kDown};
    case Role::kExpertsGateUp:
      return {Matrix::kExpertsGate, Matrix::kExpertsUp};
    case Role::kExpertsDown:
      return {Matrix::kExpertsDown};
    case Role::kHead:
      return {Matrix::kHead};
    default:
      return {};
  }
}

/// Of which of them source `i` is: of queries, keys and values by name, as gated attention has
/// them by head; keys that come twice are values.
spec::Matrix matrix_of(const std::vector<spec::Matrix>& matrices,
                       const std::vector<ImageSource>& sources,
                       std::size_t i) {
  const std::string& name = sources[i].name;
  constexpr std::array<std::pair<std::string_view, spec::Matrix>, 3> kNamed = {
      std::pair{".q_proj.weight", spec::Matrix::kQ},
      std::pair{".k_proj.weight", spec::Matrix::kK},
      std::pair{".v_proj.weight", spec::Matrix::kV}};
  for (const auto& [ending, matrix] : kNamed) {
    if (name.ends_with(ending)) {
      const bool again = matrix == spec::Matrix::kK && i > 0 && sources[i - 1].name == name;
      return again ? spec::Matrix::kV : matrix;
    }
  }
  return matrices[i % matrices.size()];
}

/// The type of a matrix, where images have it as it is stored. Products of experts take inputs as
/// they are.
spec::DType format_of(const TensorSet::Entry* entry, spec::Matrix matrix) {
  const spec::DType format =
      entry != nullptr ? matrix_format(entry->tensor.type) : spec::DType::kBf16;
  const bool both = format == spec::DType::kF8 && matrix < spec::Matrix::kExpertsGate &&
                    entry->packed != nullptr && entry->packed->f8_both();
  return both ? spec::DType::kF8Both : format;
}

/// The type of each matrix of a directory, in the order of spec::format_index(); plain where its
/// experts differ, and empty where all are plain.
std::vector<spec::DType> formats_of(const TensorSet& tensors, const spec::ModelSpec& model) {
  std::map<std::size_t, spec::DType> found;
  for (const ImageTensor& image : plan_image(model, spec::DType::kBf16).tensors) {
    const std::vector<spec::Matrix> matrices = matrices_of(image.role);
    for (std::size_t i = 0; !matrices.empty() && i < image.sources.size(); ++i) {
      const std::string& name = image.sources[i].name;
      const TensorSet::Entry* entry = tensors.find(name);
      const spec::Matrix matrix = matrix_of(matrices, image.sources, i);
      const spec::DType format = format_of(entry, matrix);
      const auto [at, fresh] = found.emplace(spec::format_index(matrix, image.layer), format);
      at->second = fresh || at->second == format ? format : spec::DType::kBf16;
    }
  }
  std::vector<spec::DType> formats(spec::format_count(model.layers), spec::DType::kBf16);
  for (const auto& [at, format] : found) {
    formats[at] = format;
  }
  return std::ranges::any_of(formats, spec::is_blocks) ? formats : std::vector<spec::DType>{};
}

}  // namespace

Result<ModelConfig> read_model_config(const std::filesystem::path& model) {
  if (gguf::is_gguf(model)) {
    const Result<gguf::GgufFile> file = gguf::GgufFile::open(model, gguf::Keep::kSmall);
    return file ? config_of(*file) : file.error();
  }
  return config_of_directory(model);
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
    // Programs that make packed matrices of all layers give each a bias, of zeros.
    const bool beside_packed = name.ends_with(".bias") && is_packed(tensors, name);
    const std::string why = contradiction(name, model, tensors.described_by());
    if (!why.empty() && !beside_packed) {
      return Error{Code::kCorrupt,
                   fmt::format("{} has tensor \"{}\", {}",
                               tensors.file_of(entry).path().string(),
                               entry.tensor.name,
                               why)};
    }
    unused.push_back(name);
  }
  return unused;
}

Result<Checkpoint> Checkpoint::open(const std::filesystem::path& model) {
  if (gguf::is_gguf(model)) {
    Result<gguf::GgufFile> file = gguf::GgufFile::open(model, gguf::Keep::kSmall);
    if (!file) {
      return file.error();
    }
    Result<ModelConfig> config = config_of(*file);
    return config ? of(std::move(*config), TensorSet::of(std::move(*file))) : config.error();
  }
  Result<ModelConfig> config = config_of_directory(model);
  if (!config) {
    return config.error();
  }
  Result<TensorSet> tensors = TensorSet::open(model);
  return tensors ? of(std::move(*config), std::move(*tensors)) : tensors.error();
}

Result<Checkpoint> Checkpoint::of(ModelConfig config, TensorSet tensors) {
  if (spec::is_encoder(config.model)) {
    drop_task_prefix(tensors);
  } else if (config.model.architecture == spec::Architecture::kGptOss) {
    split_turned_experts(tensors);
  } else if (config.model.experts.count > 0) {
    split_experts(tensors);
  }
  if (config.quantisation.packing != spec::Packing::kNone) {
    if (Result<void> joined = join_packed(tensors, config.quantisation); !joined) {
      return joined.error();
    }
    config.model.formats = formats_of(tensors, config.model);
  }
  Result<std::vector<std::string>> unused = check_tensors(tensors, config.model);
  if (!unused) {
    return unused.error();
  }
  return Checkpoint{.config = std::move(config),
                    .tensors = std::move(tensors),
                    .unused = std::move(unused).value()};
}

}  // namespace heddle::store
