#include "store/text_files.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <system_error>
#include <utility>

#include "gguf/gguf_text.h"

namespace heddle::store {
namespace {

constexpr std::array<std::string_view, 4> kExtensions = {".json", ".jinja", ".model", ".txt"};

}  // namespace

Result<std::vector<std::filesystem::path>> text_files(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> files;
  std::error_code failure;
  for (std::filesystem::directory_iterator at(directory, failure), end; !failure && at != end;
       at.increment(failure)) {
    const std::string extension = at->path().extension().string();
    if (std::ranges::find(kExtensions, extension) != kExtensions.end()) {
      files.push_back(at->path());
    }
  }
  if (failure) {
    return Error{Code::kNotFound, directory.string() + ": " + failure.message()};
  }
  std::ranges::sort(files);
  return files;
}

Result<std::vector<TextSource>> text_sources(const std::filesystem::path& model) {
  std::vector<TextSource> sources;
  if (gguf::is_gguf(model)) {
    Result<gguf::TextFiles> made = gguf::text_files(model);
    if (!made) {
      return made.error();
    }
    for (auto& [name, text] : *made) {
      sources.push_back(
          {.name = name, .made = std::make_shared<const std::string>(std::move(text))});
    }
    return sources;
  }
  const Result<std::vector<std::filesystem::path>> files = text_files(model);
  if (!files) {
    return files.error();
  }
  for (const std::filesystem::path& file : *files) {
    sources.push_back({.name = file.filename().string(), .path = file});
  }
  return sources;
}

}  // namespace heddle::store
