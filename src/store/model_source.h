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
  std::filesystem::path url_cache{};  ///< Of what `heddle pull` fetches from elsewhere.
};

/// The name of a model of the hub.
struct HubName {
  std::string repository{};  ///< "org/name", or "name".
  std::string revision{};    ///< A branch, tag or commit; may have slashes.
  std::string tag{};         ///< Of its GGUF files those of this format: "Q4_K_M"; empty: none.
};
/// Reads "org/name", "org/name@revision", either with ":TAG" at its end, and all of these after
/// "hf://"; nothing where it is no such name. All parts are safe as names of folders.
[[nodiscard]] std::optional<HubName> parse_hub_name(std::string_view source);

/// Where a repository is in the cache of the hub.
[[nodiscard]] std::filesystem::path hub_folder(const ModelPlaces& places, const HubName& name);

/// Whether a name says by its scheme that its model is elsewhere: s3, http, https, file.
[[nodiscard]] bool is_url(std::string_view source);

/// Where `heddle pull` puts the model of such a name: a folder whose name can be read and is no
/// other model's. Slashes at the end of `source` do not matter.
[[nodiscard]] std::filesystem::path url_folder(const ModelPlaces& places, std::string_view source);

/// An environment variable, if it is set and not empty.
using Environment = std::function<std::optional<std::string>(const char* name)>;

/// The places that Hugging Face's own tools use: HF_HUB_CACHE, else HF_HOME/hub, else
/// XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub. What comes from elsewhere is in
/// XDG_CACHE_HOME/heddle/models, else ~/.cache/heddle/models.
[[nodiscard]] ModelPlaces find_places(const std::filesystem::path& base,
                                      const Environment& environment);

/// The environment of this process.
[[nodiscard]] Environment process_environment();

/// Finds a model: its directory, or its GGUF file. `source` is a path of either (absolute, "~/...",
/// or relative to places.base), the name of a model in the hub's cache: "org/name", with
/// "@revision" for a branch, tag or commit other than main and ":TAG" for one of its GGUF files
/// (gguf/tagged_files.h), or the URL of one that `heddle pull`
/// has fetched. A path wins over a name, and what was fetched over the folder that a file:// URL
/// names. Nothing is downloaded. That a fetched model was wanted is noted beside it, for who makes
/// room in the cache.
///
/// kNotFound lists where it looked and what is missing there; kInvalidArgument if `source` can be
/// neither.
[[nodiscard]] Result<std::filesystem::path> find_model(std::string_view source,
                                                       const ModelPlaces& places);

/// When the newest file that makes up a model was written: of its directory, those of configuration
/// and weights; of a GGUF file, all its parts. The least time that there is where none can be seen.
[[nodiscard]] std::filesystem::file_time_type newest_write(const std::filesystem::path& model);

}  // namespace heddle::store
