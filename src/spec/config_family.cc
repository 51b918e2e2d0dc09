#include "spec/config_family.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "spec/json.h"

namespace heddle::spec {
namespace {

constexpr std::int64_t k128Ki = 131072;

constexpr std::array kFamilies = {
    Family{.architecture = Architecture::kLlama,
           .name = "LlamaForCausalLM",
           .model_type = "llama",
           .max_position = 2048,
           .bos = 1,
           .eos = 2},
    Family{.architecture = Architecture::kMistral,
           .name = "MistralForCausalLM",
           .model_type = "mistral",
           .kv_heads = 8,
           .max_position = k128Ki,
           .bos = 1,
           .eos = 2},
    Family{.architecture = Architecture::kQwen2,
           .name = "Qwen2ForCausalLM",
           .model_type = "qwen2",
           .kv_heads = 32,
           .max_position = 32768},
    Family{.architecture = Architecture::kQwen3,
           .name = "Qwen3ForCausalLM",
           .model_type = "qwen3",
           .kv_heads = 32,
           .head_dim = 128,
           .max_position = 32768},
    Family{.architecture = Architecture::kMixtral,
           .name = "MixtralForCausalLM",
           .model_type = "mixtral",
           .kv_heads = 8,
           .max_position = k128Ki,
           .bos = 1,
           .eos = 2},
    Family{.architecture = Architecture::kQwen2Moe,
           .name = "Qwen2MoeForCausalLM",
           .model_type = "qwen2_moe",
           .kv_heads = 16,
           .max_position = 32768},
    Family{.architecture = Architecture::kQwen3Moe,
           .name = "Qwen3MoeForCausalLM",
           .model_type = "qwen3_moe",
           .kv_heads = 4,
           .max_position = 32768},
    Family{.architecture = Architecture::kGemma2,
           .name = "Gemma2ForCausalLM",
           .model_type = "gemma2",
           .heads = 8,
           .kv_heads = 4,
           .head_dim = 256,
           .vocab = 256000,
           .max_position = 8192,
           .bos = 2,
           .eos = 1,
           .tied = true},
    Family{.architecture = Architecture::kGemma3,
           .name = "Gemma3ForCausalLM",
           .model_type = "gemma3_text",
           .heads = 8,
           .kv_heads = 4,
           .head_dim = 256,
           .vocab = 262208,
           .max_position = k128Ki,
           .bos = 2,
           .eos = 1,
           .tied = true,
           .rope_theta = 1e6},
    Family{.architecture = Architecture::kGemma4,
           .name = "Gemma4ForCausalLM",
           .model_type = "gemma4_text",
           .heads = 8,
           .kv_heads = 4,
           .head_dim = 256,
           .vocab = 262144,
           .max_position = k128Ki,
           .bos = 2,
           .eos = 1,
           .tied = true,
           .rope_theta = 1e6},
    Family{.architecture = Architecture::kGranite,
           .name = "GraniteForCausalLM",
           .model_type = "granite",
           .max_position = 2048,
           .bos = 1,
           .eos = 2},
    Family{.architecture = Architecture::kOlmo2,
           .name = "Olmo2ForCausalLM",
           .model_type = "olmo2",
           .max_position = 2048,
           .eos = 50279,
           .rms_eps = 1e-5},
    Family{.architecture = Architecture::kSmolLm3,
           .name = "SmolLM3ForCausalLM",
           .model_type = "smollm3",
           .kv_heads = 4,
           .max_position = 32768,
           .bos = 128000,
           .eos = 128001,
           .tied = true,
           .rope_theta = 2e6},
    Family{.architecture = Architecture::kPhi3,
           .name = "Phi3ForCausalLM",
           .model_type = "phi3",
           .max_position = 4096,
           .bos = 1,
           .eos = 32000,
           .rms_eps = 1e-5},
    Family{.architecture = Architecture::kQwen3Next,
           .name = "Qwen3NextForCausalLM",
           .model_type = "qwen3_next",
           .heads = 16,
           .kv_heads = 2,
           .head_dim = 256,
           .vocab = 151936,
           .max_position = 32768},
    Family{.architecture = Architecture::kQwen35,
           .name = "Qwen3_5ForCausalLM",
           .model_type = "qwen3_5_text",
           .heads = 16,
           .kv_heads = 4,
           .head_dim = 256,
           .vocab = 248320,
           .max_position = 32768},
    Family{.architecture = Architecture::kQwen35Moe,
           .name = "Qwen3_5MoeForCausalLM",
           .model_type = "qwen3_5_moe_text",
           .heads = 16,
           .kv_heads = 2,
           .head_dim = 256,
           .vocab = 248320,
           .max_position = 32768},
    Family{.architecture = Architecture::kGptOss,
           .name = "GptOssForCausalLM",
           .model_type = "gpt_oss",
           .heads = 64,
           .kv_heads = 8,
           .head_dim = 64,
           .vocab = 201088,
           .max_position = k128Ki,
           .rope_theta = 150000.0,
           .rms_eps = 1e-5},
    Family{.architecture = Architecture::kBert,
           .name = "BertModel",
           .model_type = "bert",
           .heads = 12,
           .vocab = 30522,
           .max_position = 512},
    Family{.architecture = Architecture::kRoberta,
           .name = "RobertaModel",
           .model_type = "roberta",
           .heads = 12,
           .vocab = 50265,
           .max_position = 512},
    Family{.architecture = Architecture::kXlmRoberta,
           .name = "XLMRobertaModel",
           .model_type = "xlm-roberta",
           .heads = 12,
           .vocab = 30522,
           .max_position = 512},
};

/// An encoder with a head that scores.
struct Scorer {
  std::string_view name{};
  Architecture architecture{};
};
constexpr std::array kScorers = {
    Scorer{.name = "BertForSequenceClassification", .architecture = Architecture::kBert},
    Scorer{.name = "RobertaForSequenceClassification", .architecture = Architecture::kRoberta},
    Scorer{.name = "XLMRobertaForSequenceClassification",
           .architecture = Architecture::kXlmRoberta},
};

/// A model for text and images, of which the decoder alone is run.
struct WithImages {
  std::string_view name{};
  std::string_view model_type{};
};
constexpr std::array kWithImages = {
    WithImages{.name = "Gemma3ForConditionalGeneration", .model_type = "gemma3"},
    WithImages{.name = "Gemma4ForConditionalGeneration", .model_type = "gemma4"},
    WithImages{.name = "Qwen3_5ForConditionalGeneration", .model_type = "qwen3_5"},
    WithImages{.name = "Qwen3_5MoeForConditionalGeneration", .model_type = "qwen3_5_moe"},
};

std::string family_names() {
  std::vector<std::string_view> names;
  names.reserve(kFamilies.size());
  for (const Family& family : kFamilies) {
    names.push_back(family.name);
  }
  std::vector<std::string_view> with_images;
  for (const WithImages& model : kWithImages) {
    with_images.push_back(model.name);
  }
  for (const Scorer& scorer : kScorers) {
    names.push_back(scorer.name);
  }
  return fmt::format(
      "{}, and the text of {}", fmt::join(names, ", "), fmt::join(with_images, ", "));
}

/// The only name in `architectures`; empty where there is none, or not one.
std::string named_architecture(JsonFields& fields) {
  const Json* list = fields.find("architectures");
  const auto* names = list != nullptr ? list->as<Json::Array>() : nullptr;
  const std::string* name =
      names != nullptr && names->size() == 1 ? names->front().as<std::string>() : nullptr;
  return name != nullptr ? *name : "";
}

const Scorer* find_scorer(std::string_view name) {
  const auto* found = std::ranges::find(kScorers, name, &Scorer::name);
  return found == kScorers.end() ? nullptr : found;
}

template <class Field>
const Family* find_family(Field Family::* field, const Field& value) {
  const auto* found = std::ranges::find(kFamilies, value, field);
  return found == kFamilies.end() ? nullptr : found;
}

}  // namespace

const Family& family_of(Architecture architecture) {
  const auto* found = std::ranges::find(kFamilies, architecture, &Family::architecture);
  HEDDLE_CHECK(found != kFamilies.end());
  return *found;
}

const Family* read_family(JsonFields& fields) {
  const std::string unknown = fmt::format("built in are {}; {}", family_names(), kElsewhere);
  const std::string model_type = fields.text("model_type");
  if (fields.find("architectures") == nullptr) {
    if (const Family* family = find_family(&Family::model_type, std::string_view(model_type))) {
      return family;
    }
    fields.reject(model_type.empty() ? "architectures" : "model_type", unknown);
    return nullptr;
  }
  const std::string name = named_architecture(fields);
  if (name.empty()) {
    fields.reject("architectures", "it must be an array of one name; " + unknown);
    return nullptr;
  }
  const Scorer* scorer = find_scorer(name);
  const Family* family = scorer != nullptr
                             ? find_family(&Family::architecture, scorer->architecture)
                             : find_family(&Family::name, std::string_view(name));
  if (family == nullptr) {
    fields.reject_as("architectures", fmt::format("[\"{}\"]", name), unknown);
    return nullptr;
  }
  if (!model_type.empty() && model_type != family->model_type) {
    fields.reject(
        "model_type",
        fmt::format("with architectures [\"{}\"] it must be \"{}\"", name, family->model_type));
    return nullptr;
  }
  return family;
}

bool is_scorer(JsonFields& fields) {
  return find_scorer(named_architecture(fields)) != nullptr;
}

bool has_text_config(JsonFields& fields) {
  const std::string name = named_architecture(fields);
  const std::string type = name.empty() ? fields.text("model_type") : "";
  return std::ranges::any_of(kWithImages, [&](const WithImages& model) {
    return name.empty() ? model.model_type == type : model.name == name;
  });
}

}  // namespace heddle::spec
