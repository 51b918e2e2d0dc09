#include "fetch/wanted.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gguf/tagged_files.h"
#include "store/safetensors.h"

namespace heddle::fetch {
namespace {

constexpr std::array<std::string_view, 15> kTexts = {"config.json",
                                                     "generation_config.json",
                                                     "tokenizer.json",
                                                     "tokenizer_config.json",
                                                     "special_tokens_map.json",
                                                     "added_tokens.json",
                                                     "chat_template.jinja",
                                                     "chat_template.json",
                                                     "tokenizer.model",
                                                     "vocab.json",
                                                     "vocab.txt",
                                                     "merges.txt",
                                                     "modules.json",
                                                     "sentence_bert_config.json",
                                                     "1_Pooling/config.json"};
constexpr std::string_view kTemplates = "additional_chat_templates/";
constexpr std::size_t kNamesShown = 8;

bool is_text(std::string_view name) {
  return std::ranges::find(kTexts, name) != kTexts.end() ||
         (name.starts_with(kTemplates) && name.ends_with(".jinja"));
}

const Object* find(const std::vector<Object>& objects, std::string_view name) {
  const auto found = std::ranges::find(objects, name, &Object::name);
  return found != objects.end() ? &*found : nullptr;
}

Error without(std::string_view model, std::string_view file, const std::vector<Object>& objects) {
  std::vector<std::string> names;
  for (const Object& object : objects) {
    if (names.size() < kNamesShown) {
      names.push_back(object.name);
    }
  }
  const bool has_gguf = std::ranges::any_of(
      objects, [](const Object& object) { return object.name.ends_with(".gguf"); });
  return {
      Code::kNotFound,
      fmt::format("{} has no {}; heddle reads {} with safetensors{}. There is: {}{}",
                  model,
                  file,
                  kConfigFile,
                  has_gguf ? ", or a GGUF file that is named by its tag, as org/name:Q4_K_M" : "",
                  names.empty() ? "nothing" : fmt::format("{}", fmt::join(names, ", ")),
                  objects.size() > names.size() ? ", ..." : "")};
}

/// The names of the files with weights, the index included.
Result<std::set<std::string, std::less<>>> weight_names(
    const std::vector<Object>& objects,
    std::string_view model,
    const std::function<Result<std::string>(const Object&)>& read) {
  std::set<std::string, std::less<>> names;
  if (find(objects, kWeightsFile) != nullptr) {
    names.emplace(kWeightsFile);
    return names;
  }
  const Object* index = find(objects, kIndexFile);
  if (index == nullptr) {
    return without(model, fmt::format("{} and no {}", kWeightsFile, kIndexFile), objects);
  }
  const Result<std::string> text = read(*index);
  if (!text) {
    return text.error();
  }
  const auto shards =
      store::parse_safetensors_index(*text, fmt::format("{}: {}", model, kIndexFile));
  if (!shards) {
    return shards.error();
  }
  names.emplace(kIndexFile);
  for (const auto& [tensor, shard] : *shards) {
    if (find(objects, shard) == nullptr) {
      return Error{Code::kCorrupt,
                   fmt::format("{}: {} names {}, which is not there", model, kIndexFile, shard)};
    }
    names.insert(shard);
  }
  return names;
}

}  // namespace

std::span<const std::string_view> text_names() {
  return kTexts;
}

Result<Choice> choose(std::vector<Object> objects,
                      std::string_view model,
                      const std::function<Result<std::string>(const Object&)>& read) {
  std::ranges::sort(objects, {}, &Object::name);
  if (find(objects, kConfigFile) == nullptr) {
    return without(model, kConfigFile, objects);
  }
  const auto weights = weight_names(objects, model, read);
  if (!weights) {
    return weights.error();
  }
  Choice choice;
  std::vector<Object> heavy;
  for (Object& object : objects) {
    const bool is_weight = weights->contains(object.name);
    std::vector<Object>& place =
        is_weight ? heavy : (is_text(object.name) ? choice.wanted : choice.left_out);
    place.push_back(std::move(object));
  }
  std::ranges::move(heavy, std::back_inserter(choice.wanted));
  return choice;
}

Result<Choice> choose_gguf(std::vector<Object> objects,
                           std::string_view model,
                           std::string_view tag) {
  std::vector<std::string> names;
  for (const Object& object : objects) {
    names.push_back(object.name);
  }
  const Result<std::vector<std::string>> files = gguf::tagged_files(names, tag);
  if (!files) {
    return Error{files.error().code, fmt::format("{}: {}", model, files.error().message)};
  }
  Choice choice;
  for (const std::string& file : *files) {
    choice.wanted.push_back(*find(objects, file));
  }
  std::erase_if(objects, [&](const Object& object) {
    return std::ranges::find(*files, object.name) != files->end();
  });
  choice.left_out = std::move(objects);
  return choice;
}

}  // namespace heddle::fetch
