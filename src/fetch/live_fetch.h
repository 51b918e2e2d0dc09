#pragma once

#include <condition_variable>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "base/thread.h"
#include "fetch/live_model.h"
#include "fetch/model_fetch.h"

namespace heddle::fetch {

/// A model, or part of one, that is fetched into its cache, and whose weights are read meanwhile.
/// Threads of its own fetch, beside those of others who fetch parts of the same model. Any thread
/// may call it, at the same time.
class LiveFetch {
 public:
  /// Begins. Waits for the model's lock and asks the source what there is, unless somebody has.
  /// kFailedPrecondition, with kOutlineChanged in its message, where that is no longer what the
  /// outline is of; else as pull() fails.
  /// @param models  Outlives it, as `watch` does.
  [[nodiscard]] static Result<std::unique_ptr<LiveFetch>> begin(LiveFetchSetup setup,
                                                                LiveModels& models,
                                                                PullWatch& watch,
                                                                const std::stop_token& stop);
  /// Stops what has not ended; what has come stays for the next time.
  ~LiveFetch();
  LiveFetch(const LiveFetch&) = delete;
  LiveFetch& operator=(const LiveFetch&) = delete;

  /// Opens a file for reading what await() has waited for.
  [[nodiscard]] Result<File> open(const std::string& file) const;
  /// Waits until these bytes of a file may be read, which are among those wanted. What ended the
  /// fetch, where that is an error; kCancelled after a stop.
  [[nodiscard]] Result<void> await(const std::string& file, Range range);
  /// Waits until all that is wanted has come, and the digests of files that are whole are compared.
  /// Returns the model's directory where all of the model is there, else nothing.
  [[nodiscard]] Result<std::optional<std::filesystem::path>> finish();

 private:
  LiveFetch(LiveFetchSetup setup, PullWatch& watch, const std::stop_token& stop);
  Result<void> prepare(LiveModels& models);
  [[nodiscard]] OrderEvents tell_begin(const std::vector<Part>& parts);
  void run();
  Result<void> fetch_rest();

  LiveFetchSetup setup_;
  PullWatch& watch_;
  std::stop_source stop_source_{};
  std::stop_token stop_ = stop_source_.get_token();
  std::stop_callback<std::function<void()>> stopped_;
  std::shared_ptr<LiveModel> model_{};
  std::optional<OrderId> order_{};

  std::mutex mutex_{};
  std::condition_variable_any changed_{};
  std::optional<Result<std::optional<std::filesystem::path>>> ended_{};  // Guarded by mutex_.
  Thread thread_{};                                                      ///< Ends before the rest.
};

}  // namespace heddle::fetch
