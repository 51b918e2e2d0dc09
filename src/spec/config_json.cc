#include "spec/config_json.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "spec/config_encoder.h"
#include "spec/config_family.h"
#include "spec/config_gemma4.h"
#include "spec/config_hybrid.h"
#include "spec/config_rope.h"
#include "spec/config_windows.h"
#include "spec/json.h"
#include "spec/json_fields.h"

namespace heddle::spec {
namespace {

bool has_experts(Architecture architecture) {
  return architecture == Architecture::kMixtral || architecture == Architecture::kQwen2Moe ||
         architecture == Architecture::kQwen3Moe || architecture == Architecture::kQwen3Next ||
         architecture == Architecture::kQwen35Moe || architecture == Architecture::kGptOss;
}

/// Whether `intermediate_size` is the width of experts, of which `num_local_experts` tells.
bool is_local(Architecture architecture) {
  return architecture == Architecture::kMixtral || architecture == Architecture::kGptOss;
}

bool is_gemma(Architecture architecture) {
  return architecture == Architecture::kGemma2 || architecture == Architecture::kGemma3 ||
         architecture == Architecture::kGemma4;
}

/// Every layer has experts, or this is refused.
void require_sparse(JsonFields& fields) {
  const auto refuse = [&](std::string_view key) {
    fields.reject(
        key, fmt::format("only models with experts in every layer are built in; {}", kElsewhere));
  };
  if (fields.integer("decoder_sparse_step", {0, kLayersMax}, 1) != 1) {
    refuse("decoder_sparse_step");
  }
  const Json* dense = fields.find("mlp_only_layers");
  const auto* list = dense == nullptr ? nullptr : dense->as<Json::Array>();
  if (dense != nullptr && (list == nullptr || !list->empty())) {
    refuse("mlp_only_layers");
  }
}

/// What Qwen's families take absent keys for.
struct QwenExperts {
  std::int64_t count = 0;
  std::int64_t active = 0;
  std::int64_t intermediate = 0;
  std::int64_t shared = 0;           ///< Width of the MLP that all tokens share; 0: there is none.
  std::optional<bool> normalised{};  ///< nullopt: always.
};

QwenExperts usual_experts(Architecture architecture) {
  switch (architecture) {
    case Architecture::kQwen2Moe:
      return {.count = 60, .active = 4, .intermediate = 1408, .shared = 5632, .normalised = false};
    case Architecture::kQwen3Next:
      return {.count = 512, .active = 10, .intermediate = 512, .shared = 512, .normalised = true};
    case Architecture::kQwen35Moe:
      return {.count = 256, .active = 8, .intermediate = 512, .shared = 512};
    default:
      return {.count = 128, .active = 8, .intermediate = 768, .normalised = false};
  }
}

/// Experts, and the width of the MLP beside them. Qwen's `intermediate_size` is of layers without.
void read_experts(JsonFields& fields, const Family& family, ModelSpec& model) {
  Experts& experts = model.experts;
  if (is_local(family.architecture)) {
    const bool mixtral = family.architecture == Architecture::kMixtral;
    experts.count = fields.integer("num_local_experts", {1, kExpertsMax}, mixtral ? 8 : 128);
    experts.active = fields.integer("num_experts_per_tok", {1, kExpertsMax}, mixtral ? 2 : 4);
    experts.intermediate = fields.integer("intermediate_size", {1, kIntermediateMax});
    experts.normalised = true;
    model.intermediate = 0;
  } else {
    const QwenExperts usual = usual_experts(family.architecture);
    require_sparse(fields);
    experts.count = fields.integer("num_experts", {1, kExpertsMax}, usual.count);
    experts.active = fields.integer("num_experts_per_tok", {1, kExpertsMax}, usual.active);
    experts.intermediate =
        fields.integer("moe_intermediate_size", {1, kIntermediateMax}, usual.intermediate);
    experts.normalised = !usual.normalised || fields.boolean("norm_topk_prob", *usual.normalised);
    model.intermediate = usual.shared == 0 ? 0
                                           : fields.integer("shared_expert_intermediate_size",
                                                            {1, kIntermediateMax},
                                                            usual.shared);
  }
  if (fields.ok() && experts.count * experts.intermediate > kIntermediateMax) {
    fields.reject(
        is_local(family.architecture) ? "num_local_experts" : "num_experts",
        fmt::format(
            "experts of {} are at most {} wide together", experts.intermediate, kIntermediateMax));
  }
  if (fields.ok() && experts.active > experts.count) {
    fields.reject(
        "num_experts_per_tok",
        fmt::format("a token cannot take {} of {} experts", experts.active, experts.count));
  }
}

/// What would change the mathematics in ways that are not built in.
void reject_unsupported(JsonFields& fields, const Family& family) {
  for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts"}) {
    const Json* count = fields.find(key);
    if (count != nullptr && !has_experts(family.architecture) &&
        family.architecture != Architecture::kGemma4 &&
        (count->as<std::int64_t>() == nullptr || *count->as<std::int64_t>() > 1)) {
      fields.reject(key, fmt::format("a {} has no experts here; {}", family.name, kElsewhere));
    }
  }
  const bool gemma = is_gemma(family.architecture);
  const std::string_view key = gemma ? "hidden_activation" : "hidden_act";
  const std::string activation = fields.text(key);
  const bool known =
      gemma ? activation == "gelu_pytorch_tanh" : activation == "silu" || activation == "swish";
  if (!activation.empty() && !known) {
    fields.reject(
        key,
        fmt::format(
            "only \"{}\" is built in; {}", gemma ? "gelu_pytorch_tanh" : "silu", kElsewhere));
  }
}

/// What an absent key means, 0: nothing.
std::optional<std::int64_t> said_or(std::int64_t usual) {
  return usual == 0 ? std::nullopt : std::optional(usual);
}

void read_dimensions(JsonFields& fields, const Family& family, ModelSpec& model) {
  model.hidden = fields.integer("hidden_size", {1, kHiddenMax});
  model.layers = fields.integer("num_hidden_layers", {1, kLayersMax});
  model.heads = fields.integer("num_attention_heads", {1, kHeadsMax}, said_or(family.heads));
  if (has_experts(family.architecture)) {
    read_experts(fields, family, model);
  } else {
    model.intermediate = fields.integer("intermediate_size", {1, kIntermediateMax});
  }
  model.vocab = fields.integer("vocab_size", {1, kVocabMax}, said_or(family.vocab));
  model.max_position =
      fields.integer("max_position_embeddings", {1, kPositionMax}, family.max_position);
  model.rms_eps = fields.number("rms_norm_eps", {0.0, 1.0}, family.rms_eps);

  // An absent key means the family's default, null means one key head for each query head.
  const bool spelled_null = fields.is_null("num_key_value_heads");
  const std::int64_t kv_default =
      family.kv_heads == 0 || spelled_null ? model.heads : family.kv_heads;
  model.kv_heads = fields.integer("num_key_value_heads", {1, kHeadsMax}, kv_default);
  if (fields.ok() && model.heads % model.kv_heads != 0) {
    fields.reject(
        "num_key_value_heads",
        fmt::format(
            "{} must divide num_attention_heads, which is {}", model.kv_heads, model.heads));
  }
  if (fields.find("head_dim") == nullptr && family.head_dim == 0 && fields.ok()) {
    model.head_dim = model.hidden / model.heads;
    if (model.hidden % model.heads != 0) {
      fields.reject("head_dim",
                    fmt::format("without it num_attention_heads ({}) must divide hidden_size ({})",
                                model.heads,
                                model.hidden));
    }
  } else {
    model.head_dim = fields.integer("head_dim", {2, kHeadDimMax}, family.head_dim);
  }
  if (fields.ok() && (model.head_dim < 2 || model.head_dim % 2 != 0)) {
    fields.reject(
        "head_dim",
        fmt::format("heads of {} cannot rotate in pairs; it must be even", model.head_dim));
  }
}

/// What is Gemma's own.
void read_gemma(JsonFields& fields, const Family& family, ModelSpec& model) {
  constexpr NumberRange kCapRange{1e-3, 1e6};
  const bool second = family.architecture == Architecture::kGemma2;
  const auto cap = [&](std::string_view key, double usual) {
    return fields.is_null(key) ? 0.0 : fields.number(key, kCapRange, second ? usual : 0.0);
  };
  model.activation = Activation::kGeluTanh;
  model.norms = Norms::kAround;
  model.norm_less_one = true;
  model.qk_norm = !second;
  model.scales.embedding = std::sqrt(static_cast<double>(model.hidden));
  model.scales.attention =
      1.0 / std::sqrt(fields.number("query_pre_attn_scalar", {1e-3, 1e6}, 256.0));
  model.scales.attention_cap = cap("attn_logit_softcapping", 50.0);
  model.scales.logit_cap = cap("final_logit_softcapping", 30.0);
}

void read_granite(JsonFields& fields, ModelSpec& model) {
  constexpr NumberRange kScaleRange{1e-6, 1e6};
  model.scales = {.embedding = fields.number("embedding_multiplier", kScaleRange, 1.0),
                  .attention = fields.number("attention_multiplier", kScaleRange, 1.0),
                  .residual = fields.number("residual_multiplier", kScaleRange, 1.0),
                  .logits = 1.0 / fields.number("logits_scaling", kScaleRange, 1.0)};
}

/// What is gpt-oss' own. Its attention has biases where the key is absent.
void read_gpt_oss(JsonFields& fields, ModelSpec& model) {
  constexpr NumberRange kGateRange{1e-3, 1e6};
  model.qkv_bias = model.out_bias = fields.boolean("attention_bias", true);
  model.sinks = true;
  model.experts.biased = true;
  model.experts.gate_limit = fields.number("swiglu_limit", kGateRange, 7.0);
  model.experts.gate_gain = fields.number("swiglu_alpha", kGateRange, 1.702);
}

void read_switches(JsonFields& fields, const Family& family, ModelSpec& model) {
  model.tied_embeddings = fields.boolean("tie_word_embeddings", family.tied);
  const bool attention_bias = fields.boolean("attention_bias", false);
  switch (family.architecture) {
    case Architecture::kLlama:
    case Architecture::kSmolLm3:
    case Architecture::kGranite:
      model.qkv_bias = model.out_bias = attention_bias;
      model.mlp_bias = fields.boolean("mlp_bias", false);
      break;
    case Architecture::kMistral:
    case Architecture::kMixtral:
    case Architecture::kPhi3:
      break;
    case Architecture::kGemma2:
    case Architecture::kGemma3:
      model.qkv_bias = model.out_bias = attention_bias;
      read_gemma(fields, family, model);
      break;
    case Architecture::kGemma4:
      model.qkv_bias = model.out_bias = attention_bias;
      read_gemma4(fields, model);
      break;
    case Architecture::kOlmo2:
      model.qkv_bias = model.out_bias = attention_bias;
      model.norms = Norms::kAfter;
      model.qk_norm_whole = true;
      break;
    case Architecture::kQwen2:
      model.qkv_bias = true;
      break;
    case Architecture::kQwen2Moe:
      model.qkv_bias = fields.boolean("qkv_bias", true);
      break;
    case Architecture::kQwen3:
    case Architecture::kQwen3Moe:
      model.qkv_bias = model.out_bias = attention_bias;
      model.qk_norm = true;
      break;
    case Architecture::kQwen3Next:
    case Architecture::kQwen35:
    case Architecture::kQwen35Moe:
      read_hybrid(fields, attention_bias, model);
      break;
    case Architecture::kGptOss:
      read_gpt_oss(fields, model);
      break;
    case Architecture::kBert:
    case Architecture::kRoberta:
    case Architecture::kXlmRoberta:
      break;  // config_encoder.h
  }
  if (family.architecture == Architecture::kGranite) {
    read_granite(fields, model);
  }
}

DType read_dtype(JsonFields& fields) {
  const std::string key = fields.find("dtype") != nullptr ? "dtype" : "torch_dtype";
  std::string name = fields.text(key);
  if (name.starts_with("torch.")) {
    name = name.substr(std::string_view("torch.").size());
  }
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBf16}) {
    if (name == dtype_name(dtype)) {
      return dtype;
    }
  }
  if (!name.empty()) {
    fields.reject(key, "it must be \"float32\", \"float16\" or \"bfloat16\"");
  }
  return DType::kF32;  // What transformers takes an absent key to mean.
}

