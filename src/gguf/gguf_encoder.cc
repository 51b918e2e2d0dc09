#include "gguf/gguf_encoder.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "gguf/architecture.h"
#include "gguf/metadata_fields.h"
#include "spec/json_writer.h"

namespace heddle::gguf {
namespace {

using spec::JsonWriter;

constexpr std::string_view kPoolingKey = "pooling_type";

/// `pooling_type`: llama.cpp's enum llama_pooling_type.
enum PoolingType : std::int64_t { kNone = 0, kMean = 1, kCls = 2, kLast = 3 };

/// The rows of a table; an error where it is not there.
std::int64_t rows_of(const GgufFile& file, std::string_view name, MetadataFields& fields) {
  const Tensor* tensor = file.tensor(name);
  if (tensor == nullptr || tensor->shape.size() != 2) {
    fields.fail({Code::kCorrupt, fmt::format("{}: there is no matrix \"{}\"", file.name, name)});
    return 0;
  }
  return tensor->shape.front();
}

}  // namespace

Result<std::string> encoder_config_json(const GgufFile& file) {
  MetadataFields fields(file);
  const auto key = [](std::string_view name) { return fmt::format("bert.{}", name); };
  if (fields.boolean(key("attention.causal"), false)) {
    fields.reject(key("attention.causal"),
                  fmt::format("only encoders are built in; {}", kElsewhere),
                  Code::kInvalidArgument);
  }
  const auto scores = [](const Tensor& tensor) {
    return tensor.name.starts_with("cls.") || tensor.name.starts_with("cls_");
  };
  if (std::ranges::any_of(file.tensors, scores)) {
    fields.fail({Code::kInvalidArgument,
                 fmt::format("{}: its \"cls\" tensors score texts; of GGUF files only encoders "
                             "that give vectors are built in; {}",
                             file.name,
                             kElsewhere)});
  }
  JsonWriter json;
  json.begin_object().key("architectures").begin_array().string("BertModel").end_array();
  json.key("model_type").string("bert");
  for (const auto& [name, from] : {std::pair("hidden_size", "embedding_length"),
                                   std::pair("num_hidden_layers", "block_count"),
                                   std::pair("num_attention_heads", "attention.head_count"),
                                   std::pair("intermediate_size", "feed_forward_length")}) {
    json.key(name).integer(fields.integer(key(from)));
  }
  for (const auto& [name, table] : {std::pair("vocab_size", "token_embd.weight"),
                                    std::pair("max_position_embeddings", "position_embd.weight"),
                                    std::pair("type_vocab_size", "token_types.weight")}) {
    json.key(name).integer(rows_of(file, table, fields));
  }
  const std::string epsilon = fields.decimal(key("attention.layer_norm_epsilon"));
  json.key("layer_norm_eps").json(epsilon.empty() ? "1e-12" : epsilon).end_object();
  return fields.ok() ? Result<std::string>(std::move(json).take()) : fields.status().error();
}

Result<std::map<std::string, std::string, std::less<>>> sentence_files(const GgufFile& file) {
  std::map<std::string, std::string, std::less<>> files;
  const KnownArchitecture* known = find_architecture(file);
  if (known == nullptr) {
    return files;
  }
  MetadataFields fields(file);
  const std::string key = fmt::format("{}.{}", known->name, kPoolingKey);
  if (fields.has(key)) {
    const std::int64_t type = fields.integer(key);
    const std::string_view mode = type == kMean   ? "mean"
                                  : type == kCls  ? "cls"
                                  : type == kLast ? "lasttoken"
                                                  : "";
    if (mode.empty() && type != kNone) {
      fields.reject(key,
                    fmt::format("built in are 1 (mean), 2 (cls) and 3 (last); {}", kElsewhere),
                    Code::kInvalidArgument);
    } else if (!mode.empty()) {
      files["1_Pooling/config.json"] = fmt::format(
          R"({{"pooling_mode":"{}","pooling_mode_mean_tokens":{}}})", mode, type == kMean);
    }
  }
  if (known->family == spec::Architecture::kBert) {
    files["modules.json"] = R"([{"type":"Transformer"},{"type":"Pooling"},{"type":"Normalize"}])";
    if (const std::int64_t most = fields.integer("bert.context_length", 0); most > 0) {
      files["sentence_bert_config.json"] = fmt::format(R"({{"max_seq_length":{}}})", most);
    }
  }
  if (!fields.ok()) {
    return fields.status().error();
  }
  return files;
}

}  // namespace heddle::gguf
