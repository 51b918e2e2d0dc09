#include "gateway/model_text.h"

#include <algorithm>

#include "gateway/sentence_files.h"
#include "spec/json_view.h"
#include "spec/memory_needs.h"

namespace heddle::gateway {

namespace {

/// Which hidden states stand for a text, and what becomes of them.
Result<void> read_pooling(const text::ModelTexts& texts, ModelText& model) {
  if (model.encodes()) {
    const Result<SentenceFiles> files = read_sentence_files(texts);
    if (!files) {
      return files.error();
    }
    model.pooling = model.encoder.scores ? spec::Pooling::kFirst : files->pooling;
    model.normalised = files->normalised;
    model.context =
        files->most_tokens > 0 ? std::min(model.context, files->most_tokens) : model.context;
    return {};
  }
  if (const Result<std::string> pooling = texts.read("1_Pooling/config.json")) {
    const Result<spec::Json> json = spec::parse_json(*pooling, "1_Pooling/config.json");
    if (!json) {
      return json.error();
    }
    const bool* mean = spec::value_at<bool>(*json, {"pooling_mode_mean_tokens"});
    if (mean != nullptr && *mean) {
      model.pooling = spec::Pooling::kMean;
    }
  }
  return {};
}

/// Of each layer that keeps keys and values.
std::vector<spec::Heads> kv_heads_of(const spec::ModelSpec& model) {
  std::vector<spec::Heads> heads;
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    if (!spec::keeps_state(model, layer)) {
      heads.push_back(spec::heads_of(model, layer));
    }
  }
  return heads;
}

}  // namespace

std::uint64_t ModelText::kv_token_bytes(spec::DType kv) const {
  std::uint64_t bytes = 0;
  for (const spec::Heads& heads : kv_heads) {
    bytes += static_cast<std::uint64_t>(2 * heads.kv) * spec::kv_row_bytes(kv, heads.dim);
  }
  return bytes;
}

Result<std::shared_ptr<const ModelText>> open_model_text(const std::filesystem::path& directory,
                                                         std::int64_t context_cap) {
  // Errors reach clients: they name files, not where this machine has them.
  const Result<text::ModelTexts> texts = text::ModelTexts::open(directory);
  const Result<std::string> config = texts ? texts->read("config.json") : texts.error();
  if (!config && config.error().code == Code::kNotFound) {
    return Error{.code = Code::kNotFound,
                 .message = "open model: there is no readable config.json"};
  }
  if (!config) {
    return config.error();
  }
  const Result<spec::ModelSpec> spec = spec::parse_model_config(*config, "config.json");
  if (!spec) {
    return spec.error();
  }
  ModelText model{.directory = directory.string(),
                  .context = spec->max_position,
                  .vocab = spec->vocab,
                  .hidden = spec->hidden,
                  .layers = spec->layers,
                  .parameters = spec::parameter_count(*spec),
                  .kv_heads = kv_heads_of(*spec),
                  .encoder = spec->encoder,
                  .experts = spec->experts,
                  .architecture = spec->architecture};
  if (context_cap > 0) {
    model.context = std::min(model.context, context_cap);
  }
  if (const Result<std::string> generation = texts->read("generation_config.json")) {
    Result<spec::GenerationDefaults> defaults =
        spec::parse_generation_config(*generation, "generation_config.json", spec->vocab);
    if (!defaults) {
      return defaults.error();
    }
    model.defaults = std::move(defaults).value();
  }
  if (const Result<void> read = read_pooling(*texts, model); !read) {
    return read.error();
  }
  Result<std::shared_ptr<const text::TextModel>> text = text::TextModel::open(*texts);
  if (!text) {
    return text.error();
  }
  model.text = std::move(text).value();
  return std::make_shared<const ModelText>(std::move(model));
}

std::int64_t read_context(const std::filesystem::path& directory, std::int64_t context_cap) {
  const Result<text::ModelTexts> texts = text::ModelTexts::open(directory);
  const Result<std::string> config = texts ? texts->read("config.json") : texts.error();
  const Result<spec::ModelSpec> spec =
      config ? spec::parse_model_config(*config, "config.json") : config.error();
  if (!spec) {
    return 0;
  }
  return context_cap > 0 ? std::min(spec->max_position, context_cap) : spec->max_position;
}

}  // namespace heddle::gateway