/// One id or a list of them. -1 means none, as in some older files.
std::vector<TokenId> read_tokens(JsonFields& fields, std::string_view key, std::int64_t vocab) {
  const Json* value = fields.find(key);
  std::vector<TokenId> tokens;
  if (value == nullptr) {
    return tokens;
  }
  const Json::Array single = {*value};
  const auto* list = value->as<Json::Array>();
  for (const Json& item : list != nullptr ? *list : single) {
    const auto* id = item.as<std::int64_t>();
    if (id == nullptr || *id < -1 || *id >= vocab) {
      fields.reject_as(
          key,
          describe(item),
          fmt::format("token ids are integers from 0 to vocab_size - 1 = {}", vocab - 1));
      return {};
    }
    const auto token = static_cast<TokenId>(*id);
    if (token >= 0 && std::find(tokens.begin(), tokens.end(), token) == tokens.end()) {
      tokens.push_back(token);
    }
  }
  return tokens;
}

void read_special_tokens(JsonFields& fields, const Family& family, ModelSpec& model) {
  const std::vector<TokenId> bos = read_tokens(fields, "bos_token_id", model.vocab);
  model.bos = bos.empty() ? -1 : bos.front();
  model.eos = read_tokens(fields, "eos_token_id", model.vocab);
  if (!fields.has("bos_token_id") && family.bos < model.vocab) {
    model.bos = family.bos;
  }
  if (!fields.has("eos_token_id") && family.eos >= 0 && family.eos < model.vocab) {
    model.eos = {family.eos};
  }
}

