#include "gguf/tagged_files.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gguf/part_name.h"

namespace heddle::gguf {
namespace {

constexpr std::size_t kNamesShown = 12;

std::string capitals(std::string_view text) {
  std::string upper(text);
  std::ranges::transform(
      upper, upper.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return upper;
}

bool is_model(std::string_view file) {
  return file.ends_with(kGgufEnd) && file.find("mmproj") == std::string_view::npos &&
         file.find("imatrix") == std::string_view::npos;
}

/// A model's name: that of its file without its end, and without which part of it a file is.
std::string stem_of(const std::string& file) {
  const auto part = part_name(file);
  return part ? part->stem : file.substr(0, file.size() - kGgufEnd.size());
}

bool has_tag(const std::string& stem, std::string_view tag) {
  const std::string name = capitals(stem);
  const std::string wanted = capitals(tag);
  const auto slash = name.rfind('/');
  if (slash != std::string::npos) {
    const auto before = name.rfind('/', slash - 1);
    const auto begin = before == std::string::npos ? 0 : before + 1;
    if (name.substr(begin, slash - begin) == wanted) {
      return true;
    }
  }
  return name.ends_with("-" + wanted) || name.ends_with("." + wanted);
}

std::string shown(const std::vector<std::string>& names) {
  if (names.empty()) {
    return "none";
  }
  const std::size_t most = std::min(names.size(), kNamesShown);
  return fmt::format(
      "{}{}",
      fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(most), ", "),
      most < names.size() ? ", ..." : "");
}

}  // namespace

Result<std::vector<std::string>> tagged_files(const std::vector<std::string>& files,
                                              std::string_view tag) {
  std::vector<std::string> known;
  std::map<std::string, std::vector<std::string>> models;
  for (const std::string& file : files) {
    if (is_model(file)) {
      known.push_back(file);
      if (const std::string stem = stem_of(file); has_tag(stem, tag)) {
        models[stem].push_back(file);
      }
    }
  }
  if (models.empty()) {
    return Error{
        Code::kNotFound,
        fmt::format("no GGUF file there has the tag \"{}\"; there is: {}", tag, shown(known))};
  }
  if (models.size() > 1) {
    std::vector<std::string> names;
    for (const auto& [stem, parts] : models) {
      names.push_back(stem);
    }
    return Error{Code::kInvalidArgument,
                 fmt::format("the tag \"{}\" names several models: {}", tag, shown(names))};
  }
  std::vector<std::string> parts = std::move(models.begin()->second);
  std::ranges::sort(parts);  // By number.
  const auto part = part_name(parts.front());
  const std::size_t count = part ? static_cast<std::size_t>(part->count) : 1;
  if (parts.size() != count) {
    return Error{
        Code::kNotFound,
        fmt::format(
            "of the {} parts of {} there are {}", count, models.begin()->first, shown(parts))};
  }
  return parts;
}

}  // namespace heddle::gguf
