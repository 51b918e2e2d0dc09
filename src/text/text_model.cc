#include "text/text_model.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

#include <nlohmann/json.hpp>

#include "text/gemma4.h"
#include "text/harmony.h"

namespace heddle::text {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kTokenizerFile = "tokenizer.json";
/// Names the file, and not where this machine has it: clients hear of it.
Error corrupt(std::string_view name, const std::string& what) {
  return Error{Code::kCorrupt, std::string(name.substr(name.rfind('/') + 1)) + ": " + what};
}

/// The object in a JSON file; an empty one when there is no file.
Result<Json> read_object(const ModelTexts& texts, std::string_view name) {
  const Result<std::string> text = texts.read(name);
  if (!text) {
    return text.error().code == Code::kNotFound ? Result<Json>(Json::object()) : text.error();
  }
  Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return corrupt(name, "is not a JSON object");
  }
  return json;
}

/// tokenizer_config.json, completed from special_tokens_map.json.
Result<Json> read_config(const ModelTexts& texts) {
  Result<Json> config = read_object(texts, "tokenizer_config.json");
  if (!config) {
    return config;
  }
  Result<Json> special = read_object(texts, "special_tokens_map.json");
  if (!special) {
    return special;
  }
  for (const auto& [name, token] : special->items()) {
    if (!config->contains(name)) {
      (*config)[name] = token;
    }
  }
  return config;
}

/// Text of a token given as a string or as an object with its flags.
std::optional<std::string> token_text(const Json& config, const char* name) {
  const auto found = config.find(name);
  if (found == config.end()) {
    return std::nullopt;
  }
  const Json& token =
      found->is_object() && found->contains("content") ? (*found)["content"] : *found;
  return token.is_string() ? std::optional(token.get<std::string>()) : std::nullopt;
}

/// The names of special tokens that every template sees.
std::string template_defaults(const Json& config) {
  Json defaults = Json::object();
  for (const char* name : {"bos_token",
                           "eos_token",
                           "unk_token",
                           "sep_token",
                           "pad_token",
                           "cls_token",
                           "mask_token"}) {
    if (std::optional<std::string> text = token_text(config, name)) {
      defaults[name] = *std::move(text);
    }
  }
  return defaults.dump();
}

using Sources = std::map<std::string, std::string, std::less<>>;

/// `value` of `file`: a template, or a list of named ones.
Result<Sources> listed_templates(std::string_view file, const Json& value) {
  Sources sources;
  if (value.is_string()) {
    sources["default"] = value.get<std::string>();
    return sources;
  }
  if (value.is_null()) {
    return sources;
  }
  for (const Json& entry : value) {
    const bool named = entry.is_object() && entry.contains("name") && entry["name"].is_string() &&
                       entry.contains("template") && entry["template"].is_string();
    if (!named) {
      return corrupt(file,
                     "chat_template should be a string or a list of objects with \"name\" and "
                     "\"template\"");
    }
    sources[entry["name"].get<std::string>()] = entry["template"].get<std::string>();
  }
  return sources;
}

/// Adds the template in a file, if there is one.
Result<void> add_template_file(const ModelTexts& texts,
                               const std::string& file,
                               const std::string& name,
                               Sources& sources) {
  Result<std::string> text = texts.read(file);
  if (text) {
    sources[name] = *std::move(text);
    return {};
  }
  return text.error().code == Code::kNotFound ? Result<void>() : text.error();
}

/// chat_template.jinja and additional_chat_templates/NAME.jinja.
Result<Sources> template_files(const ModelTexts& texts) {
  constexpr std::string_view kEnd = ".jinja";
  const std::string folder = "additional_chat_templates";
  Sources sources;
  Result<void> added = add_template_file(texts, "chat_template.jinja", "default", sources);
  for (const std::string& file : texts.names_in(folder, kEnd)) {
    if (added) {
      const std::string name = file.substr(0, file.size() - kEnd.size());
      added = add_template_file(texts, folder + "/" + file, name, sources);
    }
  }
  return added ? Result<Sources>(std::move(sources)) : added.error();
}

/// All templates of the directory, from the first place that has any.
Result<Sources> read_templates(const ModelTexts& texts, const Json& config) {
  Result<Sources> files = template_files(texts);
  if (!files || !files->empty()) {
    return files;
  }
  constexpr std::string_view kFile = "chat_template.json";
  const Result<Json> json = read_object(texts, kFile);
  if (!json) {
    return json.error();
  }
  if (json->contains("chat_template")) {
    return listed_templates(kFile, (*json)["chat_template"]);
  }
  const auto in_config = config.find("chat_template");
  return in_config == config.end() ? Result<Sources>(Sources{})
                                   : listed_templates("tokenizer_config.json", *in_config);
}

/// `eos_token_id` of one file: a number or a list of them; none when the file does not say.
Result<std::vector<TokenId>> eos_ids(const ModelTexts& texts,
                                     std::string_view file,
                                     TokenId id_limit) {
  const Result<Json> json = read_object(texts, file);
  if (!json) {
    return json.error();
  }
  std::vector<TokenId> ids;
  const auto found = json->find("eos_token_id");
  if (found == json->end() || found->is_null()) {
    return ids;
  }
  for (const Json& id : found->is_array() ? *found : Json::array({*found})) {
    if (!id.is_number_unsigned() ||
        id.get<std::uint64_t>() >= static_cast<std::uint64_t>(id_limit)) {
      return corrupt(file,
                     "eos_token_id " + id.dump() + " is not a token id; those are 0 to " +
                         std::to_string(id_limit - 1));
    }
    ids.push_back(id.get<TokenId>());
  }
  return ids;
}

