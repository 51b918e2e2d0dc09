#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>

#include "agent/image_job.h"
#include "base/ids.h"
#include "base/result.h"

namespace heddle::agent {

/// Reads weights from disk into pages of the arena, one image at a time, in a thread of its own.
/// The checkpoint is opened anew for each image, so that no file stays open, and is checked again:
/// it may have changed since.
class ImageReader {
 public:
  using Job = ImageJob;
  /// Called in the reader's thread.
  struct Handlers {
    std::function<void(ModelId, std::uint64_t bytes)> on_progress{};
    /// The job has ended, and nothing is written any more.
    std::function<void(ModelId, Result<void>)> on_ended{};
  };

  explicit ImageReader(Handlers handlers);
  /// Stops what runs, and waits until it has.
  ~ImageReader();
  ImageReader(const ImageReader&) = delete;
  ImageReader& operator=(const ImageReader&) = delete;

  /// Begins a job. The one before has ended.
  void start(Job job);
  /// The job that runs, if it is this model's, ends with kCancelled soon.
  void cancel(ModelId model);

 private:
  void run();
  [[nodiscard]] Result<void> read(const Job& job, std::stop_token stop) const;

  Handlers handlers_;
  std::mutex mutex_{};
  std::condition_variable woken_{};
  std::optional<Job> next_{};         // Guarded by mutex_.
  std::optional<ModelId> current_{};  // Guarded by mutex_: of the job that waits or runs.
  std::stop_source stop_{};           // Guarded by mutex_.
  bool stopping_ = false;             // Guarded by mutex_.
  std::thread thread_;
};

}  // namespace heddle::agent
