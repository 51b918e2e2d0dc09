#include "gateway/sentence_files.h"

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "spec/json.h"
#include "spec/json_view.h"

namespace heddle::gateway {

namespace {

constexpr std::string_view kModulesFile = "modules.json";
constexpr std::string_view kPoolingFile = "1_Pooling/config.json";
constexpr std::string_view kSentenceFile = "sentence_bert_config.json";

struct PoolingMode {
  std::string_view name{};  ///< In `pooling_mode`, and in the name of its switch.
  spec::Pooling pooling{};
};
constexpr std::array kModes = {PoolingMode{.name = "cls", .pooling = spec::Pooling::kFirst},
                               PoolingMode{.name = "mean", .pooling = spec::Pooling::kMean},
                               PoolingMode{.name = "lasttoken", .pooling = spec::Pooling::kLast}};
constexpr std::string_view kSwitch = "pooling_mode_";

/// nullopt where there is no such file.
Result<std::optional<spec::Json>> read_json(const text::ModelTexts& texts, std::string_view name) {
  const Result<std::string> text = texts.read(name);
  if (!text) {
    return text.error().code == Code::kNotFound ? Result<std::optional<spec::Json>>(std::nullopt)
                                                : text.error();
  }
  Result<spec::Json> json = spec::parse_json(*text, std::string(name));
  if (!json) {
    return json.error();
  }
  return std::optional(std::move(json).value());
}

Error other_pooling(const std::string& what) {
  return {.code = Code::kCorrupt,
          .message = std::string(kPoolingFile) + ": " + what +
                     "; built in are cls, mean and lasttoken, one of them"};
}

/// By the mode that is named, or by the one switch that is on.
Result<spec::Pooling> pooling_of(const spec::Json& json) {
  std::vector<std::string> on;
  if (const auto* named = spec::value_at<std::string>(json, {"pooling_mode"})) {
    on.push_back(*named);
  } else if (const auto* object = json.as<spec::Json::Object>()) {
    for (const auto& [key, value] : *object) {
      const bool* flag = value.as<bool>();
      if (key.starts_with(kSwitch) && flag != nullptr && *flag) {
        std::string mode = key.substr(kSwitch.size());
        if (const std::size_t end = mode.find("_token"); end != std::string::npos) {
          mode.resize(end);
        }
        on.push_back(std::move(mode));
      }
    }
  }
  if (on.size() != 1) {
    return other_pooling("names " + std::to_string(on.size()) + " ways of pooling");
  }
  for (const PoolingMode& mode : kModes) {
    if (mode.name == on.front()) {
      return mode.pooling;
    }
  }
  return other_pooling("pools by \"" + on.front() + "\"");
}

/// Whether the list of modules has one that normalises; an error where it has others than those
/// that are built in.
Result<bool> normalises(const spec::Json& json) {
  const auto* modules = json.as<spec::Json::Array>();
  bool found = false;
  for (const spec::Json& module : modules == nullptr ? spec::Json::Array{} : *modules) {
    const auto* type = spec::value_at<std::string>(module, {"type"});
    const std::string whole = type == nullptr ? "" : *type;
    const std::string name = whole.substr(whole.rfind('.') + 1);
    found = found || name == "Normalize";
    if (name != "Transformer" && name != "Pooling" && name != "Normalize") {
      return Error{.code = Code::kCorrupt,
                   .message = std::string(kModulesFile) + ": has a module \"" + name +
                              "\"; built in are Transformer, Pooling and Normalize"};
    }
  }
  return found;
}

}  // namespace

Result<SentenceFiles> read_sentence_files(const text::ModelTexts& texts) {
  SentenceFiles files;
  const auto modules = read_json(texts, kModulesFile);
  const auto pooling = modules ? read_json(texts, kPoolingFile) : modules;
  const auto sentence = pooling ? read_json(texts, kSentenceFile) : pooling;
  if (!sentence) {
    return sentence.error();
  }
  if (modules->has_value()) {
    const Result<bool> normalised = normalises(**modules);
    if (!normalised) {
      return normalised.error();
    }
    files.normalised = *normalised;
  }
  if (pooling->has_value()) {
    const Result<spec::Pooling> mode = pooling_of(**pooling);
    if (!mode) {
      return mode.error();
    }
    files.pooling = *mode;
  }
  if (sentence->has_value()) {
    const auto* most = spec::value_at<std::int64_t>(**sentence, {"max_seq_length"});
    files.most_tokens = most != nullptr && *most > 0 ? *most : 0;
  }
  return files;
}

}  // namespace heddle::gateway