void read_decoder(JsonFields& fields,
                  std::string_view where,
                  const Family& family,
                  ModelSpec& model) {
  reject_unsupported(fields, family);
  read_dimensions(fields, family, model);
  if (fields.ok()) {  // The rest relies on the dimensions.
    read_switches(fields, family, model);
    read_rope(fields, where, family, model);
    read_windows(fields, family, model);
  }
}

/// The model that the fields describe; `where` begins messages.
Result<ModelSpec> read_model(JsonFields& fields, std::string_view where) {
  const Family* family = fields.ok() ? read_family(fields) : nullptr;
  if (family == nullptr) {
    return fields.status().error();
  }
  ModelSpec model;
  model.architecture = family->architecture;
  if (encodes(family->architecture)) {
    read_encoder(fields, *family, is_scorer(fields), model);
  } else {
    read_decoder(fields, where, *family, model);
  }
  if (fields.ok()) {
    model.stored_dtype = read_dtype(fields);
    read_special_tokens(fields, *family, model);
  }
  if (!fields.ok()) {
    return fields.status().error();
  }
  return model;
}

/// What stands outside the `text_config` of a model for text and images, and not within.
void read_outside(JsonFields& fields, const JsonFields& inner, ModelSpec& model) {
  if (!inner.has("dtype") && !inner.has("torch_dtype")) {
    model.stored_dtype = read_dtype(fields);
  }
  if (fields.has("eos_token_id")) {
    model.eos = read_tokens(fields, "eos_token_id", model.vocab);
  }
  if (fields.find("tie_word_embeddings") != nullptr && !inner.has("tie_word_embeddings")) {
    model.tied_embeddings = fields.boolean("tie_word_embeddings", true);
  }
}

}  // namespace

