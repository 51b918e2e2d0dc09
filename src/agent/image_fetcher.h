#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "agent/fetch_link.h"
#include "agent/fetch_progress.h"
#include "agent/image_job.h"
#include "base/ids.h"
#include "base/result.h"
#include "base/thread.h"
#include "base/time.h"
#include "core/messages.h"
#include "core/serving.h"
#include "fetch/live_model.h"
#include "fetch/model_fetch.h"

namespace heddle::agent {

/// How models are fetched on a host.
struct FetchSetup {
  fetch::PullOptions pull{};
  std::uint64_t bytes_per_second = 0;  ///< Of all together; 0: as fast as it goes.
  /// The host's link, of that rate, where others share it; null: nobody does.
  std::shared_ptr<FetchLink> link{};
  /// The cache of another host. Any thread. Empty: there is none.
  std::function<std::shared_ptr<fetch::Peer>(const core::GroupHost&)> find_peer{};
};

/// Fetches models over a network into the cache, and reads their weights into pages of the arena
/// meanwhile: several images at a time, each with threads of its own. What is in the cache by then
/// is read from there. Of a stage or a rank what its image reads is fetched, and no byte twice.
/// Loop thread only; handlers are called in other threads.
class ImageFetcher {
 public:
  struct Job {
    ImageJob image{};      ///< Its directory has the outline of the model (fetch/outline.h).
    std::string name{};    ///< Of the model, for people.
    std::string source{};  ///< As fetch::pull() takes it.
    bool early = false;    ///< No request waits for it.
    Duration due_in{};     ///< Until the first token that waits is to be there; 0: none waits.
    std::vector<core::GroupHost> peers{};  ///< Hosts that may have it in their caches.
  };
  struct Handlers {
    std::function<void(ModelId, std::uint64_t bytes)> on_progress{};
    /// The job has ended: nothing is written any more, and what the image reads is in the cache
    /// unless that is an error. forget() is to follow.
    std::function<void(ModelId, Result<void>)> on_ended{};
    /// Its source has other files than the outline says.
    std::function<void(const std::string& source)> on_changed{};
  };

  ImageFetcher(FetchSetup setup, Handlers handlers);
  /// Stops what runs, and waits until it has.
  ~ImageFetcher();
  ImageFetcher(const ImageFetcher&) = delete;
  ImageFetcher& operator=(const ImageFetcher&) = delete;

  /// Begins a job. Another one of this model has been forgotten.
  void start(Job job);
  /// The model's job, if one runs, ends with kCancelled soon; what has come stays in the cache.
  void cancel(ModelId model);
  /// A request waits for the model, and where that is a part for all parts of what this source has.
  void prioritise(ModelId model, const std::string& source);
  /// Of a job that has ended. Returns the models whose images were complete, and are now known to
  /// be made of what is wrong: parts of the same model, of which the whole came with another
  /// digest.
  [[nodiscard]] std::vector<ModelId> forget(ModelId model);

  /// What is fetched, and what has been, by name.
  [[nodiscard]] std::vector<core::FetchStatus> statuses() const;

 private:
  /// What the end of a job says of the files that it read.
  enum class Proof : std::uint8_t {
    kNone,
    kPart,   ///< Not all of the model is there, so its digests were not compared.
    kWhole,  ///< It is, and is right.
    kWrong,
  };
  /// A job that runs.
  struct Running {
    Job job{};
    FetchLink::Member member{};
    std::stop_source stop{};
    std::shared_ptr<FetchProgress> progress{};
    Proof proof = Proof::kNone;
    Thread thread{};  ///< Ends before the rest.
  };

  [[nodiscard]] Result<void> run(Running& running) const;
  [[nodiscard]] Result<void> fetch(Running& running) const;
  [[nodiscard]] fetch::PullOptions options_of(const Running& running) const;

  FetchSetup setup_;
  Handlers handlers_;
  const std::shared_ptr<FetchLink> link_;
  mutable fetch::LiveModels models_{};
  std::map<std::string, std::set<ModelId>> unproven_{};  ///< By source.
  std::map<std::string, core::FetchStatus> past_{};      ///< By name: of jobs that were forgotten.
  std::map<ModelId, std::unique_ptr<Running>> running_{};
};

}  // namespace heddle::agent
