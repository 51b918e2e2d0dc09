#include "store/text_files.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <system_error>

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

}  // namespace heddle::store
