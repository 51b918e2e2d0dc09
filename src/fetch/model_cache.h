#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "base/result.h"
#include "fetch/source_name.h"
#include "fetch/transfer.h"
#include "store/model_source.h"

namespace heddle::fetch {

/// The place of one model in a cache, while it comes. Whoever has it has the model's lock.
class ModelPlace {
 public:
  virtual ~ModelPlace() = default;

  /// What of these is not there, and the file that each is to come in. Called once.
  /// @param revision  The commit, of a model of the hub.
  [[nodiscard]] virtual Result<std::vector<Job>> missing(const std::string& revision,
                                                         const std::vector<Object>& wanted) = 0;
  /// Takes what has come whole in such a file. Any thread.
  [[nodiscard]] virtual Result<void> keep(const Job& job) = 0;
  /// Where a file is that is there, or was kept; any thread.
  [[nodiscard]] virtual std::filesystem::path place_of(const Object& object) const = 0;
  /// The model appears: all that is wanted is there. Returns its directory.
  [[nodiscard]] virtual Result<std::filesystem::path> publish() = 0;
};

/// The place of a model: of one of the hub in the cache of Hugging Face's tools, laid out as they
/// do, of any other in heddle's own. Waits for its lock as FileLock::wait() does.
[[nodiscard]] Result<std::unique_ptr<ModelPlace>> open_place(const SourceName& name,
                                                             const store::ModelPlaces& places,
                                                             const std::function<void()>& on_wait,
                                                             const std::stop_token& stop);

/// What a cache holds of a model.
struct CachedModel {
  std::string name{};  ///< As it is given to pull and in heddle.yaml.
  std::filesystem::path folder{};
  std::uint64_t bytes = 0;     ///< Of the disk.
  std::int64_t used_ns = 0;    ///< When it was last wanted [ns since 1970]; of the hub's: came.
  bool of_hub = false;         ///< In the cache of Hugging Face's tools.
  bool is_incomplete = false;  ///< It has not come whole.
};

/// All models of both caches, by name.
[[nodiscard]] std::vector<CachedModel> cached_models(const store::ModelPlaces& places);

/// Where the outlines of models are (fetch/outline.h).
[[nodiscard]] std::filesystem::path outlines_folder(const store::ModelPlaces& places);

/// Keeps make_room() from removing a model of heddle's own cache, by any process, whether it is
/// there or not. Of one of the hub's cache, from which nothing is removed, it does nothing.
[[nodiscard]] Result<std::shared_ptr<void>> hold_in_cache(const SourceName& name,
                                                          const store::ModelPlaces& places);

/// Removes from heddle's own cache what was wanted longest ago, models with their outlines, until
/// `bytes` more fit into `budget`; nothing that is being fetched or held, and not the model in
/// `folder`. Outlines of models of the hub count, and stay. Returns the names. kResourceExhausted,
/// and nothing is removed, where that cannot be.
[[nodiscard]] Result<std::vector<std::string>> make_room(const store::ModelPlaces& places,
                                                         std::uint64_t budget,
                                                         std::uint64_t bytes,
                                                         const std::filesystem::path& folder);

}  // namespace heddle::fetch
