#include "store/inspect.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/file.h"
#include "gguf/gguf_text.h"
#include "spec/json.h"
#include "spec/operations.h"
#include "store/adapter_config.h"
#include "store/tensor_set.h"

namespace heddle::store {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBiggestCount = 5;
constexpr std::size_t kUnusedShown = 5;
constexpr std::uint64_t kTemplateBytesMax = 64U << 20U;
constexpr std::array<std::string_view, 7> kTextFiles = {"tokenizer.json",
                                                        "tokenizer.model",
                                                        "tokenizer_config.json",
                                                        "chat_template.json",
                                                        "special_tokens_map.json",
                                                        "chat_template.jinja",
                                                        "vocab.json"};

void add_tensors(const TensorSet& tensors, Inspection& inspection) {
  std::map<StoredType, TypeTotal> totals;
  for (const auto& [name, entry] : tensors.entries()) {
    const StoredTensor& tensor = entry.tensor;
    TypeTotal& total = totals[tensor.type];
    total.type = tensor.type;
    ++total.tensors;
    total.bytes += tensor.bytes;
    total.elements +=
        tensor.bytes * 8 / stored_type_bits(tensor.type) * stored_type_elements(tensor.type);
    inspection.biggest.push_back(tensor);
  }
  for (const auto& [type, total] : totals) {
    inspection.types.push_back(total);
  }
  std::sort(inspection.types.begin(), inspection.types.end(), [](const auto& a, const auto& b) {
    return std::tie(b.bytes, a.type) < std::tie(a.bytes, b.type);
  });
  std::sort(inspection.biggest.begin(), inspection.biggest.end(), [](const auto& a, const auto& b) {
    return std::tie(b.bytes, a.name) < std::tie(a.bytes, b.name);
  });
  inspection.biggest.resize(std::min(inspection.biggest.size(), kBiggestCount));
  for (const File& file : tensors.files()) {
    inspection.files.push_back(file.path().filename().string());
  }
}

void add_config(ModelConfig config, Inspection& inspection) {
  for (const spec::DType dtype : {spec::DType::kF32, spec::DType::kBf16, spec::DType::kI8}) {
    inspection.needs.push_back(spec::memory_needs(config.model, dtype));
  }
  if (!config.model.formats.empty()) {
    inspection.needs.push_back(spec::memory_needs(config.model, spec::DType::kStored));
  }
  inspection.config = std::move(config);
}

bool has_chat_template(const fs::path& directory) {
  if (is_there(directory / "chat_template.jinja") || is_there(directory / "chat_template.json")) {
    return true;
  }
  const Result<std::string> text =
      read_text(directory / "tokenizer_config.json", kTemplateBytesMax);
  if (!text) {
    return false;
  }
  const Result<spec::Json> json = spec::parse_json(*text, "tokenizer_config.json");
  return json && json->find("chat_template") != nullptr;
}

/// What a model that writes can serve without a template; encoders need none.
void note_template(bool has_or_needs_none, Inspection& inspection) {
  if (!has_or_needs_none) {
    inspection.notes.emplace_back("there is no chat template, so only completions can be served");
  }
}

void add_text(const fs::path& directory, Inspection& inspection) {
  for (const std::string_view name : kTextFiles) {
    if (is_there(directory / name)) {
      inspection.text_files.emplace_back(name);
    }
  }
  if (!is_there(directory / "tokenizer.json")) {
    inspection.problems.emplace_back(
        "there is no tokenizer.json; without it text cannot become tokens");
  }
  const bool encodes = inspection.config && spec::is_encoder(inspection.config->model);
  note_template(encodes || has_chat_template(directory), inspection);
}

void add_unused(const std::vector<std::string>& unused, Inspection& inspection) {
  if (!unused.empty()) {
    const auto shown = static_cast<std::ptrdiff_t>(std::min(unused.size(), kUnusedShown));
    inspection.notes.push_back(fmt::format("{} tensors are of no use to this model: {}{}",
                                           unused.size(),
                                           fmt::join(unused.begin(), unused.begin() + shown, ", "),
                                           unused.size() > kUnusedShown ? ", ..." : ""));
  }
}

void inspect_directory(const fs::path& directory, Inspection& inspection) {
  Result<ModelConfig> config = read_model_config(directory);
  if (!config) {
    inspection.problems.push_back(config.error().message);
  }
  Result<TensorSet> tensors = TensorSet::open(directory);
  if (!tensors) {
    inspection.problems.push_back(tensors.error().message);
  } else {
    add_tensors(*tensors, inspection);
  }
  if (config && tensors) {
    Result<Checkpoint> checkpoint = Checkpoint::of(*config, std::move(*tensors));
    if (!checkpoint) {
      inspection.problems.push_back(checkpoint.error().message);
    } else {
      add_unused(checkpoint->unused, inspection);
      *config = std::move(checkpoint->config);
    }
  }
  if (config) {
    add_config(std::move(config).value(), inspection);
  }
  add_text(directory, inspection);
}

/// A LoRA adapter. Whether it fits a model is told where it is configured.
void inspect_adapter(const fs::path& directory, Inspection& inspection) {
  inspection.format = "LoRA adapter";
  const Result<AdapterConfig> config = read_adapter_config(directory);
  if (!config) {
    inspection.problems.push_back(config.error().message);
  } else {
    inspection.format = fmt::format("LoRA adapter of rank {}, scale {:.3g}{}",
                                    config->rank,
                                    config->scale,
                                    config->base.empty() ? "" : ", trained on " + config->base);
    inspection.notes.emplace_back(
        "an adapter is served beside its base: `base: MODEL` and `adapter: DIRECTORY` in the "
        "configuration, which heddle config check holds against each other");
  }
  const Result<TensorSet> tensors = TensorSet::open_file(directory / "adapter_model.safetensors");
  if (!tensors) {
    inspection.problems.push_back(tensors.error().message);
  } else {
    add_tensors(*tensors, inspection);
  }
}

void inspect_config(const fs::path& path, Inspection& inspection) {
  Result<ModelConfig> config = read_model_config(path.parent_path());
  if (!config) {
    inspection.problems.push_back(config.error().message);
  } else {
    add_config(std::move(config).value(), inspection);
  }
}

void inspect_weights(const fs::path& path, Inspection& inspection) {
  const Result<TensorSet> tensors = TensorSet::open_file(path);
  if (!tensors) {
    inspection.problems.push_back(tensors.error().message);
  } else {
    add_tensors(*tensors, inspection);
  }
}

/// What the metadata say of tokens, and whether a tokenizer can be made of them.
void add_tokenizer(const fs::path& path,
                   const gguf::GgufFile& file,
                   bool encodes,
                   Inspection& inspection) {
  const auto text = [&file](std::string_view key) -> std::string {
    const gguf::Value* value = file.find(key);
    const auto* said = value != nullptr ? std::get_if<std::string>(value) : nullptr;
    return said != nullptr ? *said : "?";
  };
  const gguf::Value* tokens = file.find("tokenizer.ggml.tokens");
  const auto* array = tokens != nullptr ? std::get_if<gguf::Array>(tokens) : nullptr;
  const bool has_template = file.find("tokenizer.chat_template") != nullptr;
  const bool cut = file.find("tokenizer.ggml.pre") != nullptr;
  inspection.tokenizer = fmt::format("{}{}, {} tokens, {}",
                                     text("tokenizer.ggml.model"),
                                     cut ? fmt::format(" ({})", text("tokenizer.ggml.pre")) : "",
                                     array != nullptr ? array->count : 0,
                                     has_template ? "chat template" : "no chat template");
  const Result<gguf::GgufFile> whole = gguf::GgufFile::open(path, gguf::Keep::kAll);
  const auto files = whole ? gguf::tokenizer_files(*whole) : whole.error();
  if (!files) {
    inspection.problems.push_back(files.error().message);
  }
  note_template(has_template || encodes, inspection);
}

void inspect_gguf(const fs::path& path, Inspection& inspection) {
  Result<gguf::GgufFile> file = gguf::GgufFile::open(path, gguf::Keep::kSmall);
  if (!file) {
    inspection.problems.push_back(file.error().message);
    return;
  }
  inspection.format = fmt::format("GGUF {}", file->version);
  Result<ModelConfig> config = read_model_config(path);
  add_tokenizer(path, *file, config && spec::is_encoder(config->model), inspection);
  const TensorSet tensors = TensorSet::of(std::move(*file));
  add_tensors(tensors, inspection);
  if (!config) {
    inspection.problems.push_back(config.error().message);
    return;
  }
  const auto unused = check_tensors(tensors, config->model);
  if (!unused) {
    inspection.problems.push_back(unused.error().message);
  } else {
    add_unused(*unused, inspection);
  }
  add_config(std::move(config).value(), inspection);
}

}  // namespace

Result<Inspection> inspect(const fs::path& path) {
  Inspection inspection{.path = path};
  std::error_code ignored;
  if (fs::is_directory(path, ignored) && is_adapter(path) && !is_there(path / "config.json")) {
    inspect_adapter(path, inspection);
  } else if (fs::is_directory(path, ignored)) {
    inspect_directory(path, inspection);
  } else if (!is_there(path)) {
    return Error{Code::kNotFound,
                 fmt::format("there is no {}; give a model directory, a .gguf or .safetensors file "
                             "or a config.json",
                             path.string())};
  } else if (gguf::is_gguf(path)) {
    inspect_gguf(path, inspection);
  } else if (path.filename() == "config.json") {
    inspect_config(path, inspection);
  } else {
    inspect_weights(path, inspection);
  }
  return inspection;
}

}  // namespace heddle::store
