#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string_view>

#include "base/ids.h"
#include "base/result.h"
#include "base/time.h"
#include "device/device.h"
#include "ops/context.h"
#include "weave/job_area.h"
#include "weave/step_table.h"
#include "weave/watch.h"

namespace heddle::weave {

/// The host's side of a pair of GPUs: of each step it enqueues all layers on a stream of its own,
/// which waits for the hot stream's queries one by one. One thread serves; any thread may change
/// the lease. What the other side writes is looked at before it is used, as GuestServer does.
class StreamServer {
 public:
  /// What the pair is about here.
  struct Place {
    device::Device& device;  ///< That lends; outlives the server.
    const ops::KernelTable& kernels;
    std::string_view kernels_name{};
    std::byte* pages = nullptr;  ///< Where the lent memory's page 0 is, for the device.
    std::int64_t page_bytes = 0;
  };
  /// kInvalidArgument where the geometry cannot be served here (check_geometry);
  /// kFailedPrecondition where the device's streams wait for no flags; kResourceExhausted.
  static Result<std::unique_ptr<StreamServer>> create(std::shared_ptr<JobArea> area,
                                                      const Place& place);

  /// From now on these are lent: blocks on other pages are refused. Where some were lent before and
  /// are no longer, waits for a step that runs.
  void lend(std::span<const PageId> pages);

  /// Waits for a step and runs it, until the hot side has had all its layers or the area is closed.
  /// False where none came within `patience`. Errors as GuestServer::serve's; also what the stream
  /// reports. After an error the area is closed.
  ///
  /// Who closes the area while a step runs has made sure that the hot side is at none: the stream
  /// then goes through its layers over whatever queries are there, and answers like to others.
  Result<bool> serve(Duration patience);

  /// Whether it is at a step. Any thread.
  [[nodiscard]] bool running() const { return running_; }
  /// Steps and layers so far.
  [[nodiscard]] std::uint64_t steps() const { return steps_; }
  [[nodiscard]] std::uint64_t layers() const { return layers_; }

 private:
  StreamServer(std::shared_ptr<JobArea> area, const Place& place)
      : area_(std::move(area)), place_(place) {}
  Result<void> allocate();
  Result<void> take_step(const JobArea::Job& job);
  void enqueue(const JobArea::Job& job);
  void enqueue_layer(const LayerPlace& layer, std::int64_t rows);
  bool look();

  std::shared_ptr<JobArea> area_;
  Place place_;
  device::Buffer pinned_{};   ///< The area.
  device::Buffer staged_{};   ///< What goes to `tables_`.
  device::Buffer tables_{};   ///< On the device: rows' begins, then StepTable::numbers().
  device::Buffer scratch_{};  ///< Of the stream.
  std::unique_ptr<device::Stream> stream_{};
  std::mutex step_mutex_{};  ///< Held while a step runs; taken before lease_mutex_.
  std::mutex lease_mutex_{};
  std::set<PageId> lease_{};  ///< Guarded by lease_mutex_.
  StepTable table_{};
  std::uint32_t served_ = 0;
  std::uint64_t steps_ = 0;
  std::uint64_t layers_ = 0;
  std::atomic<bool> running_{false};    ///< The stream is at a step,
  std::atomic<std::uint32_t> last_{0};  ///< whose last layer has this ticket.
  std::unique_ptr<Watch> watch_{};      ///< Last: it uses the others.
};

}  // namespace heddle::weave
