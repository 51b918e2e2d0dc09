#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <thread>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/time.h"
#include "device/cpu/paced_copy.h"
#include "device/device.h"
#include "memory/kept_windows.h"
#include "memory/window.h"
#include "worker/image_parts.h"
#include "worker/pulse.h"

namespace heddle::worker {

/// Maps windows and copies images, in a thread of its own, so that steps go on meanwhile. Jobs are
/// done in the order given; loads go on between jobs, one after the other: first those that
/// somebody waits for. Of a load, pages are mapped while others are being copied: where the device
/// is asynchronous by another thread, so that no copy waits for a mapping, and then a few
/// (Tuned::kPieces) pieces are enqueued at once, so that the device need not wait for this thread
/// between two. When there is nothing else to do, windows that were mapped are populated, and those
/// that are kept for nothing unmapped.
///
/// A window that is closed is kept (KeptWindows): no model waits until another's is unmapped, and
/// one whose pages are the same when it is opened again is not mapped again.
/// Beside the device's own link, which this thread keeps busy, other paths may take parts of images
/// (PeerLoad).
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
    /// Nothing is copied into the window's pages any more; it may still show them.
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
  /// What becomes of a window that is closed.
  enum class After : std::uint8_t {
    kKeep,   ///< Its pages stay an image, elsewhere: it waits for it to come back.
    kLetGo,  ///< Its pages are for others: it goes when there is nothing better to do.
  };
  /// Ends the model's copy, if one is under way, and closes its window, if it has one.
  void close(ModelId model, memory::Window* window, After after);
  /// These pages are about to be written, or to leave: no kept window shows them when this returns.
  /// Any thread.
  void drop_kept(std::span<const PageId> pages);
  /// These pages leave: calls `then` with them when no kept window shows them. At once where none
  /// does; else in this object's thread, which does first what models wait for, and this before it
  /// closes another window.
  using Dropped = std::function<void(std::vector<PageId>)>;
  void when_dropped(std::vector<PageId> pages, Dropped then);
  /// These pages are no image any more: kept windows that show them go, by and by. Any thread.
  void let_go(std::span<const PageId> pages);
  /// As close() with kLetGo, of a window that was kept. Any thread.
  void let_go(const memory::Window& window);
  /// The first `bytes` of the image that this model is copied from are in place. Ignored for a
  /// model that is not open. Any thread.
  void allow_copy(ModelId model, std::uint64_t bytes);
  /// Copies this image before those that nobody waits for yet. Ignored for a model that is not
  /// open. Any thread.
  void prioritise(ModelId model);

  /// A part of an image that another path than the device's own link is to copy. At most so large:
  static constexpr std::uint64_t kShareBytesMax = std::uint64_t{8} << 20U;
  struct Share {
    std::uint64_t load = 0;  ///< Names the load; no two have the same.
    ImagePart part{};
    /// In order: from that page of the host to that of the device, both at `offset`.
    struct Piece {
      PageId source{};
      PageId target{};
      std::uint64_t offset = 0;
      std::uint64_t bytes = 0;
    };
    std::vector<Piece> pieces{};
  };
  // For other paths; any thread. A share is given back or, where begin_writing() said yes, ended.
  /// Waits until there is a share to take, and gives up when `stop` says so: then false.
  bool wait_for_share(const std::stop_token& stop);
  /// The next share; nothing where there is none that is worth a peer's help.
  std::optional<Share> take_share();
  void give_back(const Share& share);
  /// Whether the share is still wanted. If so, the device's pages stay what they are until
  /// end_writing().
  [[nodiscard]] bool begin_writing(const Share& share);
  void end_writing(const Share& share, const Result<void>& written);

  /// Whether nothing is loaded, nor about to be. Any thread.
  [[nodiscard]] bool is_idle();

  /// What windows show of models that are closed [bytes]. Any thread.
  [[nodiscard]] std::uint64_t kept_bytes() const { return kept_.bytes(); }
  /// Time spent mapping and unmapping. Any thread.
  [[nodiscard]] Duration mapping() const { return Duration(mapping_ns_.load()); }
  /// Bytes of images copied, over all paths; and over others than the device's own. Any thread.
  [[nodiscard]] std::uint64_t copied_bytes() const { return copied_bytes_.load(); }
  [[nodiscard]] std::uint64_t peer_load_bytes() const { return peer_load_bytes_.load(); }
  /// What its thread is at. Any thread.
  [[nodiscard]] const Pulse& pulse() const { return pulse_; }

 private:
  struct Close {
    ModelId model{};
    memory::Window* window = nullptr;
    After after = After::kLetGo;
  };
  using Job = std::variant<Open, Close>;
  struct Leaving {
    std::vector<PageId> pages{};
    Dropped then{};
    std::size_t dropped = 0;  ///< Of the pages.
  };

  /// An image that is copied, and its window.
  struct Load {
    std::uint64_t number = 0;
    Open image{};
    ImageParts parts;
    std::uint64_t told = 0;
    std::size_t mapped = 0;    ///< Pages.
    std::int64_t writing = 0;  ///< Shares that are being written.
    bool ended = false;        ///< Nothing more is taken of it.
  };
  /// What is done next: a part is copied on the device's own link while pages are mapped, perhaps
  /// of another load, so that no model waits with its window until others are copied.
  struct Piece {
    Load* copied = nullptr;
    std::optional<ImagePart> part{};  ///< Of `copied`.
    Load* mapped = nullptr;
  };

