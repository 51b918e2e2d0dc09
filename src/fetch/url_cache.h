#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "fetch/model_cache.h"

namespace heddle::fetch {

/// What a folder of heddle's cache says of itself, in its file `.source`.
struct FolderRecord {
  struct File {
    std::uint64_t bytes = 0;
    std::string identity{};  ///< Of the object; see Object::identity().
    friend bool operator==(const File&, const File&) = default;
  };
  std::string name{};                   ///< Of the model, as it was pulled.
  std::map<std::string, File> files{};  ///< Those that are there whole, by name.
};
/// Nothing where a folder has none, or it cannot be read.
[[nodiscard]] std::optional<FolderRecord> read_record(const std::filesystem::path& folder);
[[nodiscard]] Result<void> write_record(const std::filesystem::path& folder,
                                        const FolderRecord& record);

/// The file whose lock a model's folder has.
[[nodiscard]] std::filesystem::path lock_of(const std::filesystem::path& folder);
/// The file whose lock servers share that have the model in this folder.
[[nodiscard]] std::filesystem::path use_of(const std::filesystem::path& folder);
/// The folder in which a model comes, until it is whole.
[[nodiscard]] std::filesystem::path incomplete_of(const std::filesystem::path& folder);

/// A place in heddle's own cache: one folder a model, which is renamed when all of it is there.
[[nodiscard]] Result<std::unique_ptr<ModelPlace>> open_url_place(
    const std::string& name,
    const store::ModelPlaces& places,
    const std::function<void()>& on_wait,
    const std::stop_token& stop);

}  // namespace heddle::fetch
