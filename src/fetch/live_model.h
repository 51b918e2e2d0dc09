#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "fetch/incoming.h"
#include "fetch/model_fetch.h"

namespace heddle::fetch {

/// Bytes of a file of a model.
struct FilePart {
  std::string file{};
  Range range{};
};

/// What one fetch wants of a model.
struct LiveFetchSetup {
  std::string model{};              ///< As it is given to pull().
  std::filesystem::path outline{};  ///< What is known of it.
  std::vector<FilePart> order{};    ///< What is read first.
  bool part = false;                ///< The rest is not wanted.
  PullOptions options{};
};

/// Tells all who watch what each would hear. Any thread.
class Watchers final : public PullWatch {
 public:
  void add(PullWatch& watch);
  void remove(PullWatch& watch);

  void waits() override;
  void removed(const std::vector<std::string>& models) override;
  void begins(std::span<const Job> files, std::span<const Object> left_out) override;
  void moved(std::size_t file, std::uint64_t bytes) override;
  void checking(std::size_t file) override;
  void came(std::size_t file) override;
  void retries(const std::string& why, Duration wait) override;
  void streams() override;
  void peer_failed(const std::string& why) override;

 private:
  std::mutex mutex_{};
  std::set<PullWatch*> watches_{};  // Guarded by mutex_.
};

/// A model that comes into its cache, for all of this process who read parts of it: they share its
/// lock, its files, and what has come. Any thread.
class LiveModel {
 public:
  /// Waits for the model's lock and asks the source what there is. As LiveFetch::begin().
  [[nodiscard]] static Result<std::shared_ptr<LiveModel>> open(const LiveFetchSetup& setup,
                                                               PullWatch& watch,
                                                               const std::stop_token& stop);
  LiveModel(const LiveModel&) = delete;
  LiveModel& operator=(const LiveModel&) = delete;

  [[nodiscard]] Source& source() { return fetch_.source(); }
  [[nodiscard]] Incoming& incoming() { return *incoming_; }
  [[nodiscard]] Watchers& watchers() { return watchers_; }
  /// Whether an outline is one of this model. kFailedPrecondition, with kOutlineChanged, if not.
  [[nodiscard]] Result<void> check(const std::filesystem::path& outline) const;
  /// What a fetch wants that comes: what is read first, then files without weights, and the rest
  /// unless it is not wanted.
  [[nodiscard]] std::vector<Part> parts_of(const LiveFetchSetup& setup) const;
  /// Makes room in the cache for what is lacking of these.
  [[nodiscard]] Result<void> make_place(const std::vector<Part>& parts);
  /// The job that a file comes with; nothing for one that was there.
  [[nodiscard]] std::optional<std::size_t> job_of(const std::string& file) const;
  /// Opens a file with weights.
  [[nodiscard]] Result<File> open(const std::string& file) const;
  /// Bytes of all files with weights.
  [[nodiscard]] std::uint64_t weight_bytes() const;
  /// Has the model appear where all of it is there, and says where; else nothing.
  [[nodiscard]] Result<std::optional<std::filesystem::path>> publish();

 private:
  /// A file that has weights.
  struct Weights {
    std::optional<std::size_t> job{};
    std::optional<File> file{};
  };

  LiveModel(const LiveFetchSetup& setup, SourceName name, const std::stop_token& stop);
  Result<void> prepare();
  Result<void> open_files();
  Result<void> seed(std::size_t job);
  void keep_time(std::size_t job) const;

  const std::string model_;
  const std::filesystem::path outline_;
  const PullOptions options_;
  Watchers watchers_{};
  ModelFetch fetch_;
  std::optional<Incoming> incoming_{};
  std::map<std::string, Weights> weights_{};
  std::mutex mutex_{};
  std::optional<Result<std::filesystem::path>> published_{};  // Guarded by mutex_.
};

/// The models that this process fetches, by source. Any thread.
class LiveModels {
 public:
  /// The model of a setup, if somebody fetches it already, else opened. `watch` hears of it until
  /// it is taken from its watchers. As LiveModel::open().
  [[nodiscard]] Result<std::shared_ptr<LiveModel>> join(const LiveFetchSetup& setup,
                                                        PullWatch& watch,
                                                        const std::stop_token& stop);

 private:
  struct Entry {
    std::weak_ptr<LiveModel> model{};
    bool opening = false;
  };

  std::mutex mutex_{};
  std::condition_variable_any changed_{};
  std::map<std::string, Entry> entries_{};  // Guarded by mutex_.
};

/// What an error says of a model whose files are others now.
inline constexpr std::string_view kOutlineChanged = "changed at its source";

}  // namespace heddle::fetch
