#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
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
/// meanwhile. Jobs are done in the order given; copies go on between jobs, one after the
/// other: first those that somebody waits for.
class Mapper {
 public:
  /// Called in the mapper's thread.
  struct Handlers {
    /// The window is mapped, and its copy has begun if there is one; or it could not be.
    std::function<void(ModelId, Result<void>)> on_opened{};
    /// Of an image that is copied: so many bytes are in place. At most every MiB, and at the end.
    std::function<void(ModelId, std::uint64_t)> on_copied{};
    /// The window is unmapped and nothing is copied into it any more.
    std::function<void(ModelId)> on_closed{};
  };

  /// `bandwidth` of copies in bytes/s, 0 for unlimited. `device` outlives the mapper.
  Mapper(device::Device& device, std::uint64_t bandwidth, Handlers handlers);
  /// Jobs that have not begun are dropped.
  ~Mapper();
  Mapper(const Mapper&) = delete;
  Mapper& operator=(const Mapper&) = delete;

  /// Maps `pages` in `window`, read only. If `source` is not empty, copies the image that lies in
  /// those pages into `pages`, as far as it is there: `ready_bytes`, and what allow_copy() adds.
  /// `window` lives until on_closed or this object's end.
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

  struct Copy {
    Open image{};
    std::uint64_t done = 0;
    std::uint64_t told = 0;
  };

  void run();
  void carry_out(Job job);
  /// A copy that can go on, and how far.
  struct Piece {
    std::size_t copy = 0;  ///< Index in copies_.
    std::uint64_t allowed = 0;
  };
  void copy_piece(const Piece& piece);
  [[nodiscard]] std::optional<Piece> copyable() const;

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

  std::deque<Copy> copies_{};  ///< The thread's own.
  std::thread thread_;
};

}  // namespace heddle::worker