/// The tokens that end an answer: what the configuration lists, and the tokenizer's eos_token.
Result<std::vector<TokenId>> read_eos(const ModelTexts& texts,
                                      const Json& config,
                                      const Tokenizer& tokenizer) {
  Result<std::vector<TokenId>> listed =
      eos_ids(texts, "generation_config.json", tokenizer.vocab_size());
  if (listed && listed->empty()) {
    listed = eos_ids(texts, "config.json", tokenizer.vocab_size());
  }
  if (!listed) {
    return listed;
  }
  std::vector<TokenId> ids = *std::move(listed);
  if (const std::optional<std::string> token = token_text(config, "eos_token")) {
    if (const std::optional<TokenId> id = tokenizer.token_to_id(*token)) {
      ids.push_back(*id);
    }
  }
  std::ranges::sort(ids);
  const auto repeated = std::ranges::unique(ids);
  ids.erase(repeated.begin(), repeated.end());
  return ids;
}

/// Tokens that end an answer of a format.
std::span<const std::string_view> ends_of(ToolFormat format) {
  return format == ToolFormat::kHarmony  ? std::span<const std::string_view>(kHarmonyEnds)
         : format == ToolFormat::kGemma4 ? std::span<const std::string_view>(kGemma4Ends)
                                         : std::span<const std::string_view>();
}

}  // namespace

Result<std::shared_ptr<const TextModel>> TextModel::open(const std::filesystem::path& model,
                                                         const Begins& begins) {
  const Result<ModelTexts> texts = ModelTexts::open(model);
  return texts ? open(*texts, begins) : texts.error();
}

Result<std::shared_ptr<const TextModel>> TextModel::open(const ModelTexts& texts,
                                                         const Begins& begins) {
  const auto begin = [&begins](std::string_view what) {
    if (begins) {
      begins(what);
    }
  };
  begin(kTokenizerFile);
  const Result<std::string> tokenizer_json = texts.read(kTokenizerFile);
  if (!tokenizer_json) {
    if (tokenizer_json.error().code != Code::kNotFound) {
      return tokenizer_json.error();
    }
    return Error{Code::kNotFound,
                 "tokenizer.json: no such file; a model directory needs one (models "
                 "with only tokenizer.model must be converted)"};
  }
  const Result<Json> config = read_config(texts);
  if (!config) {
    return config.error();
  }
  Result<std::shared_ptr<const Tokenizer>> tokenizer =
      Tokenizer::open(*tokenizer_json, config->dump());
  if (!tokenizer) {
    const std::string& what = tokenizer.error().message;
    return what.starts_with("tokenizer") ? Error{Code::kCorrupt, what}
                                         : corrupt(kTokenizerFile, what);
  }
  std::shared_ptr<TextModel> model(new TextModel);  // Not make_shared: the constructor is private.
  model->tokenizer_ = std::move(*tokenizer);

  begin("chat templates");
  const Result<Sources> sources = read_templates(texts, *config);
  if (!sources) {
    return sources.error();
  }
  const std::string defaults = template_defaults(*config);
  for (const auto& [name, source] : *sources) {
    Result<std::shared_ptr<const ChatTemplate>> compiled = ChatTemplate::compile(source, defaults);
    if (!compiled) {
      return Error{Code::kCorrupt, "chat template \"" + name + "\": " + compiled.error().message};
    }
    model->templates_[name] = std::move(*compiled);
    if (model->tool_format_ == ToolFormat::kNone) {
      model->tool_format_ = tool_format_of(source);
    }
    if (model->reasoning_format_ == ReasoningFormat::kNone) {
      model->reasoning_format_ = reasoning_format_of(source);
    }
    model->describes_tools_ = model->describes_tools_ || text::describes_tools(source);
  }
  if (const std::optional<std::string> bos = token_text(*config, "bos_token")) {
    model->bos_ = model->tokenizer_->token_to_id(*bos);
  }
  Result<std::vector<TokenId>> eos = read_eos(texts, *config, *model->tokenizer_);
  if (!eos) {
    return eos.error();
  }
  model->eos_ = std::move(*eos);
  for (const std::string_view end : ends_of(model->tool_format_)) {
    const std::optional<TokenId> id = model->tokenizer_->token_to_id(end);
    if (id && !std::ranges::binary_search(model->eos_, *id)) {
      model->eos_.insert(std::ranges::lower_bound(model->eos_, *id), *id);
    }
  }
  return std::shared_ptr<const TextModel>(std::move(model));
}

const ChatTemplate* TextModel::chat_template(std::string_view name) const {
  const auto found = templates_.find(name);
  return found == templates_.end() ? nullptr : found->second.get();
}

const ChatTemplate* TextModel::chat_template_for(const Chat& chat) const {
  if (templates_.size() == 1) {
    return templates_.begin()->second.get();
  }
  const ChatTemplate* tool_use = chat.tools.empty() ? nullptr : chat_template("tool_use");
  return tool_use != nullptr ? tool_use : chat_template();
}

Result<std::string> TextModel::render(const Chat& chat) const {
  const ChatTemplate* chosen = chat_template_for(chat);
  if (chosen == nullptr) {
    return Error{Code::kFailedPrecondition,
                 "this model has no chat template; send a plain prompt instead of messages"};
  }
  return chosen->render(chat);
}

}  // namespace heddle::text
