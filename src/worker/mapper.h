#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/time.h"
#include "device/cpu/paced_copy.h"
#include "device/device.h"
#include "memory/window.h"

namespace heddle::worker {

/// Maps and unmaps windows and copies images, in a thread of its own, so that steps go on
/// meanwhile. Jobs are done in the order given; loads go on between jobs, one after the other:
/// first those that somebody waits for. Of a load, pages are mapped while others are being copied.
class Mapper {
 public:
  /// Called in the mapper's thread.
  struct Handlers {
    /// The window is mapped, and is being copied into if there is an image to copy; or it could not
    /// be mapped, and nothing is copied.
    std::function<void(ModelId, Result<void>)> on_opened{};
    /// Of an image that is copied: so many bytes are in place. At most every MiB, and at the end;
    /// some perhaps before the window is mapped.
    std::function<void(ModelId, std::uint64_t)> on_copied{};
    /// The window is unmapped and nothing is copied into it any more.
    std::function<void(ModelId)> on_closed{};
    /// The device does not copy any more: it is lost.
    std::function<void(const Error&)> on_lost{};
  };

  /// `bandwidth` of copies in bytes/s, 0 for unlimited. `device` outlives the mapper.
  Mapper(device::Device& device, std::uint64_t bandwidth, Handlers handlers);
  /// Jobs that have not begun are dropped.
  ~Mapper();
  Mapper(const Mapper&) = delete;
  Mapper& operator=(const Mapper&) = delete;

  /// Maps `pages` in `window`, read only. If `source` is not empty, copies the image that lies in
  /// those pages of the host into `pages`, as far as it is there: `ready_bytes`, and what
  /// allow_copy() adds. `window` lives until on_closed or this object's end.
  struct Open {
    ModelId model{};
    memory::Window* window = nullptr;
    std::vector<PageId> pages{};
    std::vector<PageId> source{};
    std::uint64_t image_bytes = 0;
    std::uint64_t ready_bytes = 0;
  };
  void open(Open job);
  /// Ends the model's copy, if one is under way, and unmaps its window.
  void close(ModelId model, memory::Window* window);
  /// The first `bytes` of the image that this model is copied from are in place. Ignored for a
  /// model that is not open. Any thread.
  void allow_copy(ModelId model, std::uint64_t bytes);
  /// Copies this image before those that nobody waits for yet. Ignored for a model that is not
  /// open. Any thread.
  void hasten(ModelId model);

  /// Time spent mapping and unmapping. Any thread.
  [[nodiscard]] Duration mapping() const { return Duration(mapping_ns_.load()); }
  /// Bytes of images copied. Any thread.
  [[nodiscard]] std::uint64_t copied_bytes() const { return copied_bytes_.load(); }

 private:
  struct Close {
    ModelId model{};
    memory::Window* window = nullptr;
  };
  using Job = std::variant<Open, Close>;

  /// An image that is copied, and its window.
  struct Load {
    Open image{};
    std::uint64_t copied = 0;
    std::uint64_t told = 0;
    std::size_t mapped = 0;  ///< Pages.
  };
  /// What a load does next, mapping and copying at once.
  struct Piece {
    std::size_t load = 0;       ///< Index in loads_.
    std::uint64_t to_copy = 0;  ///< Bytes, from Load::copied on.
    std::size_t to_map = 0;     ///< Pages, from Load::mapped on.
  };

  void run();
  void carry_out(Job job);
  void carry_out(const Piece& piece);
  void enqueue_copy(const Load& load, std::uint64_t bytes);
  void count_copied(Load& load, std::uint64_t bytes);
  [[nodiscard]] Result<void> map(Load& load, std::size_t pages);
  [[nodiscard]] std::optional<Piece> next() const;

  device::Device& device_;
  Handlers handlers_;
  device::Pacer link_;
  std::atomic<std::int64_t> mapping_ns_ = 0;
  std::atomic<std::uint64_t> copied_bytes_ = 0;

  std::mutex mutex_{};
  std::condition_variable woken_{};
  std::deque<Job> jobs_{};  // Guarded by mutex_.
  /// Of models that are open, or about to be. Guarded by mutex_.
  struct Source {
    std::uint64_t allowed = 0;
    bool urgent = false;
  };
  std::map<ModelId, Source> sources_{};
  bool stopping_ = false;  // Guarded by mutex_.

  std::deque<Load> loads_{};                  ///< The thread's own, as the stream.
  std::unique_ptr<device::Stream> stream_{};  ///< Of copies.
  std::thread thread_;
};

}  // namespace heddle::worker
