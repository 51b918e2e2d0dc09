#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace heddle::store {

/// Where models given by a short name are looked for.
struct ModelPlaces {
  std::filesystem::path
      base{};  ///< What relative paths are relative to: the configuration's folder.
  std::filesystem::path home{};       ///< For paths that begin with "~/".
  std::filesystem::path hub_cache{};  ///< Of Hugging Face's tools; holds models--<org>--<name>.
};

/// An environment variable, if it is set and not empty.
using Environment = std::function<std::optional<std::string>(const char* name)>;

/// The places that Hugging Face's own tools use: HF_HUB_CACHE, else HF_HOME/hub, else
/// XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub.
[[nodiscard]] ModelPlaces find_places(const std::filesystem::path& base,
                                      const Environment& environment);

/// The environment of this process.
[[nodiscard]] Environment process_environment();

/// Finds the directory of a model. `source` is a directory (absolute, "~/...", or relative to
/// places.base), or the name of a model in the cache: "org/name", with "@revision" for a branch,
/// tag or commit other than main. A directory wins over a name. Nothing is downloaded.
///
/// kNotFound lists where it looked and what is missing there; kInvalidArgument if `source` can be
/// neither.
[[nodiscard]] Result<std::filesystem::path> find_model(std::string_view source,
                                                       const ModelPlaces& places);

}  // namespace heddle::store
