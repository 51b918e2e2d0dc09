#include "config/path_patterns.h"

#include <algorithm>
#include <utility>

namespace heddle::config {

namespace {

// std::regex takes stack by the length of the text, and time by that of both.
constexpr std::size_t kPatternMax = 256;
constexpr std::size_t kPathMax = 1024;

}  // namespace

Result<PathPatterns> PathPatterns::parse(const std::vector<std::string>& patterns) {
  constexpr std::string_view kAnyCase = "(?i)";
  PathPatterns all;
  for (const std::string& text : patterns) {
    const bool any_case = text.starts_with(kAnyCase);
    const std::string pattern = any_case ? text.substr(kAnyCase.size()) : text;
    if (pattern.size() > kPatternMax) {
      return Error{.code = Code::kInvalidArgument,
                   .message = "an expression has " + std::to_string(pattern.size()) +
                              " bytes; want at most " + std::to_string(kPatternMax)};
    }
    auto flags = std::regex::ECMAScript | std::regex::nosubs;
    if (any_case) {
      flags |= std::regex::icase;
    }
    try {
      all.patterns_.emplace_back(pattern, flags);
    } catch (const std::regex_error& wrong) {
      return Error{.code = Code::kInvalidArgument,
                   .message = "\"" + text + "\" is no regular expression: " + wrong.what()};
    }
  }
  return all;
}

bool PathPatterns::match(std::string_view path) const {
  if (path.size() > kPathMax) {
    return false;
  }
  return std::ranges::any_of(patterns_, [path](const std::regex& pattern) {
    try {
      return std::regex_search(path.begin(), path.end(), pattern);
    } catch (const std::regex_error&) {
      return false;  // It would take too long.
    }
  });
}

void declare_upstream(Fields& fields, Config& config) {
  fields.section({"upstream", "Of requests under /upstream/."}, [&config](Fields& f) {
    std::vector<std::string> paths;
    f.texts({"ignorePaths",
             "Regular expressions of paths behind the model that start no engine: where it does "
             "not run, they get status 409."},
            paths);
    const Result<PathPatterns> patterns = PathPatterns::parse(paths);
    if (!patterns) {
      f.reject("ignorePaths", patterns.error().message);
    }
    if (!paths.empty()) {
      config.ignore_paths = std::move(paths);
    }
  });
}

}  // namespace heddle::config
