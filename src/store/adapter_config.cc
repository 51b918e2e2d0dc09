#include "store/adapter_config.h"

#include <array>
#include <cmath>
#include <string_view>

#include "base/file.h"
#include "spec/json.h"
#include "spec/json_fields.h"

namespace heddle::store {
namespace {

constexpr std::string_view kAdapterConfigFile = "adapter_config.json";
constexpr std::uint64_t kAdapterConfigBytesMax = 1U << 20U;
constexpr double kAlphaMax = 1e6;

/// Whether a field says nothing: it is absent, null, false, an empty list, an empty object.
bool is_empty(const spec::Json* json) {
  if (json == nullptr || json->is_null()) {
    return true;
  }
  if (const bool* flag = json->as<bool>()) {
    return !*flag;
  }
  if (const auto* list = json->as<spec::Json::Array>()) {
    return list->empty();
  }
  const auto* object = json->as<spec::Json::Object>();
  return object != nullptr && object->empty();
}

std::string texts_of(const spec::Json& json) {
  std::string texts;
  if (const auto* list = json.as<spec::Json::Array>()) {
    for (const spec::Json& one : *list) {
      texts += (texts.empty() ? "" : ", ") + spec::describe(one);
    }
  }
  return texts.empty() ? spec::describe(json) : texts;
}

/// What is not built in, and would make the adapter another one if it were ignored.
Result<void> check_supported(const spec::Json& config, const std::string& where) {
  constexpr auto kRefused = std::to_array<std::string_view>({"use_dora",
                                                             "modules_to_save",
                                                             "lora_bias",
                                                             "fan_in_fan_out",
                                                             "rank_pattern",
                                                             "alpha_pattern",
                                                             "layer_replication",
                                                             "trainable_token_indices",
                                                             "target_parameters",
                                                             "alora_invocation_tokens",
                                                             "use_qalora"});
  for (const std::string_view key : kRefused) {
    if (const spec::Json* said = config.find(key); !is_empty(said)) {
      return Error{Code::kInvalidArgument,
                   where + std::string(key) + " is " + texts_of(*said) +
                       ", which is not built in: adapters add B (A x) to products of layers, and "
                       "change nothing else"};
    }
  }
  const spec::Json* bias = config.find("bias");
  if (bias != nullptr && !bias->is_null() &&
      (bias->as<std::string>() == nullptr || *bias->as<std::string>() != "none")) {
    return Error{Code::kInvalidArgument,
                 where + "bias is " + spec::describe(*bias) + "; only \"none\" is built in"};
  }
  return {};
}

/// Names of modules. "all-linear", and a regular expression, are whatever has tensors.
std::vector<std::string> targets_of(const spec::Json& config) {
  std::vector<std::string> targets;
  const spec::Json* said = config.find("target_modules");
  const auto* list = said == nullptr ? nullptr : said->as<spec::Json::Array>();
  for (const spec::Json& one : list == nullptr ? spec::Json::Array() : *list) {
    if (const auto* name = one.as<std::string>()) {
      targets.push_back(*name);
    }
  }
  return targets;
}

}  // namespace

bool is_adapter(const std::filesystem::path& directory) {
  return is_there(directory / kAdapterConfigFile);
}

Result<AdapterConfig> read_adapter_config(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kAdapterConfigFile;
  const std::string where = path.string() + ": ";
  const Result<std::string> text = read_text(path, kAdapterConfigBytesMax);
  if (!text) {
    return text.error();
  }
  const Result<spec::Json> json = spec::parse_json(*text, path.string());
  if (!json) {
    return json.error();
  }
  spec::JsonFields fields(*json, where);
  const std::string kind = fields.text("peft_type");
  if (kind != "LORA") {
    return Error{Code::kInvalidArgument,
                 where + "peft_type is \"" + kind + "\"; only \"LORA\" is built in"};
  }
  if (const Result<void> supported = check_supported(*json, where); !supported) {
    return supported.error();
  }
  AdapterConfig config{.rank = fields.integer("r", {.least = 1, .most = kAdapterRankMax}),
                       .base = fields.text("base_model_name_or_path"),
                       .targets = targets_of(*json)};
  const double alpha = fields.number("lora_alpha", {.least = -kAlphaMax, .most = kAlphaMax}, 8.0);
  const bool stable = fields.boolean("use_rslora", false);
  if (!fields.ok()) {
    return fields.status().error();
  }
  const auto rank = static_cast<double>(config.rank);
  config.scale = alpha / (stable ? std::sqrt(rank) : rank);
  return config;
}

}  // namespace heddle::store