  /// A piece that an asynchronous device copies.
  struct Copying {
    Load* load = nullptr;
    ImagePart part{};
    std::uint64_t mark = 0;  ///< Behind it in the stream.
  };
  /// What the thread that maps is at, or has done.
  struct Mapping {
    Load* load = nullptr;
    std::size_t pages = 0;
    std::optional<Result<void>> outcome{};
  };

  void run();
  void carry_out(Job job);
  void carry_out(const Piece& piece);
  void carry_out_ahead(const Piece& piece);
  void wait_for_copy();
  void wait_for_copies_of(const Load& load);
  void run_mappings();
  void begin_mapping(Load& load);
  void take_mapping();
  [[nodiscard]] Result<void> map_more(Load& load);
  void mapped_more(Load& load, std::size_t pages);
  [[nodiscard]] std::size_t pages_at_once(const Load& load) const;
  void drop_kept_of(const Load& load, const ImagePart& part);
  void enqueue_copy(const Load& load, const ImagePart& part);
  /// Bytes that lie together on both sides, and in one registration of the host's memory.
  struct Run {
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    std::size_t bytes = 0;
  };
  void enqueue(const Run& run);
  template <class Each>
  void for_pieces(const Open& image, const ImagePart& part, const Each& each) const;
  void report();
  void tidy();
  bool drop_leaving(std::size_t most);
  void remove(Load& load);
  [[nodiscard]] Result<void> map(const Load& load, std::size_t pages);
  // With mutex_ held.
  template <class Can>
  [[nodiscard]] Load* choose(const Can& can);
  [[nodiscard]] Load* next_to_copy();
  [[nodiscard]] Load* next_to_map();
  [[nodiscard]] Load* next_to_share();
  [[nodiscard]] Load* next_to_report();
  [[nodiscard]] Load* numbered(std::uint64_t number);
  [[nodiscard]] Piece take_piece();
  [[nodiscard]] std::uint64_t allowed(const Load& load) const;
  [[nodiscard]] std::uint64_t part_bytes(const Load& load, std::uint64_t most) const;
  [[nodiscard]] bool has_work();
  [[nodiscard]] bool has_load_work();

  device::Device& device_;
  const bool ahead_;  ///< The device is asynchronous.
  Handlers handlers_;
  Pulse pulse_{"mapper"};
  memory::KeptWindows kept_;
  std::vector<memory::Window*> unpopulated_{};  ///< Open; of this thread.
  std::deque<Copying> copying_{};               ///< Of this thread, oldest first.
  device::Pacer link_;
  bool paced_;
  std::atomic<std::int64_t> mapping_ns_ = 0;
  std::atomic<std::uint64_t> copied_bytes_ = 0;
  std::atomic<std::uint64_t> peer_load_bytes_ = 0;

  std::mutex mutex_{};
  std::condition_variable woken_{};       ///< This thread.
  std::condition_variable maps_{};        ///< The thread that maps.
  std::condition_variable_any shared_{};  ///< Other paths: there is something to take.
  std::deque<Job> jobs_{};                // Guarded by mutex_.
  /// Of models that are open, or about to be. Guarded by mutex_.
  struct Source {
    std::uint64_t allowed = 0;
    bool urgent = false;
  };
  std::map<ModelId, Source> sources_{};
  bool stopping_ = false;  // Guarded by mutex_.
  /// Guarded by mutex_, but for the thread's own part: it alone adds and removes, and sees `image`,
  /// `told` and `mapped`.
  std::list<Load> loads_{};
  /// Guarded by mutex_, but for the first, which is the thread's own; it alone removes.
  std::deque<Leaving> leaving_{};
  std::optional<Mapping> mapping_{};  ///< Guarded by mutex_.
  std::uint64_t loads_begun_ = 0;
  std::optional<Error> failed_{};  ///< Another path found the device lost. Guarded by mutex_.

  std::unique_ptr<device::Stream> stream_{};  ///< Of copies.
  std::thread thread_;
  std::thread map_thread_{};  ///< Where ahead_.
};

/// The first load of which something can be done, those that are urgent first.
template <class Can>
Mapper::Load* Mapper::choose(const Can& can) {
  Load* first = nullptr;
  for (Load& load : loads_) {
    const auto found = sources_.find(load.image.model);
    const bool urgent = found != sources_.end() && found->second.urgent;
    if (found == sources_.end() || load.ended || (first != nullptr && !urgent) || !can(load)) {
      continue;
    }
    first = &load;
    if (urgent) {
      break;
    }
  }
  return first;
}

/// The pieces of pages that make up a part of an image.
template <class Each>
void Mapper::for_pieces(const Open& image, const ImagePart& part, const Each& each) const {
  const std::uint64_t page_bytes = device_.properties().page_bytes;
  for (std::uint64_t at = part.begin; at < part.end;) {
    const std::size_t page = at / page_bytes;
    const std::uint64_t offset = at % page_bytes;
    const std::uint64_t bytes = std::min(part.end - at, page_bytes - offset);
    each(Share::Piece{.source = image.source[page],
                      .target = image.pages[page],
                      .offset = offset,
                      .bytes = bytes});
    at += bytes;
  }
}

}  // namespace heddle::worker
