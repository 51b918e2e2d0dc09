#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread.h"
#include "fetch/model_fetch.h"
#include "store/file.h"

namespace heddle::fetch {

/// Bytes of a file of a model.
struct FilePart {
  std::string file{};
  Range range{};
};

struct LiveFetchSetup {
  std::string model{};              ///< As it is given to pull().
  std::filesystem::path outline{};  ///< What is known of it.
  std::vector<FilePart> order{};    ///< What is read first.
  PullOptions options{};
};

/// A model that is fetched into its cache, and whose weights are read meanwhile. Threads of its own
/// fetch. Any thread may call it, at the same time.
class LiveFetch {
 public:
  /// Begins. Waits for the model's lock and asks the source what there is. kFailedPrecondition,
  /// with kOutlineChanged in its message, where that is no longer what the outline is of; else as
  /// pull() fails.
  /// @param watch  Outlives it.
  [[nodiscard]] static Result<std::unique_ptr<LiveFetch>> begin(LiveFetchSetup setup,
                                                                PullWatch& watch,
                                                                const std::stop_token& stop);
  /// Stops what has not ended; what has come stays for the next time.
  ~LiveFetch();
  LiveFetch(const LiveFetch&) = delete;
  LiveFetch& operator=(const LiveFetch&) = delete;

  /// Opens a file for reading what await() has waited for.
  [[nodiscard]] Result<store::File> open(const std::string& file) const;
  /// Waits until these bytes of a file may be read. What ended the fetch, where that is an error;
  /// kCancelled after a stop.
  [[nodiscard]] Result<void> await(const std::string& file, Range range);
  /// Waits until all of the model has come and its digests are compared. Returns its directory.
  [[nodiscard]] Result<std::filesystem::path> finish();

 private:
  /// How far a file is that has weights.
  struct FileState {
    std::filesystem::path path{};
    std::optional<store::File> file{};
    std::vector<char> there{};  ///< 1 for each record that is; empty: all is.
  };

  LiveFetch(LiveFetchSetup setup, SourceName name, PullWatch& watch, const std::stop_token& stop);
  Result<void> prepare();
  Result<void> prepare_files();
  [[nodiscard]] TransferOptions transfer_options() const;
  void run();
  void came(std::size_t job, Range range);
  void kept(std::size_t job) const;
  [[nodiscard]] bool has(const FileState& state, Range range) const;

  LiveFetchSetup setup_;
  std::stop_source stop_source_{};
  std::stop_token stop_ = stop_source_.get_token();
  std::stop_callback<std::function<void()>> stopped_;
  ModelFetch fetch_;
  std::vector<Job> jobs_{};
  std::uint64_t record_bytes_ = 0;

  mutable std::mutex mutex_{};
  std::condition_variable_any changed_{};
  std::map<std::string, FileState> files_{};                 // Guarded, but for its keys.
  std::map<std::size_t, std::vector<std::string>> names_{};  ///< Of files, by job.
  std::optional<Result<std::filesystem::path>> ended_{};     // Guarded.
  Thread thread_{};                                          ///< Ends before the rest.
};

/// What an error says of a model whose files are others now.
inline constexpr std::string_view kOutlineChanged = "changed at its source";

}  // namespace heddle::fetch
