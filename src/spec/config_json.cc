#include "spec/config_json.h"

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <limits>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "spec/json.h"
#include "spec/json_fields.h"

namespace heddle::spec {
namespace {

// Far above any model, and small enough that no product of dimensions overflows: 2^59 bytes.
constexpr std::int64_t kHiddenMax = 1 << 20;
constexpr std::int64_t kIntermediateMax = 1 << 22;
constexpr std::int64_t kLayersMax = 1 << 10;
constexpr std::int64_t kHeadsMax = 1 << 12;
constexpr std::int64_t kHeadDimMax = 1 << 12;
constexpr std::int64_t kVocabMax = 1 << 24;
constexpr std::int64_t kExpertsMax = 1 << 10;
constexpr std::int64_t kPositionMax = 1 << 30;
constexpr NumberRange kFactorRange{1.0, 1e6};

constexpr std::string_view kElsewhere =
    "another engine can serve this model: configure it with `cmd:`";

/// How the families differ where config.json is silent, and in what it cannot say.
struct Family {
  Architecture architecture;
  std::string_view name;        ///< In `architectures`.
  std::string_view model_type;  ///< In `model_type`.
  std::int64_t kv_heads;        ///< 0: as many as heads.
  std::int64_t head_dim;        ///< 0: hidden / heads.
  std::int64_t max_position;
  TokenId bos, eos;  ///< -1: none.
};

constexpr std::array kFamilies = {
    Family{Architecture::kLlama, "LlamaForCausalLM", "llama", 0, 0, 2048, 1, 2},
    Family{Architecture::kMistral, "MistralForCausalLM", "mistral", 8, 0, 131072, 1, 2},
    Family{Architecture::kQwen2, "Qwen2ForCausalLM", "qwen2", 32, 0, 32768, -1, -1},
    Family{Architecture::kQwen3, "Qwen3ForCausalLM", "qwen3", 32, 128, 32768, -1, -1},
    Family{Architecture::kMixtral, "MixtralForCausalLM", "mixtral", 8, 0, 131072, 1, 2},
    Family{Architecture::kQwen2Moe, "Qwen2MoeForCausalLM", "qwen2_moe", 16, 0, 32768, -1, -1},
    Family{Architecture::kQwen3Moe, "Qwen3MoeForCausalLM", "qwen3_moe", 4, 0, 32768, -1, -1},
};

std::string family_names() {
  std::vector<std::string_view> names;
  names.reserve(kFamilies.size());
  for (const Family& family : kFamilies) {
    names.push_back(family.name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

/// Decides by `architectures`, or by `model_type` where that is absent. Never fails without
/// rejecting a field.
const Family* read_family(JsonFields& fields) {
  const std::string unknown = fmt::format("built in are {}; {}", family_names(), kElsewhere);
  const std::string model_type = fields.text("model_type");
  const Json* list = fields.find("architectures");
  if (list == nullptr) {
    for (const Family& family : kFamilies) {
      if (family.model_type == model_type) {
        return &family;
      }
    }
    fields.reject(model_type.empty() ? "architectures" : "model_type", unknown);
    return nullptr;
  }
  const auto* names = list->as<Json::Array>();
  const std::string* name =
      names != nullptr && names->size() == 1 ? names->front().as<std::string>() : nullptr;
  if (name == nullptr) {
    fields.reject("architectures", "it must be an array of one name; " + unknown);
    return nullptr;
  }
  for (const Family& family : kFamilies) {
    if (family.name != *name) {
      continue;
    }
    if (!model_type.empty() && model_type != family.model_type) {
      fields.reject(
          "model_type",
          fmt::format(
              "with architectures [\"{}\"] it must be \"{}\"", family.name, family.model_type));
      return nullptr;
    }
    return &family;
  }
  fields.reject_as("architectures", fmt::format("[\"{}\"]", *name), unknown);
  return nullptr;
}

bool has_experts(Architecture architecture) {
  return architecture == Architecture::kMixtral || architecture == Architecture::kQwen2Moe ||
         architecture == Architecture::kQwen3Moe;
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

/// Experts, and the width of the MLP beside them. Qwen's `intermediate_size` is of layers without.
void read_experts(JsonFields& fields, const Family& family, ModelSpec& model) {
  Experts& experts = model.experts;
  if (family.architecture == Architecture::kMixtral) {
    experts.count = fields.integer("num_local_experts", {1, kExpertsMax}, 8);
    experts.active = fields.integer("num_experts_per_tok", {1, kExpertsMax}, 2);
    experts.intermediate = fields.integer("intermediate_size", {1, kIntermediateMax});
    experts.normalised = true;
    model.intermediate = 0;
  } else {
    const bool shares = family.architecture == Architecture::kQwen2Moe;
    require_sparse(fields);
    experts.count = fields.integer("num_experts", {1, kExpertsMax}, shares ? 60 : 128);
    experts.active = fields.integer("num_experts_per_tok", {1, kExpertsMax}, shares ? 4 : 8);
    experts.intermediate =
        fields.integer("moe_intermediate_size", {1, kIntermediateMax}, shares ? 1408 : 768);
    experts.normalised = fields.boolean("norm_topk_prob", false);
    model.intermediate =
        shares ? fields.integer("shared_expert_intermediate_size", {1, kIntermediateMax}, 5632) : 0;
  }
  if (fields.ok() && experts.count * experts.intermediate > kIntermediateMax) {
    fields.reject(
        family.architecture == Architecture::kMixtral ? "num_local_experts" : "num_experts",
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
        (count->as<std::int64_t>() == nullptr || *count->as<std::int64_t>() > 1)) {
      fields.reject(key, fmt::format("a {} has no experts here; {}", family.name, kElsewhere));
    }
  }
  const std::string activation = fields.text("hidden_act");
  if (!activation.empty() && activation != "silu" && activation != "swish") {
    fields.reject("hidden_act", fmt::format("only \"silu\" is built in; {}", kElsewhere));
  }
  if (fields.number("partial_rotary_factor", {0.0, 1.0}, 1.0) != 1.0) {
    fields.reject("partial_rotary_factor",
                  fmt::format("only 1, rotating whole heads, is built in; {}", kElsewhere));
  }
}

void read_dimensions(JsonFields& fields, const Family& family, ModelSpec& model) {
  model.hidden = fields.integer("hidden_size", {1, kHiddenMax});
  model.layers = fields.integer("num_hidden_layers", {1, kLayersMax});
  model.heads = fields.integer("num_attention_heads", {1, kHeadsMax});
  if (has_experts(family.architecture)) {
    read_experts(fields, family, model);
  } else {
    model.intermediate = fields.integer("intermediate_size", {1, kIntermediateMax});
  }
  model.vocab = fields.integer("vocab_size", {1, kVocabMax});
  model.max_position =
      fields.integer("max_position_embeddings", {1, kPositionMax}, family.max_position);
  model.rms_eps = fields.number("rms_norm_eps", {0.0, 1.0}, 1e-6);

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

void read_switches(JsonFields& fields, const Family& family, ModelSpec& model) {
  model.tied_embeddings = fields.boolean("tie_word_embeddings", false);
  const bool attention_bias = fields.boolean("attention_bias", false);
  switch (family.architecture) {
    case Architecture::kLlama:
      model.qkv_bias = model.out_bias = attention_bias;
      model.mlp_bias = fields.boolean("mlp_bias", false);
      break;
    case Architecture::kMistral:
    case Architecture::kMixtral:
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
  }
}

/// Which layers `layer_types` says are windowed; empty where the key is absent.
std::vector<bool> read_layer_types(JsonFields& fields, const ModelSpec& model) {
  const Json* value = fields.find("layer_types");
  if (value == nullptr) {
    return {};
  }
  const std::string right = fmt::format(
      "it must be an array of num_hidden_layers ({}) times \"full_attention\" or "
      "\"sliding_attention\"",
      model.layers);
  const auto* names = value->as<Json::Array>();
  if (names == nullptr || std::cmp_not_equal(names->size(), model.layers)) {
    fields.reject("layer_types", right);
    return {};
  }
  std::vector<bool> windowed;
  for (const Json& item : *names) {
    const auto* name = item.as<std::string>();
    const bool known =
        name != nullptr && (*name == "full_attention" || *name == "sliding_attention");
    if (!known) {
      fields.reject_as(fmt::format("layer_types[{}]", windowed.size()), describe(item), right);
      return {};
    }
    windowed.push_back(*name == "sliding_attention");
  }
  return windowed;
}

constexpr IntegerRange kWindowRange{1, std::numeric_limits<std::int32_t>::max()};

bool any_of(const std::vector<bool>& flags) {
  return std::find(flags.begin(), flags.end(), true) != flags.end();
}

/// A window that all layers share, if `used`; 0 for none. What an absent key means is `usual`, 0
/// for none.
std::int64_t read_common_window(JsonFields& fields,
                                const Family& family,
                                const std::vector<bool>& windowed,
                                bool used,
                                std::int64_t usual) {
  if (std::adjacent_find(windowed.begin(), windowed.end(), std::not_equal_to<>()) !=
      windowed.end()) {
    fields.reject("layer_types", fmt::format("all layers of {} are of one type", family.name));
  }
  const bool none = !used || fields.is_null("sliding_window") ||
                    (usual == 0 && fields.find("sliding_window") == nullptr);
  return none ? 0 : fields.integer("sliding_window", kWindowRange, usual);
}

/// The window of Qwen, 0 for none. Fills `windowed` where `layer_types` has left it empty.
std::int64_t read_qwen_window(JsonFields& fields,
                              const ModelSpec& model,
                              std::vector<bool>& windowed) {
  const bool used = fields.boolean("use_sliding_window", false);
  const bool none = !used || fields.is_null("sliding_window");
  const std::int64_t window = none ? 0 : fields.integer("sliding_window", kWindowRange, 4096);
  const std::int64_t first = fields.integer("max_window_layers", {0, kLayersMax}, 28);
  if (none && any_of(windowed)) {
    fields.reject(used ? "sliding_window" : "use_sliding_window",
                  "layer_types has \"sliding_attention\" layers, so there must be a window");
  }
  for (std::int64_t layer = std::ssize(windowed); layer < model.layers; ++layer) {
    windowed.push_back(layer >= first);
  }
  return window;
}

void read_windows(JsonFields& fields, const Family& family, ModelSpec& model) {
  const auto layers = static_cast<std::size_t>(model.layers);
  model.window.assign(layers, 0);
  std::vector<bool> windowed = read_layer_types(fields, model);
  std::int64_t window = 0;
  if (family.architecture == Architecture::kLlama) {
    if (any_of(windowed)) {
      fields.reject("layer_types", "LlamaForCausalLM has only \"full_attention\" layers");
    }
  } else if (family.architecture == Architecture::kMistral ||
             family.architecture == Architecture::kMixtral) {
    const std::int64_t usual = family.architecture == Architecture::kMistral ? 4096 : 0;
    window = read_common_window(fields, family, windowed, true, usual);
    windowed.assign(layers, true);
  } else if (family.architecture == Architecture::kQwen3Moe) {
    const bool used = fields.boolean("use_sliding_window", false);
    window = read_common_window(fields, family, windowed, used, 4096);
    windowed.assign(layers, true);
  } else {
    if (family.architecture == Architecture::kQwen2Moe && windowed.empty() &&
        fields.boolean("use_sliding_window", false)) {
      fields.reject("use_sliding_window",
                    "layer_types must say which layers of Qwen2MoeForCausalLM have a window");
    }
    window = read_qwen_window(fields, model, windowed);
  }
  // Positions end at max_position, so a window of that many tokens or more hides none of them.
  if (window == 0 || window >= model.max_position) {
    return;
  }
  for (std::size_t layer = 0; layer < layers && fields.ok(); ++layer) {
    model.window[layer] = windowed[layer] ? window : 0;
  }
}

/// Bounds a length stretched by `factor`, so that a product of two plausible numbers is too.
std::int64_t stretched(std::int64_t positions, double factor) {
  return static_cast<std::int64_t>(
      std::min(static_cast<double>(positions) * factor, static_cast<double>(kPositionMax)));
}

void read_yarn(JsonFields& rope, RopeScaling& scaling) {
  constexpr NumberRange kPositive{1e-6, 1e6};
  scaling.beta_fast = rope.number("beta_fast", kPositive, 32.0);
  scaling.beta_slow = rope.number("beta_slow", kPositive, 1.0);
  scaling.attention_factor = rope.number("attention_factor", kPositive, 0.0);
  scaling.mscale = rope.number("mscale", {0.0, 1e6}, 0.0);
  scaling.mscale_all_dim = rope.number("mscale_all_dim", {0.0, 1e6}, 0.0);
  scaling.truncate = rope.boolean("truncate", true);
}

void read_scaling(JsonFields& rope, std::int64_t original_outside, ModelSpec& model) {
  RopeScaling& scaling = model.rope;
  const std::string key = rope.find("rope_type") != nullptr ? "rope_type" : "type";
  const std::string kind = rope.text(key);
  if (kind.empty() || kind == "default") {
    return;
  }
  if (kind != "linear" && kind != "llama3" && kind != "yarn") {
    rope.reject(key,
                fmt::format("built in are \"default\", \"linear\", \"llama3\" and \"yarn\"; {}",
                            kElsewhere));
    return;
  }
  scaling.factor = rope.number("factor", kFactorRange);
  if (kind == "linear") {
    scaling.kind = RopeKind::kLinear;
    model.max_position = stretched(model.max_position, scaling.factor);
    return;
  }
  const std::int64_t inside =
      rope.integer("original_max_position_embeddings", {1, kPositionMax}, model.max_position);
  scaling.original_max_position = original_outside > 0 ? original_outside : inside;
  if (kind == "yarn") {
    scaling.kind = RopeKind::kYarn;
    read_yarn(rope, scaling);
    model.max_position =
        std::max(model.max_position, stretched(scaling.original_max_position, scaling.factor));
    return;
  }
  scaling.kind = RopeKind::kLlama3;
  scaling.low_freq_factor = rope.number("low_freq_factor", {1e-6, 1e6});
  scaling.high_freq_factor = rope.number("high_freq_factor", {1e-6, 1e6});
  if (rope.ok() && scaling.high_freq_factor <= scaling.low_freq_factor) {
    rope.reject(
        "high_freq_factor",
        fmt::format("it must be above low_freq_factor, which is {}", scaling.low_freq_factor));
  }
}

void read_rope(JsonFields& fields, std::string_view file, ModelSpec& model) {
  constexpr NumberRange kThetaRange{1.0 + 1e-6, 1e12};
  model.rope_theta = fields.number("rope_theta", kThetaRange, 10000.0);
  const std::int64_t original =
      fields.integer("original_max_position_embeddings", {1, kPositionMax}, 0);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json* value = fields.find(key);
    const auto* object = value != nullptr ? value->as<Json::Object>() : nullptr;
    if (value == nullptr || (object != nullptr && object->empty())) {
      continue;
    }
    JsonFields rope(*value, fmt::format("{}: {}.", file, key));
    for (const char* layer_type : {"full_attention", "sliding_attention"}) {
      if (rope.find(layer_type) != nullptr) {
        rope.reject(layer_type,
                    fmt::format("one rotary embedding for all layers is built in; {}", kElsewhere));
      }
    }
    if (rope.number("partial_rotary_factor", {0.0, 1.0}, 1.0) != 1.0) {
      rope.reject("partial_rotary_factor",
                  fmt::format("only 1, rotating whole heads, is built in; {}", kElsewhere));
    }
    model.rope_theta = rope.number("rope_theta", kThetaRange, model.rope_theta);
    read_scaling(rope, original, model);
    fields.adopt(rope);
    return;
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

}  // namespace

std::string_view architecture_name(Architecture architecture) {
  for (const Family& family : kFamilies) {
    if (family.architecture == architecture) {
      return family.name;
    }
  }
  return "?";
}

Result<ModelSpec> parse_model_config(std::string_view text, std::string_view file) {
  const Result<Json> json = parse_json(text, file);
  if (!json) {
    return json.error();
  }
  JsonFields fields(*json, fmt::format("{}: ", file));
  const Family* family = fields.ok() ? read_family(fields) : nullptr;
  if (family == nullptr) {
    return fields.status().error();
  }
  ModelSpec model;
  model.architecture = family->architecture;
  reject_unsupported(fields, *family);
  read_dimensions(fields, *family, model);
  if (fields.ok()) {  // The rest relies on the dimensions.
    read_switches(fields, *family, model);
    read_rope(fields, file, model);
    read_windows(fields, *family, model);
    model.stored_dtype = read_dtype(fields);
    read_special_tokens(fields, *family, model);
  }
  if (!fields.ok()) {
    return fields.status().error();
  }
  return model;
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
