#include "spec/config_encoder.h"

#include <string>

#include <fmt/format.h>

#include "spec/json.h"

namespace heddle::spec {
namespace {

constexpr std::int64_t kTypesMax = 1 << 10;
/// More than any encoder has, and few enough for a step to have as many tokens.
constexpr std::int64_t kPositionsMax = 1 << 17;

/// Refuses a text field that says another thing than what is built in.
void want(JsonFields& fields, std::string_view key, std::string_view only) {
  const std::string value = fields.text(key);
  if (!value.empty() && value != only) {
    fields.reject(key, fmt::format("only \"{}\" is built in; {}", only, kElsewhere));
  }
}

/// How many labels a model tells apart, by `id2label` or `num_labels`.
std::int64_t read_labels(JsonFields& fields) {
  const Json* names = fields.find("id2label");
  const auto* object = names == nullptr ? nullptr : names->as<Json::Object>();
  if (object != nullptr) {
    return static_cast<std::int64_t>(object->size());
  }
  return fields.integer("num_labels", {1, kVocabMax}, 2);
}

void read_sizes(JsonFields& fields, const Family& family, ModelSpec& model) {
  model.hidden = fields.integer("hidden_size", {1, kHiddenMax}, 768);
  model.layers = fields.integer("num_hidden_layers", {1, kLayersMax}, 12);
  model.heads = fields.integer("num_attention_heads", {1, kHeadsMax}, family.heads);
  model.intermediate = fields.integer("intermediate_size", {1, kIntermediateMax}, 3072);
  model.vocab = fields.integer("vocab_size", {1, kVocabMax}, family.vocab);
  model.rms_eps = fields.number("layer_norm_eps", {0.0, 1.0}, 1e-12);
  model.kv_heads = model.heads;
  model.head_dim = fields.ok() ? model.hidden / model.heads : 0;
  if (fields.ok() && (model.hidden % model.heads != 0 || model.head_dim % 2 != 0)) {
    fields.reject(
        "num_attention_heads",
        fmt::format(
            "hidden_size ({}) must be {} heads of an even width", model.hidden, model.heads));
  }
}

void read_positions(JsonFields& fields, const Family& family, ModelSpec& model) {
  Encoder& encoder = model.encoder;
  encoder.positions =
      fields.integer("max_position_embeddings", {1, kPositionsMax}, family.max_position);
  const bool bert = family.architecture == Architecture::kBert;
  encoder.types = fields.integer("type_vocab_size", {1, kTypesMax}, 2);
  if (!bert) {
    encoder.first_position = fields.integer("pad_token_id", {0, kVocabMax}, 1) + 1;
  }
  model.max_position = encoder.positions - encoder.first_position;
  if (fields.ok() && model.max_position < 1) {
    fields.reject("max_position_embeddings",
                  fmt::format("a {} has its first token at position {}, by its pad_token_id",
                              family.name,
                              encoder.first_position));
  }
}

}  // namespace

void read_encoder(JsonFields& fields, const Family& family, bool scores, ModelSpec& model) {
  want(fields, "hidden_act", "gelu");
  want(fields, "position_embedding_type", "absolute");
  for (const char* key : {"is_decoder", "add_cross_attention"}) {
    if (fields.boolean(key, false)) {
      fields.reject(key, fmt::format("a {} is an encoder here; {}", family.name, kElsewhere));
    }
  }
  read_sizes(fields, family, model);
  read_positions(fields, family, model);
  const std::int64_t labels = scores ? read_labels(fields) : 1;
  if (fields.ok() && labels != 1) {
    fields.reject_as(
        fields.find("id2label") != nullptr ? "id2label" : "num_labels",
        fmt::format("of {} labels", labels),
        fmt::format("only models that score, with one label, are built in; {}", kElsewhere));
  }
  model.encoder.scores = scores;
  model.qkv_bias = model.out_bias = model.mlp_bias = true;
  model.norms = Norms::kOfSums;
  model.activation = Activation::kGelu;
  // Behind the layers there is no head, and so no second matrix of words.
  model.tied_embeddings = true;
  model.layer_rope.assign(static_cast<std::size_t>(fields.ok() ? model.layers : 0),
                          LayerRope::kNone);
  model.window.assign(static_cast<std::size_t>(fields.ok() ? model.layers : 0), 0);
}

}  // namespace heddle::spec
