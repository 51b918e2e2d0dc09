#include "text/model_texts.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <ios>
#include <system_error>
#include <utility>

namespace heddle::text {
namespace {

/// The largest tokenizers are some 40 MB.
constexpr std::uintmax_t kFileBytesMax = std::uintmax_t{256} << 20U;

Error unreadable(std::string_view name, const std::string& what) {
  return Error{Code::kCorrupt, std::filesystem::path(name).filename().string() + ": " + what};
}

Result<std::string> read_file(const std::filesystem::path& path, std::string_view name) {
  std::error_code failure;
  const std::uintmax_t size = std::filesystem::file_size(path, failure);
  if (failure == std::errc::no_such_file_or_directory) {
    return Error{Code::kNotFound, path.filename().string() + ": no such file"};
  }
  if (failure) {
    return unreadable(name, "cannot be read: " + failure.message());
  }
  if (size > kFileBytesMax) {
    return unreadable(name,
                      "has " + std::to_string(size) + " bytes; at most " +
                          std::to_string(kFileBytesMax) + " are read");
  }
  std::string text(static_cast<std::size_t>(size), '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file) {
    return unreadable(name, "cannot be read");
  }
  return text;
}

/// A message about a file, without the folder that it is in.
Error without_folder(Error error, const std::filesystem::path& path) {
  const std::string folder = path.parent_path().string() + "/";
  for (auto at = error.message.find(folder); at != std::string::npos;
       at = error.message.find(folder)) {
    error.message.erase(at, folder.size());
  }
  return error;
}

}  // namespace

Result<ModelTexts> ModelTexts::open(const std::filesystem::path& model) {
  ModelTexts texts;
  if (!gguf::is_gguf(model)) {
    texts.directory_ = model;
    return texts;
  }
  Result<gguf::TextFiles> made = gguf::text_files(model);
  if (!made) {
    return without_folder(made.error(), model);
  }
  texts.made_ = std::move(*made);
  return texts;
}

Result<std::string> ModelTexts::read(std::string_view name) const {
  if (!made_) {
    return read_file(directory_ / name, name);
  }
  const auto found = made_->find(name);
  if (found == made_->end()) {
    return Error{Code::kNotFound, std::string(name) + ": no such file"};
  }
  return found->second;
}

std::vector<std::string> ModelTexts::names_in(std::string_view folder,
                                              std::string_view extension) const {
  std::vector<std::string> names;
  std::error_code none;  // A folder that is not there has no entries.
  if (!made_) {
    for (const auto& entry : std::filesystem::directory_iterator(directory_ / folder, none)) {
      if (entry.path().extension() == extension) {
        names.push_back(entry.path().filename().string());
      }
    }
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace heddle::text
