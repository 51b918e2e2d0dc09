#pragma once

#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/result.h"
#include "base/time.h"

namespace heddle::host {

/// Where the files of a host's models are, for threads that read tokenizers and templates: of a
/// model that is known from its source alone, those wait. One thread tells, any asks.
class ModelFiles {
 public:
  /// By model; nothing for one that is not known yet, or cannot be served.
  using Folders = std::map<std::string, std::optional<std::filesystem::path>>;

  /// Every model that there is, and those of them that are awaited.
  struct Known {
    Folders folders{};
    std::map<std::string, std::string> awaited{};  ///< What is being asked, by model.
    std::map<std::string, Error> failed{};         ///< What became of asking, likewise.
  };
  void tell(Known known) {
    const std::lock_guard lock(mutex_);
    known_ = std::move(known);
    changed_.notify_all();
  }
  /// Nobody tells any more: who waits gives up.
  void end() {
    const std::lock_guard lock(mutex_);
    over_ = true;
    changed_.notify_all();
  }

  /// Where the model's files are, as soon as that is known; nothing where there are none. Why its
  /// source did not say what it is; after so long kUnavailable, with the source.
  [[nodiscard]] Result<std::optional<std::filesystem::path>> find(const std::string& model,
                                                                  Duration patience) const {
    std::unique_lock lock(mutex_);
    (void)changed_.wait_for(
        lock, patience, [&] { return over_ || !known_.awaited.contains(model); });
    const auto awaited = known_.awaited.find(model);
    if (awaited != known_.awaited.end()) {
      return Error{Code::kUnavailable,
                   "what the model \"" + model + "\" is has not been learnt yet from " +
                       awaited->second + "; try again later"};
    }
    if (const auto failed = known_.failed.find(model); failed != known_.failed.end()) {
      return failed->second;
    }
    const auto found = known_.folders.find(model);
    return found == known_.folders.end() ? std::nullopt : found->second;
  }

 private:
  mutable std::mutex mutex_{};
  mutable std::condition_variable changed_{};
  Known known_{};
  bool over_ = false;
};

}  // namespace heddle::host
