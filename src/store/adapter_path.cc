#include "store/adapter_path.h"

#include <algorithm>
#include <optional>
#include <system_error>

namespace heddle::store {
namespace {

namespace fs = std::filesystem;

/// Whether `path` is below `folder`, both without "." and "..".
bool is_below(const fs::path& path, const fs::path& folder) {
  const auto [rest, other] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  const bool all = rest == folder.end() || (rest->empty() && std::next(rest) == folder.end());
  return all && other != path.end() && !other->empty();
}

bool is_below_any(const fs::path& path, std::span<const std::string> folders) {
  return std::ranges::any_of(folders, [&](const std::string& folder) {
    std::error_code none;
    const fs::path real = fs::canonical(folder, none);
    return !none && is_below(path, real);
  });
}

Error outside(const std::string& named) {
  return Error{Code::kInvalidArgument,
               "lora_path: \"" + named +
                   "\" is in none of the folders that adapters.directories names, from which alone "
                   "adapters are loaded"};
}

Error absent(const std::string& named) {
  return Error{Code::kNotFound,
               "lora_path: no adapter found for \"" + named +
                   "\": want a directory with adapter_config.json and adapter_model.safetensors"};
}

/// Where the name leads, as it is written; nothing where that is outside.
std::optional<fs::path> written(std::span<const std::string> folders, const fs::path& name) {
  std::optional<fs::path> first;
  for (const std::string& folder : folders) {
    const fs::path whole = (fs::path(folder) / name).lexically_normal();
    if (!is_below(whole, fs::path(folder).lexically_normal())) {
      continue;
    }
    std::error_code none;
    if (fs::exists(whole, none)) {
      return whole;
    }
    first = first ? first : std::optional(whole);
  }
  return first;
}

}  // namespace

Result<fs::path> find_adapter_in(std::span<const std::string> folders, const std::string& named) {
  if (folders.empty()) {
    return Error{Code::kInvalidArgument,
                 "lora_path: no folder is configured whose adapters may be loaded: name some in "
                 "adapters.directories"};
  }
  const std::optional<fs::path> path =
      named.find('\0') == std::string::npos ? written(folders, named) : std::nullopt;
  if (!path) {
    return outside(named);
  }
  std::error_code none;
  const fs::path real = fs::canonical(*path, none);
  if (none) {
    return absent(named);
  }
  if (!is_below_any(real, folders)) {
    return outside(named);
  }
  for (const char* const file : {"adapter_config.json", "adapter_model.safetensors"}) {
    const fs::path target = fs::canonical(real / file, none);
    if (none || !fs::is_regular_file(target, none)) {
      return absent(named);
    }
    if (!is_below_any(target, folders)) {
      return outside(named);
    }
  }
  return real;
}

}  // namespace heddle::store