std::string_view architecture_name(Architecture architecture) {
  return family_of(architecture).name;
}

Result<ModelSpec> parse_model_config(std::string_view text, std::string_view file) {
  const Result<Json> json = parse_json(text, file);
  if (!json) {
    return json.error();
  }
  const std::string where = fmt::format("{}: ", file);
  JsonFields fields(*json, where);
  if (!fields.ok() || !has_text_config(fields)) {
    return read_model(fields, where);
  }
  const Json* decoder = fields.find("text_config");
  if (decoder == nullptr) {
    fields.reject("text_config", "it must be an object that describes the decoder");
    return fields.status().error();
  }
  const std::string within = where + "text_config.";
  JsonFields inner(*decoder, within);
  Result<ModelSpec> model = read_model(inner, within);
  if (model) {
    read_outside(fields, inner, *model);
  }
  return fields.ok() ? std::move(model) : fields.status().error();
}

Result<GenerationDefaults> parse_generation_config(std::string_view text,
                                                   std::string_view file,
                                                   std::int64_t vocab) {
  const Result<Json> json = parse_json(text, file);
  if (!json) {
    return json.error();
  }
  JsonFields fields(*json, fmt::format("{}: ", file));
  GenerationDefaults defaults;
  if (fields.find("do_sample") != nullptr) {
    defaults.do_sample = fields.boolean("do_sample", false);
  }
  for (const SamplingNumber& number : kSamplingNumbers) {
    if (number.suggested && fields.find(number.name) != nullptr) {
      defaults.numbers[number.field] = fields.number(number.name, {number.least, number.most});
    }
  }
  if (fields.find("top_k") != nullptr) {
    const auto top_k = fields.integer("top_k", {-1, std::numeric_limits<std::int32_t>::max()});
    defaults.top_k = static_cast<std::int32_t>(std::max<std::int64_t>(top_k, 0));
  }
  if (fields.find("max_new_tokens") != nullptr) {
    defaults.max_new_tokens = fields.integer("max_new_tokens", {1, kPositionMax});
  }
  defaults.eos = read_tokens(fields, "eos_token_id", vocab);
  if (!fields.ok()) {
    return fields.status().error();
  }
  return defaults;
}

}  // namespace heddle::spec
