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
enum PoolingType : std::int64_t { kNone = 0, kMean = 1, kCls = 2, kLast = 3, kRank = 4 };

constexpr std::string_view kTypes = "token_types.weight";
constexpr std::string_view kScore = "cls.output.weight";
constexpr std::string_view kScoreDense = "cls.weight";

/// The rows of a table, which is a vector where it has one of types; an error where it is not
/// there.
std::int64_t rows_of(const GgufFile& file, std::string_view name, MetadataFields& fields) {
  const Tensor* tensor = file.tensor(name);
  if (tensor != nullptr && tensor->shape.size() == 1 && name == kTypes) {
    return 1;
  }
  if (tensor == nullptr || tensor->shape.size() != 2) {
    fields.fail({Code::kCorrupt, fmt::format("{}: there is no matrix \"{}\"", file.name, name)});
    return 0;
  }
  return tensor->shape.front();
}

/// A head that scores is of one label, and has its last product.
void check_head(const GgufFile& file, MetadataFields& fields) {
  const Tensor* score = file.tensor(kScore);
  const std::string pooling = fmt::format("bert.{}", kPoolingKey);
  if (score == nullptr && file.tensor(kScoreDense) != nullptr) {
    fields.fail({Code::kInvalidArgument,
                 fmt::format("{}: there is \"{}\" without \"{}\"; only heads with the latter are "
                             "built in; {}",
                             file.name,
                             kScoreDense,
                             kScore,
                             kElsewhere)});
  } else if (score == nullptr && fields.integer(pooling, kNone) == kRank) {
    fields.reject(pooling, fmt::format("there is no tensor \"{}\" that would score", kScore));
  } else if (score != nullptr && score->shape.size() == 2 && score->shape.front() != 1) {
    fields.fail({Code::kInvalidArgument,
                 fmt::format("{}: tensor \"{}\" is of {} labels; only models that score, with one "
                             "label, are built in; {}",
                             file.name,
                             kScore,
                             score->shape.front(),
                             kElsewhere)});
  }
}

}  // namespace

bool scores_barely(const GgufFile& file) {
  return file.tensor(kScore) != nullptr && file.tensor(kScoreDense) == nullptr;
}

Result<std::string> encoder_config_json(const GgufFile& file) {
  MetadataFields fields(file);
  const auto key = [](std::string_view name) { return fmt::format("bert.{}", name); };
  if (fields.boolean(key("attention.causal"), false)) {
    fields.reject(key("attention.causal"),
                  fmt::format("only encoders are built in; {}", kElsewhere),
                  Code::kInvalidArgument);
  }
  check_head(file, fields);
  const bool scores = file.tensor(kScore) != nullptr;
  JsonWriter json;
  json.begin_object().key("architectures").begin_array();
  json.string(scores ? "BertForSequenceClassification" : "BertModel").end_array();
  json.key("model_type").string("bert").key("num_labels").integer(1);
  for (const auto& [name, from] : {std::pair("hidden_size", "embedding_length"),
                                   std::pair("num_hidden_layers", "block_count"),
                                   std::pair("num_attention_heads", "attention.head_count"),
                                   std::pair("intermediate_size", "feed_forward_length")}) {
    json.key(name).integer(fields.integer(key(from)));
  }
  for (const auto& [name, table] : {std::pair("vocab_size", "token_embd.weight"),
                                    std::pair("max_position_embeddings", "position_embd.weight"),
                                    std::pair("type_vocab_size", kTypes.data())}) {
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
  const bool encodes = known->family == spec::Architecture::kBert;
  const bool scores = encodes && file.tensor(kScore) != nullptr;
  if (!scores && fields.has(key)) {
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
  if (encodes) {
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
