#include "text/text_model.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <ios>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

namespace heddle::text {
namespace {

using Json = nlohmann::ordered_json;
using Path = std::filesystem::path;

/// The largest tokenizers are some 40 MB.
constexpr std::uintmax_t kFileBytesMax = std::uintmax_t{256} << 20U;

/// Names the file, and not where this machine has it: clients hear of it.
Error corrupt(const Path& path, const std::string& what) {
  return Error{Code::kCorrupt, path.filename().string() + ": " + what};
}

/// The text of a file; kNotFound when there is none.
Result<std::string> read_file(const Path& path) {
  std::error_code failure;
  const std::uintmax_t size = std::filesystem::file_size(path, failure);
  if (failure == std::errc::no_such_file_or_directory) {
    return Error{Code::kNotFound, path.filename().string() + ": no such file"};
  }
  if (failure) {
    return corrupt(path, "cannot be read: " + failure.message());
  }
  if (size > kFileBytesMax) {
    return corrupt(path,
                   "has " + std::to_string(size) + " bytes; at most " +
                       std::to_string(kFileBytesMax) + " are read");
  }
  std::string text(static_cast<std::size_t>(size), '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file) {
    return corrupt(path, "cannot be read");
  }
  return text;
}

/// The object in a JSON file; an empty one when there is no file.
Result<Json> read_object(const Path& path) {
  const Result<std::string> text = read_file(path);
  if (!text) {
    return text.error().code == Code::kNotFound ? Result<Json>(Json::object()) : text.error();
  }
  Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return corrupt(path, "is not a JSON object");
  }
  return json;
}

/// tokenizer_config.json, completed from special_tokens_map.json.
Result<Json> read_config(const Path& directory) {
  Result<Json> config = read_object(directory / "tokenizer_config.json");
  if (!config) {
    return config;
  }
  Result<Json> special = read_object(directory / "special_tokens_map.json");
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

/// `value` of `path`: a template, or a list of named ones.
Result<Sources> listed_templates(const Path& path, const Json& value) {
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
      return corrupt(path,
                     "chat_template should be a string or a list of objects with \"name\" and "
                     "\"template\"");
    }
    sources[entry["name"].get<std::string>()] = entry["template"].get<std::string>();
  }
  return sources;
}

/// Adds the template in a file, if there is one.
Result<void> add_template_file(const Path& path, const std::string& name, Sources& sources) {
  Result<std::string> text = read_file(path);
  if (text) {
    sources[name] = *std::move(text);
    return {};
  }
  return text.error().code == Code::kNotFound ? Result<void>() : text.error();
}

/// chat_template.jinja and additional_chat_templates/NAME.jinja.
Result<Sources> template_files(const Path& directory) {
  Sources sources;
  Result<void> added = add_template_file(directory / "chat_template.jinja", "default", sources);
  std::error_code none;  // A folder that is not there has no entries.
  for (const auto& entry :
       std::filesystem::directory_iterator(directory / "additional_chat_templates", none)) {
    if (added && entry.path().extension() == ".jinja") {
      added = add_template_file(entry.path(), entry.path().stem().string(), sources);
    }
  }
  return added ? Result<Sources>(std::move(sources)) : added.error();
}

/// All templates of the directory, from the first place that has any.
Result<Sources> read_templates(const Path& directory, const Json& config) {
  Result<Sources> files = template_files(directory);
  if (!files || !files->empty()) {
    return files;
  }
  const Path json_path = directory / "chat_template.json";
  const Result<Json> json = read_object(json_path);
  if (!json) {
    return json.error();
  }
  if (json->contains("chat_template")) {
    return listed_templates(json_path, (*json)["chat_template"]);
  }
  const auto in_config = config.find("chat_template");
  return in_config == config.end()
             ? Result<Sources>(Sources{})
             : listed_templates(directory / "tokenizer_config.json", *in_config);
}

/// `eos_token_id` of one file: a number or a list of them; none when the file does not say.
Result<std::vector<TokenId>> eos_ids(const Path& path, TokenId id_limit) {
  const Result<Json> json = read_object(path);
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
      return corrupt(path,
                     "eos_token_id " + id.dump() + " is not a token id; those are 0 to " +
                         std::to_string(id_limit - 1));
    }
    ids.push_back(id.get<TokenId>());
  }
  return ids;
}

/// The tokens that end an answer: what the configuration lists, and the tokenizer's eos_token.
Result<std::vector<TokenId>> read_eos(const Path& directory,
                                      const Json& config,
                                      const Tokenizer& tokenizer) {
  Result<std::vector<TokenId>> listed =
      eos_ids(directory / "generation_config.json", tokenizer.vocab_size());
  if (listed && listed->empty()) {
    listed = eos_ids(directory / "config.json", tokenizer.vocab_size());
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

}  // namespace

Result<std::shared_ptr<const TextModel>> TextModel::open(
    const Path& directory, const std::function<void(std::string_view what)>& begins) {
  const auto begin = [&begins](std::string_view what) {
    if (begins) {
      begins(what);
    }
  };
  begin("tokenizer.json");
  const Path tokenizer_path = directory / "tokenizer.json";
  const Result<std::string> tokenizer_json = read_file(tokenizer_path);
  if (!tokenizer_json) {
    if (tokenizer_json.error().code != Code::kNotFound) {
      return tokenizer_json.error();
    }
    return Error{Code::kNotFound,
                 "tokenizer.json: no such file; a model directory needs one (models "
                 "with only tokenizer.model must be converted)"};
  }
  const Result<Json> config = read_config(directory);
  if (!config) {
    return config.error();
  }
  Result<std::shared_ptr<const Tokenizer>> tokenizer =
      Tokenizer::open(*tokenizer_json, config->dump());
  if (!tokenizer) {
    const std::string& what = tokenizer.error().message;
    return what.starts_with("tokenizer") ? Error{Code::kCorrupt, what}
                                         : corrupt(tokenizer_path, what);
  }
  std::shared_ptr<TextModel> model(new TextModel);  // Not make_shared: the constructor is private.
  model->tokenizer_ = std::move(*tokenizer);

  begin("chat templates");
  const Result<Sources> sources = read_templates(directory, *config);
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
  Result<std::vector<TokenId>> eos = read_eos(directory, *config, *model->tokenizer_);
  if (!eos) {
    return eos.error();
  }
  model->eos_ = std::move(*eos);
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
