#include "store/image_loader.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/thread.h"
#include "store/image_slices.h"

namespace heddle::store {
namespace {

constexpr std::uint64_t kSliceBytes = 4U << 20U;  // Where a bigger pread gains nothing more.
constexpr std::uint64_t kReportBytes = 8U << 20U;
constexpr std::uint64_t kPacedSliceBytesMin = 64U << 10U;
constexpr std::uint64_t kPacedSlicesPerSecond = 50;  // Fine enough for stages to arrive in turn.
constexpr unsigned kThreadsMin = 2;                  // One waits for the disk while one copies.
constexpr unsigned kThreadsMax = 4;                  // Where a fast disk gains little more.

/// Holds a load to a rate: byte b is not in place before b / rate after the start.
class Pacer {
 public:
  Pacer(std::uint64_t bytes_per_second, const std::stop_token& stop)
      : rate_(bytes_per_second), stop_(stop), start_(std::chrono::steady_clock::now()) {}

  /// Waits until `bytes` are due, or somebody asks to stop.
  void wait(std::uint64_t bytes) {
    if (rate_ == 0) {
      return;
    }
    const std::chrono::duration<double> due(static_cast<double>(bytes) /
                                            static_cast<double>(rate_));
    std::unique_lock lock(mutex_);
    const auto until =
        start_ + std::chrono::duration_cast<std::chrono::steady_clock::duration>(due);
    (void)wake_.wait_until(
        lock, stop_, until, [] { return false; });  // Only time or a stop ends it.
  }

 private:
  std::uint64_t rate_;
  const std::stop_token& stop_;
  std::chrono::steady_clock::time_point start_;
  std::mutex mutex_{};
  std::condition_variable_any wake_{};
};

/// How far a load has come. Slices end in any order, and count in that of the image.
class Progress {
 public:
  Progress(const ImageLayout& layout,
           const std::vector<ImageSlice>& slices,
           const LoadOptions& options)
      : layout_(layout), slices_(slices), options_(options), ended_(slices.size()) {}

  /// Says what that slice's end puts in place: at the end of a stage, or far from what was said
  /// last. After somebody has asked to stop, nothing.
  void end(std::size_t slice) {
    const std::lock_guard lock(mutex_);
    ended_[slice] = true;
    while (next_ < slices_.size() && ended_[next_] && !options_.stop.stop_requested()) {
      advance(slices_[next_++].end);
    }
  }
  /// Whether all is in place.
  [[nodiscard]] bool complete() const { return next_ == slices_.size(); }

 private:
  void advance(std::uint64_t end) {
    const std::uint64_t before = reported_;
    while (stage_ < layout_.stage_end.size() && layout_.stage_end[stage_] <= end) {
      reported_ = layout_.stage_end[stage_++];
    }
    if (reported_ == before && end - reported_ >= kReportBytes) {
      reported_ = end;
    }
    if (reported_ != before && options_.progress) {
      options_.progress(reported_);
    }
  }

  const ImageLayout& layout_;
  const std::vector<ImageSlice>& slices_;
  const LoadOptions& options_;
  std::mutex mutex_{};
  std::vector<bool> ended_;
  std::size_t next_ = 0;  ///< Slices that are in place, with all before.
  std::uint64_t reported_ = 0;
  std::size_t stage_ = 0;  ///< The next one whose end has not been reported.
};

/// The slices of an image, which threads take in its order.
class Load {
 public:
  Load(const TensorSet& tensors,
       const ImageLayout& layout,
       ImagePages target,
       const LoadOptions& options)
      : tensors_(tensors),
        layout_(layout),
        target_(target),
        options_(options),
        slices_(cut_image(tensors, layout, slice_bytes(options))),
        pacer_(options.bytes_per_second, options.stop),
        progress_(layout, slices_, options) {}

  Result<void> run() {
    zero_gaps();
    {
      std::vector<Thread> others;
      for (unsigned i = 1; i < threads(); ++i) {
        Result<Thread> other = Thread::start({.name = "image reader"}, [this] { take_slices(); });
        if (!other) {
          break;  // The system has none left, so that fewer do it.
        }
        others.push_back(std::move(*other));
      }
      take_slices();
    }
    if (error_) {
      return *error_;
    }
    return progress_.complete() ? Result<void>() : cancelled();
  }

 private:
  static std::uint64_t slice_bytes(const LoadOptions& options) {
    return options.bytes_per_second == 0
               ? kSliceBytes
               : std::clamp(options.bytes_per_second / kPacedSlicesPerSecond / 64 * 64,
                            kPacedSliceBytesMin,
                            kSliceBytes);
  }
  /// What comes over a network comes in order, and no faster for being asked for by several.
  [[nodiscard]] unsigned threads() const {
    return options_.await
               ? 1
               : std::clamp(std::thread::hardware_concurrency(), kThreadsMin, kThreadsMax);
  }

  void take_slices() {
    SliceLoader loader(tensors_, layout_, target_, options_.await);
    while (!failed_ && !options_.stop.stop_requested()) {
      const std::size_t slice = next_++;
      if (slice >= slices_.size()) {
        return;
      }
      if (Result<void> loaded = loader.load(slices_[slice]); !loaded) {
        fail(loaded.error());
        return;
      }
      pacer_.wait(slices_[slice].end);
      progress_.end(slice);
    }
  }

  void fail(const Error& error) {
    const std::lock_guard lock(mutex_);
    failed_ = true;
    error_ = error_.value_or(error);
  }
  [[nodiscard]] Error cancelled() const {
    return {Code::kCancelled,
            "loading " + tensors_.files().front().path().string() + " was cancelled"};
  }

  /// What lies between tensors, and behind the last.
  void zero_gaps() {
    std::uint64_t end = 0;
    for (const ImageTensor& tensor : layout_.tensors) {
      zero_image(target_, end, tensor.offset);
      end = tensor.offset + tensor.bytes;
    }
    zero_image(target_, end, pages_for(layout_.bytes, target_.page_bytes) * target_.page_bytes);
  }

  const TensorSet& tensors_;
  const ImageLayout& layout_;
  ImagePages target_;
  const LoadOptions& options_;
  std::vector<ImageSlice> slices_;
  Pacer pacer_;
  Progress progress_;
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_{};
  std::optional<Error> error_{};  ///< The first.
};

}  // namespace

Result<void> load_image(const TensorSet& tensors,
                        const ImageLayout& layout,
                        ImagePages target,
                        const LoadOptions& options) {
  HEDDLE_CHECK(target.page_bytes > 0 && target.page_bytes % 64 == 0);
  HEDDLE_CHECK(target.pages.size() >= pages_for(layout.bytes, target.page_bytes));
  return Load(tensors, layout, target, options).run();
}

}  // namespace heddle::store
