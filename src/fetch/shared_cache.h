#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>

#include "base/file.h"
#include "base/result.h"
#include "base/time.h"
#include "fetch/object.h"
#include "fetch/source_name.h"
#include "store/model_source.h"

namespace heddle::fetch {

/// Reads of this machine's caches what other hosts ask for: files that are whole, by what
/// identifies their bytes, and nothing else of the machine. A model that is read stays in the
/// cache meanwhile. Any thread.
class SharedCache {
 public:
  explicit SharedCache(store::ModelPlaces places) : places_(std::move(places)) {}

  /// What a cache has of a model, without URLs. kNotFound where it is not there, or not whole;
  /// kInvalidArgument for what names no model of a network.
  [[nodiscard]] Result<Listing> list(const std::string& model) const;

  /// Which bytes somebody wants.
  struct Wanted {
    std::string model{};      ///< As it is given to pull().
    std::string file{};       ///< Below the model's folder.
    std::uint64_t bytes = 0;  ///< Of the file,
    std::string identity{};   ///< and what stands for its content; see Object::identity().
    Range range{};
  };
  /// The bytes of a range. kNotFound where there is no such file whole; kInvalidArgument for a
  /// range that the file does not have; else as list() and File fail.
  [[nodiscard]] Result<std::string> read(const Wanted& wanted, Instant now);

  /// Lets go of what was not read since. Whether anything is still held.
  bool let_go(Instant since);

 private:
  struct Opened {
    File file;
    std::shared_ptr<void> hold{};  ///< The model stays in the cache.
    Instant used{};
  };
  using Key = std::tuple<std::string, std::string, std::string>;

  [[nodiscard]] Result<Opened> open(const SourceName& name, const Wanted& wanted) const;
  [[nodiscard]] Result<Listing> list_hub(const SourceName& name) const;
  [[nodiscard]] Result<Listing> list_own(const SourceName& name) const;

  const store::ModelPlaces places_;
  std::mutex mutex_{};
  std::map<Key, std::shared_ptr<Opened>> opened_{};  // Guarded by mutex_.
};

}  // namespace heddle::fetch
