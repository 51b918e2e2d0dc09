#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace heddle::store {

/// The files of a model beside its weights, by name: configuration, tokenizer, templates.
/// kNotFound where there is no such directory.
[[nodiscard]] Result<std::vector<std::filesystem::path>> text_files(
    const std::filesystem::path& directory);

/// One of the texts of which a model's tokenizer and templates are made.
struct TextSource {
  std::string name{};                         ///< As in a model directory: "tokenizer.json".
  std::filesystem::path path{};               ///< Of the file that has it,
  std::shared_ptr<const std::string> made{};  ///< or itself, of a GGUF file.
};

/// The texts of a model, by name: the files of its directory, or what its GGUF file stands for,
/// which is read and made anew. As text_files() and gguf::text_files().
[[nodiscard]] Result<std::vector<TextSource>> text_sources(const std::filesystem::path& model);

}  // namespace heddle::store
